"""MCP clients of a gateway that notice everything: the official SDK's, and ones that speak HTTP themselves.

All have one verb: call the tool `slow` of a server with a text that no other call has. `Outcome` says what came back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, Protocol

import aiohttp
import orjson

from bench.bare_client import HELLO, MODERN_META, MODERN_VERSION

Kind = Literal["answered", "failed", "refused", "broken"]
BOTH = "application/json, text/event-stream"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a call came to: an answer, a failure that the result tells, a gateway that stops, or anything else."""

    kind: Kind
    text: str


class Client(Protocol):
    """A client that is connected."""

    async def call(self, tool: str, arguments: Mapping[str, Any], *, has_progress: bool) -> Outcome: ...


class RawClient:
    """Speaks HTTP itself. A legacy client has a session, which must live as long as the gateway."""

    def __init__(self, http: aiohttp.ClientSession, url: str, *, is_modern: bool) -> None:
        self._http = http
        self._url = url
        self._is_modern = is_modern
        self._ids = count(1)
        self._session_id: str | None = None

    async def connect(self) -> None:
        if self._is_modern:
            return
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "initialize", "params": HELLO}
        async with self._http.post(self._url, json=message, headers={"accept": BOTH}) as reply:
            reply.raise_for_status()
            self._session_id = reply.headers["mcp-session-id"]

    async def call(self, tool: str, arguments: Mapping[str, Any], *, has_progress: bool) -> Outcome:
        message = self.build_call(tool, arguments, has_progress=has_progress)
        try:
            async with self._http.post(self._url, json=message, headers=self.headers(tool)) as reply:
                if reply.status == 503:
                    return Outcome(kind="refused", text=await reply.text())
                if reply.content_type == "text/event-stream":
                    answer = [event async for _, event in read_events(reply)][-1]
                else:
                    answer = orjson.loads(await reply.read())
        except (aiohttp.ClientError, OSError, ValueError, IndexError) as error:
            return Outcome(kind="broken", text=f"the connection: {error!r}")
        return outcome_of(answer, message["id"])

    async def list_tools(self) -> list[str]:
        params: dict[str, Any] = {"_meta": MODERN_META} if self._is_modern else {}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/list", "params": params}
        headers = {**self.headers(None), **({"mcp-method": "tools/list"} if self._is_modern else {})}
        async with self._http.post(self._url, json=message, headers=headers) as reply:
            return [tool["name"] for tool in (await reply.json())["result"]["tools"]]

    def build_call(self, tool: str, arguments: Mapping[str, Any], *, has_progress: bool) -> dict[str, Any]:
        number = next(self._ids)
        meta = {**(MODERN_META if self._is_modern else {}), **({"progressToken": number} if has_progress else {})}
        params = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    def headers(self, tool: str | None) -> dict[str, str]:
        if not self._is_modern:
            session = {} if self._session_id is None else {"mcp-session-id": self._session_id}
            return {"accept": BOTH, "mcp-protocol-version": HELLO["protocolVersion"], **session}
        named = {} if tool is None else {"mcp-method": "tools/call", "mcp-name": tool}
        return {"accept": BOTH, "mcp-protocol-version": MODERN_VERSION, **named}


class ReturningClient(RawClient):
    """A legacy client that loses its connection again and again in one call, and comes back for the rest."""

    def __init__(self, http: aiohttp.ClientSession, url: str, chance: random.Random) -> None:
        super().__init__(http, url, is_modern=False)
        self._chance = chance
        self.disconnections = 0

    async def follow_call(self, tool: str, arguments: Mapping[str, Any]) -> list[Any]:
        """All messages of a call, in the order in which they came."""
        message = self.build_call(tool, arguments, has_progress=True)
        headers = self.headers(tool)
        messages: list[Any] = []
        async with self._http.post(self._url, json=message, headers=headers) as reply:
            last_id = await self._read_some(reply, messages, "")
        while not messages or "id" not in messages[-1]:
            self.disconnections += 1
            await asyncio.sleep(self._chance.uniform(0, 0.2))
            async with self._http.get(self._url, headers={**headers, "last-event-id": last_id}) as reply:
                reply.raise_for_status()
                last_id = await self._read_some(reply, messages, last_id)
        return messages

    async def _read_some(self, reply: aiohttp.ClientResponse, messages: list[Any], last_id: str) -> str:
        """Read events until the stream ends, or this client has had enough; return the id of the last one."""
        patience = self._chance.randint(1, 4)
        async for event_id, event in read_events(reply):
            last_id = event_id
            if event is not None:
                messages.append(event)
            patience -= 1
            if not patience:
                break
        return last_id


class SdkClient:
    """The official client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def call(self, tool: str, arguments: Mapping[str, Any], *, has_progress: bool) -> Outcome:
        async def on_progress(*report: Any) -> None:
            """Nothing to do: that it is given asks for progress."""

        try:
            callback = on_progress if has_progress else None
            result = await self._client.call_tool(tool, dict(arguments), progress_callback=callback)
        # Whatever it raises: a failed call must be a result.
        except Exception as error:
            return Outcome(kind="broken", text=repr(error))
        text = "\n".join(block.text for block in result.content)
        return Outcome(kind="failed" if result.is_error else "answered", text=text)


@asynccontextmanager
async def connect_sdk(url: str, mode: Literal["legacy", "auto"]) -> AsyncIterator[SdkClient]:
    from mcp import Client as OfficialClient

    async with OfficialClient(url, mode=mode) as client:
        # It lists the tools after the first result of one that it does not know, and fails the call if it cannot: a
        # gateway that was terminated meanwhile has answered the call, and refuses the list.
        await client.list_tools()
        yield SdkClient(client)


def outcome_of(answer: Any, request_id: int) -> Outcome:
    """What a JSON-RPC response says."""
    if answer.get("id") != request_id or "result" not in answer:
        return Outcome(kind="broken", text=orjson.dumps(answer).decode())
    result = answer["result"]
    text = "\n".join(block["text"] for block in result["content"])
    return Outcome(kind="failed" if result.get("isError") else "answered", text=text)


async def read_events(reply: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream with their ids; the empty one at its beginning as None."""
    event_id, data = "", ""
    async for raw in reply.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data:"):
            data = line.removeprefix("data:").strip()
        elif not line and (event_id or data):
            yield event_id, orjson.loads(data) if data else None
            event_id, data = "", ""
