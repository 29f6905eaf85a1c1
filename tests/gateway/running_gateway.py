"""A gateway as its users meet it: the real service on a free port, a scripted model and MCP servers behind it.

Whatever it answers is held against the Open Responses contract, where that applies, and against its own document.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from gateway.documented_gateway import check_traffic, fail_with
from gateway.wire.open_responses_contract import contract_problems, event_contract_problems
from openai import AsyncOpenAI
from providers.model_exchange import model_at

from holodeck.gateway.auth.callers import hash_key
from holodeck.gateway.backends import build_backends
from holodeck.gateway.reload import ConfigurationReader
from holodeck.gateway.service import Service
from holodeck.testing import FaultyMCPServer, PromptCache, ScriptedModel
from holodeck.testing.model.scripted import DialectName, Received, ScriptedServer

MODEL = "demo"
ANY_KEY = "hd-anybody"


@dataclass(kw_only=True)
class RunningGateway:
    """A gateway that answers, and what stands behind it."""

    url: str
    service: Service
    model: ScriptedServer
    file: Path
    _stack: AsyncExitStack = field(repr=False)
    _parsed: list[tuple[Received, dict[str, Any]]] = field(default_factory=list, repr=False)

    @property
    def model_requests(self) -> list[dict[str, Any]]:
        """What the model has received, request by request. Each is parsed once."""
        received, parsed = self.model.received, self._parsed
        if any(one is not each for (one, _), each in zip(parsed, received, strict=False)):
            # The test has emptied the list.
            parsed.clear()
        parsed += [(each, each.json) for each in received[len(parsed) :]]
        return [body for _, body in parsed[: len(received)]]

    async def reload(self, **config: Any) -> bool:
        """Change these sections of the gateway file and have it read again. False: it is refused."""
        self.file.write_bytes(orjson.dumps(orjson.loads(self.file.read_bytes()) | config))
        assert self.service.reloader is not None
        return await self.service.reloader.reload()

    async def openai_client(self, key: str = ANY_KEY, **options: Any) -> AsyncOpenAI:
        """The stock client, closed with the gateway. It does not try again unless told to."""
        client = AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, **{"max_retries": 0, **options})
        return await self._stack.enter_async_context(client)

    async def http_client(self, key: str = ANY_KEY) -> aiohttp.ClientSession:
        """A plain HTTP client, for what the stock one hides."""
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        session = aiohttp.ClientSession(self.url, headers=headers)
        return await self._stack.enter_async_context(session)

    async def send(self, method: str, path: str, body: Any = None, *, key: str = ANY_KEY) -> tuple[int, Any]:
        """One request; the status and the JSON of its answer."""
        data = None if body is None else orjson.dumps(body)
        session = await self.http_client(key)
        async with session.request(method, path, data=data) as answer:
            text = await answer.read()
        if answer.content_type != "application/json" or not text:
            return answer.status, text
        said = orjson.loads(text)
        if _is_portable(said):
            assert not contract_problems("ResponseResource", said)
        return answer.status, said

    async def stream(self, path: str, body: Any = None, *, key: str = ANY_KEY) -> list[dict[str, Any]]:
        """The events of a whole stream. Without a body it is a GET."""
        session = await self.http_client(key)
        data = None if body is None else orjson.dumps(body)
        async with session.request("GET" if body is None else "POST", path, data=data) as answer:
            text = (await answer.read()).decode()
        assert answer.status == 200, text
        assert answer.headers["content-type"] == "text/event-stream"
        events = parse_events(text)
        if _is_portable(events[-1].get("response")):
            assert not [problem for event in events for problem in event_contract_problems(event)]
        return events


def _is_portable(said: Any) -> bool:
    """True for a response to which the Open Responses contract applies: it has no word of MCP servers."""
    if not isinstance(said, dict) or said.get("object") != "response" or "tools" not in said:
        return False
    return all(tool["type"] == "function" for tool in said["tools"]) and not any(
        item["type"].startswith("mcp_") for item in said["output"]
    )


def parse_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream as it was written, which is checked to be well-formed."""
    *frames, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


@asynccontextmanager
async def run_gateway(
    folder: Path,
    model: ScriptedModel | None = None,
    *,
    mcp: Mapping[str, FaultyMCPServer] | None = None,
    keys: Sequence[str] = (),
    admins: Sequence[str] = (),
    scopes: Mapping[str, Mapping[str, Any]] | None = None,
    environ: Mapping[str, str] | None = None,
    dialect: DialectName = "chat",
    price: Mapping[str, float] | None = None,
    budgets: Mapping[str, Mapping[str, Any]] | None = None,
    prompt_cache: PromptCache | None = None,
    is_checked: bool = True,
    **config: Any,
) -> AsyncIterator[RunningGateway]:
    """Serve a scripted model as `demo`, with these MCP servers by name. `config` is more of the gateway file.

    `scopes`: what keys allow, by key.
    `price`: of the model. `budgets`: of keys, by key.
    `prompt_cache`: of the model, in the dialect `anthropic`.
    `dialect`: the API of the model. That of Responses is OpenAI's own, so no file can name another address for it.
    `is_checked`: what it answers is held against its document.
    What it does is trusted, now and after a reload. It does not watch its file.
    """
    # The model ends last: a connection that the gateway is opening while the server ends would never be closed.
    async with (
        (model or ScriptedModel()).serve(dialect, prompt_cache=prompt_cache) as scripted,
        AsyncExitStack() as clients,
    ):
        file = folder / "gateway.yaml"
        written = gateway_config(scripted.url, mcp or {}, keys, admins, scopes, price)
        for entry in written["keys"]:
            entry["budget"] = (budgets or {}).get(entry["name"])
        file.write_bytes(orjson.dumps(written | config))
        reader = ConfigurationReader(file, environ={"HOLODECK_TRUST": "all", **(environ or {})}, home=folder)
        loaded = reader.read()
        backends = build_backends(loaded, environ=environ or {})
        if dialect != "chat":
            model_there = replace(backends.by_name[MODEL], provider=model_at(scripted.url, dialect))
            backends = replace(backends, by_name={**backends.by_name, MODEL: model_there})
        service = Service(loaded, backends, reader=reader)
        problems = check_traffic(service.app) if is_checked else []
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(service.run(ready.set_result))
        running.add_done_callback(lambda _: ready.cancel())
        try:
            url = await ready
        except asyncio.CancelledError:
            await running
            raise
        try:
            yield RunningGateway(url=url, service=service, model=scripted, file=file, _stack=clients)
        finally:
            await clients.aclose()
            service.stop()
            await running
        assert service.configurations.current.uses.count == 0, "every request and run has counted itself out"
        fail_with(problems)


def gateway_config(
    endpoint: str,
    mcp: Mapping[str, FaultyMCPServer],
    keys: Sequence[str] = (),
    admins: Sequence[str] = (),
    scopes: Mapping[str, Mapping[str, Any]] | None = None,
    price: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """What a gateway file says, as data; JSON is YAML."""
    llm: dict[str, Any] = {"provider": "openai_compatible", "name": "scripted", "endpoint": endpoint}
    if price is not None:
        llm["price"] = dict(price)
    return {
        "listen": {"port": 0},
        "models": [{"name": MODEL, "model": llm}],
        "mcp_servers": [
            {"name": name, "type": "mcp", "description": name, "transport": "http", "url": server.url}
            for name, server in mcp.items()
        ],
        "keys": [
            {
                "name": key,
                "hash": hash_key(key),
                "role": "operator" if key in admins else None,
                "allow": (scopes or {}).get(key),
            }
            for key in dict.fromkeys([*keys, *admins, *(scopes or {})])
        ],
        "limits": {"drain_seconds": 0},
        "background": {"durable": False},
        "reload": {"watch": False},
    }
