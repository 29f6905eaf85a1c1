"""A background response, a gateway that dies while it is made, and the next one: what was told, and what was done."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from durable.crashing_gateway import AT, PROGRAM
from gateway.process import Served, process_of, write_file
from gateway.stand import events_of

from holodeck.testing import FaultyMCPServer, ScriptedModel
from holodeck.testing.script import Turn
from holodeck.testing.scripted_server import ScriptedServer

ENDED = ("completed", "failed", "cancelled", "incomplete")
POLL = 0.02
UNKNOWN = "Whether the call took effect is unknown"
Script = Callable[[list[dict[str, Any]]], Turn]
"""A turn for the messages that the model is given."""


def tools(url: str, **more: Any) -> dict[str, Any]:
    """An MCP server as a gateway file has it."""
    return {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": url, **more}


def answers(messages: Sequence[dict[str, Any]]) -> list[str]:
    """What the tools have answered by now, as the model got it."""
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


async def ended(served: Served, response_id: str) -> dict[str, Any]:
    """A response, once it has come to an end."""
    while True:
        status, found, _ = await served.send("GET", f"/v1/responses/{response_id}")
        assert status == 200, found
        if found["status"] in ENDED:
            return dict(found)
        await asyncio.sleep(POLL)


async def asked(model: ScriptedServer, times: int) -> None:
    """Wait until the model has been asked so many times."""
    while len(model.received) < times:  # noqa: ASYNC110 - it is asked by another process
        await asyncio.sleep(POLL)


async def stream(served: Served, response_id: str, after: int = -1) -> list[dict[str, Any]]:
    """The stream of a response after a number, to its end."""
    path = f"/v1/responses/{response_id}?stream=true&starting_after={after}"
    return events_of((await served.send("GET", path))[1])


async def heard(served: Served, response_id: str, until: str = "") -> list[dict[str, Any]]:
    """A stream up to the first event of a type; without one, for as long as its gateway lives."""
    events: list[dict[str, Any]] = []
    try:
        async with served.session.get(f"{served.url}/v1/responses/{response_id}?stream=true") as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    events.append(orjson.loads(line.removeprefix(b"data: ")))
                    if events[-1]["type"] == until:
                        break
    except aiohttp.ClientError:
        pass
    return events


@dataclass(kw_only=True)
class Survivor:
    """What came of one response whose gateway died."""

    before: list[dict[str, Any]] = field(default_factory=list)
    """The events that a client had when it died."""
    found: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    rest: list[dict[str, Any]] = field(default_factory=list)
    executed: list[dict[str, Any]] = field(default_factory=list)
    """The arguments of every call that reached a tool."""
    keys: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """The answers of tools that the model was given last."""

    def check_stream(self) -> None:
        """One stream, whoever reads it and in however many pieces; and it says what the response says."""
        assert [event["sequence_number"] for event in self.events] == list(range(len(self.events)))
        assert self.events[: len(self.before)] == self.before
        assert self.events[len(self.before) :] == self.rest
        assert self.events[-1]["response"] == self.found
        done = {e["output_index"]: e["item"] for e in self.events if e["type"] == "response.output_item.done"}
        assert [done[place] for place in sorted(done)] == self.found["output"]

    def check_once(self) -> None:
        """No item was announced or done twice, and every delta belongs to what its item became."""
        for kind in ("added", "done"):
            places = [e["output_index"] for e in self.events if e["type"] == f"response.output_item.{kind}"]
            assert sorted(places) == list(range(len(self.found["output"])))
        texts: dict[str, str] = {}
        for event in self.events:
            if event["type"].endswith(".delta"):
                texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
            elif event["type"].endswith((".arguments.done", "_arguments.done")):
                assert texts.get(event["item_id"], "") == event["arguments"]
            elif event["type"] == "response.output_text.done":
                assert texts[event["item_id"]] == event["text"]


@asynccontextmanager
async def crashing(file: Path, point: str) -> AsyncIterator[Served]:
    """A gateway that ends itself at this boundary; leaving waits until it has."""
    async with process_of(file, program=PROGRAM, environ={AT: point, "PYTHONPATH": ""}) as served:
        yield served
        assert await served.ended() == -9, f"it never came to '{point}': {served.said}"


async def crash(
    folder: Path,
    point: str,
    script: Script,
    *,
    body: dict[str, Any] | None = None,
    prepare: Callable[[Served], Any] | None = None,
    look: Callable[[Served, Survivor], Any] | None = None,
    server: dict[str, Any] | None = None,
) -> Survivor:
    """Have a response made by a gateway that dies at a boundary, and finished by the next one.

    `prepare` is awaited first, and returns more of the request; `look` is awaited at the end.
    """
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 - before anything else happens
    model = ScriptedModel(lambda received: script(received.json["messages"]))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        declared = [tools(mcp.url, **(server or {}))]
        file = write_file(folder, scripted.url, mcp_servers=declared, background={"durable": True})
        survivor = Survivor()
        async with crashing(file, point) as served:
            more = await prepare(served) if prepare is not None else {}
            request = {"background": True, **(body or {}), **more}
            try:
                response_id = (await served.ask(**request))[1]["id"]
            except aiohttp.ClientError:  # nobody was told of it, and it is finished all the same
                response_id = ""
            else:
                survivor.before = await heard(served, response_id)
        async with process_of(file) as served:
            response_id = response_id or latest(folder)
            survivor.found = await ended(served, response_id)
            survivor.events = await stream(served, response_id)
            last = survivor.before[-1]["sequence_number"] if survivor.before else -1
            survivor.rest = await stream(served, response_id, last)
            if look is not None:
                await look(served, survivor)
        survivor.executed = [one.params["arguments"] for one in mcp.calls()]
        survivor.keys = [one.params.get("_meta", {}).get("holodeck/idempotency-key", "") for one in mcp.calls()]
        survivor.told = answers(scripted.received[-1].json["messages"])
    return survivor


def latest(folder: Path) -> str:
    """The id of the response that was kept last."""
    database = sqlite3.connect(next(folder.glob("**/*.db")))
    try:
        found = database.execute("SELECT id FROM responses ORDER BY created_at DESC, rowid DESC LIMIT 1").fetchone()
        return str(found[0])
    finally:
        database.close()
