"""MCP over plain HTTP, message by message, for what a client library hides: statuses, headers, events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from gateway.running_gateway import ANY_KEY, RunningGateway

BOTH = "application/json, text/event-stream"
META = "io.modelcontextprotocol/"


class RawClient:
    """One client with its session. `version`: of the protocol, as headers and messages name it."""

    def __init__(self, http: aiohttp.ClientSession, path: str, version: str) -> None:
        self._http = http
        self._path = path
        self.version = version
        self.session_id: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        session = {} if self.session_id is None else {"mcp-session-id": self.session_id}
        return {"accept": BOTH, "mcp-protocol-version": self.version, **session}

    @asynccontextmanager
    async def post(self, message: Any, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self._http.post(self._path, data=orjson.dumps(message), headers=sent) as reply:
            yield reply

    async def send(self, message: Any, **headers: str) -> tuple[int, Any]:
        """Post a message; the status and the JSON of the reply, which must not be a stream."""
        async with self.post(message, **headers) as reply:
            body = await reply.read()
            return reply.status, orjson.loads(body) if body else None

    async def request(self, method: str, params: Mapping[str, Any] | None = None, request_id: int = 1) -> Any:
        """The result of a request, or its error."""
        _, answer = await self.send(build_request(method, params, request_id))
        return answer.get("result", answer.get("error"))

    async def request_modern(
        self, method: str, params: Mapping[str, Any] | None = None, capabilities: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of a request of 2026-07-28, or its error. Its client must be of that version."""
        message, headers = build_modern_request(method, params, capabilities)
        _, answer = await self.send(message, **headers)
        return answer.get("result", answer.get("error"))

    async def initialize(self, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
        params = {
            "protocolVersion": self.version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        async with self.post(build_request("initialize", params)) as reply:
            assert reply.status == 200, await reply.text()
            self.session_id = reply.headers["mcp-session-id"]
            result: dict[str, Any] = (await reply.json())["result"]
        assert (await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"}))[0] == 202
        return result

    @asynccontextmanager
    async def open_stream(self, last_event_id: str | None = None) -> AsyncIterator[aiohttp.ClientResponse]:
        resumed = {} if last_event_id is None else {"last-event-id": last_event_id}
        async with self._http.get(self._path, headers={**self.headers, **resumed}) as reply:
            yield reply

    async def end(self) -> int:
        async with self._http.delete(self._path, headers=self.headers) as reply:
            return reply.status


@asynccontextmanager
async def raw_client(
    gateway: RunningGateway, *, key: str = ANY_KEY, path: str = "/mcp", version: str = "2025-11-25"
) -> AsyncIterator[RawClient]:
    yield RawClient(await gateway.http_client(key), path, version)


def build_request(method: str, params: Mapping[str, Any] | None = None, request_id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def build_modern_request(
    method: str, params: Mapping[str, Any] | None = None, capabilities: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """A request of 2026-07-28 with what each of them must have, and its headers."""
    sent = dict(params or {})
    own = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": capabilities or {}}
    sent["_meta"] = {**sent.get("_meta", {}), **own}
    target = sent.get("name", sent.get("uri"))
    headers = {"mcp_method": method} | ({} if target is None else {"mcp_name": target})
    return build_request(method, sent), headers


def build_call(name: str, request_id: int = 1, **arguments: Any) -> dict[str, Any]:
    meta = {"progressToken": request_id}
    return build_request("tools/call", {"name": name, "arguments": arguments, "_meta": meta}, request_id)


async def read_events(reply: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream with their ids; the empty one at its beginning as None."""
    event_id, data = "", ""
    async for raw in reply.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data:"):
            data = line.removeprefix("data:").strip()
        elif not line and event_id:
            yield event_id, orjson.loads(data) if data else None
            event_id, data = "", ""
