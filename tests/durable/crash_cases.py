"""A background response, a gateway that dies during it, and the next one: the events and calls of both."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from durable.crashing_gateway import AT, PROGRAM
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from gateway.running_gateway import gateway_config, parse_events

from holodeck.testing import FaultyMCPServer, ScriptedModel, say
from holodeck.testing.model.script import Turn, status
from holodeck.testing.model.scripted import Received, ScriptedServer

ENDED = ("completed", "requires_action", "failed", "cancelled", "incomplete")
POLL = 0.02
CASE_SECONDS = 150.0  # a machine with other things to do takes long to start a process
STAND_IN = "second"
UNKNOWN = "Whether the call took effect is unknown"
Script = Callable[[list[dict[str, Any]]], Turn]
"""A turn for the messages that the model is given."""


def mcp_server_entry(url: str, **more: Any) -> dict[str, Any]:
    """An MCP server as a gateway file has it."""
    return {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": url, **more}


def tool_answers(messages: Sequence[dict[str, Any]]) -> list[str]:
    """What the tools have answered by now, as the model got it."""
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


def fail_first_turn(received: Received) -> Turn:
    """A turn of a model that cannot answer the first one of a run, and could answer the others."""
    return say("usual") if tool_answers(received.json["messages"]) else status(503, retry_after="0")


def write_models(usual: str, stand_in: str) -> list[dict[str, Any]]:
    """The models of a gateway file: one at the first endpoint, with a stand-in at the second."""
    models: list[dict[str, Any]] = gateway_config(usual, {})["models"]
    entry = {"provider": "openai_compatible", "name": STAND_IN, "endpoint": stand_in}
    models[0]["model"]["fallback"] = [entry]
    return models


async def wait_ended(served: GatewayProcess, response_id: str) -> dict[str, Any]:
    """A response, once it has ended."""
    while True:
        status, found, _ = await served.send("GET", f"/v1/responses/{response_id}")
        assert status == 200, found
        if found["status"] in ENDED:
            return dict(found)
        await asyncio.sleep(POLL)


async def wait_model_requests(model: ScriptedServer, times: int) -> None:
    """Wait until the model has received this many requests."""
    while len(model.received) < times:  # noqa: ASYNC110 - another process sends them
        await asyncio.sleep(POLL)


async def read_stream(served: GatewayProcess, response_id: str, after: int = -1) -> list[dict[str, Any]]:
    """The stream of a response after a number, to its end."""
    path = f"/v1/responses/{response_id}?stream=true&starting_after={after}"
    return parse_events((await served.send("GET", path))[1])


async def read_stream_until(served: GatewayProcess, response_id: str, until: str = "") -> list[dict[str, Any]]:
    """A stream up to the first event of a type or with a delta; without one, for as long as its gateway lives."""
    events: list[dict[str, Any]] = []
    try:
        async with served.session.get(f"{served.url}/v1/responses/{response_id}?stream=true") as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    events.append(orjson.loads(line.removeprefix(b"data: ")))
                    if until in (events[-1]["type"], events[-1].get("delta")):
                        break
    except aiohttp.ClientError:
        pass
    return events


def list_standing(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The finished items of a stream, without those that a later `response.in_progress` does not have any more."""
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["type"] == "response.in_progress":
            standing = [item["id"] for item in event["response"]["output"]]
            items = {index: item for index, item in items.items() if item["id"] in standing}
        elif event["type"] == "response.output_item.done":
            items[event["output_index"]] = event["item"]
    return [items[index] for index in sorted(items)]


@dataclass(kw_only=True)
class SurvivedResponse:
    """The result of one response whose gateway died."""

    id: str = ""
    events_before: list[dict[str, Any]] = field(default_factory=list)
    """The events that a client had when it died."""
    response: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    events_after: list[dict[str, Any]] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    """The text of every call that reached a tool."""
    keys: list[str] = field(default_factory=list)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    """What the model was sent, request by request."""
    model_tool_answers: list[str] = field(default_factory=list)
    """The answers of tools that the model was given last."""

    def check_stream(self) -> None:
        """Check that every reader gets the same stream, and that it agrees with the response."""
        assert [event["sequence_number"] for event in self.events] == list(range(len(self.events)))
        assert self.events[: len(self.events_before)] == self.events_before
        assert self.events[len(self.events_before) :] == self.events_after
        assert self.events[-1]["response"] == self.response
        assert list_standing(self.events) == self.response["output"]

    def check_prompts(self) -> None:
        """Check that each prompt begins with the one before it, which the provider has in its cache."""
        for before, after in pairwise(self.prompts):
            assert after["tools"] == before["tools"]
            assert after["messages"][: len(before["messages"])] == before["messages"]

    def check_once(self) -> None:
        """No item was announced or done twice, and every delta belongs to what its item became."""
        for kind in ("added", "done"):
            places = [e["output_index"] for e in self.events if e["type"] == f"response.output_item.{kind}"]
            assert sorted(places) == list(range(len(self.response["output"])))
        texts: dict[str, str] = {}
        for event in self.events:
            if event["type"].endswith(".delta"):
                texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
            elif event["type"].endswith((".arguments.done", "_arguments.done")):
                assert texts.get(event["item_id"], "") == event["arguments"]
            elif event["type"] == "response.output_text.done":
                assert texts[event["item_id"]] == event["text"]


@dataclass(frozen=True, kw_only=True)
class CrashCase:
    """One response, and where its gateway dies."""

    name: str
    """The model is told it, and so knows by which script it answers."""
    point: str
    script: Script
    body: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[GatewayProcess], Awaitable[Mapping[str, Any]]] | None = None
    """Awaited before; returns more of the request."""
    inspect: Callable[[GatewayProcess, SurvivedResponse], Awaitable[None]] | None = None
    """Awaited after."""


async def run_crash_cases(
    folder: Path, cases: Sequence[CrashCase], *, has_stand_in: bool = False, database_url: str = "", **server: Any
) -> dict[str, SurvivedResponse]:
    """The result of each case: its gateway dies, the next one finishes it, then dies in the middle of the next case.

    `has_stand_in`: the scripts are those of a stand-in, whose usual model fails in the first turn of each run.
    `database_url`: another gateway serves with the same PostgreSQL, and finishes every case.
    """
    by_name = {case.name: case for case in cases}
    model = ScriptedModel(
        lambda received: _case_of(by_name, received.json["messages"]).script(received.json["messages"])
    )
    found: dict[str, SurvivedResponse] = {}
    async with (
        FaultyMCPServer() as mcp,
        model.serve() as scripted,
        ScriptedModel(fail_first_turn).serve() as usual,
    ):
        config: dict[str, Any] = {"models": write_models(usual.url, scripted.url)} if has_stand_in else {}
        if database_url:
            config["storage"] = {"url": "${DATABASE_URL}"}
        servers = [mcp_server_entry(mcp.url, **server)]
        file = write_gateway_file(folder, scripted.url, mcp_servers=servers, background={"durable": True}, **config)
        if database_url:
            await _finish_by_other(file, cases, found, {"DATABASE_URL": database_url})
        else:
            await _finish_by_next(file, cases, found)
        for name, survivor in found.items():
            calls = [one for one in mcp.calls() if name in str(one.params["arguments"])]
            survivor.executed = [one.params["arguments"]["text"].removeprefix(f"{name} ") for one in calls]
            survivor.keys = [one.params.get("_meta", {}).get("holodeck/idempotency-key", "") for one in calls]
            survivor.prompts = [
                one.json for one in scripted.received if _case_of(by_name, one.json["messages"]).name == name
            ]
            survivor.model_tool_answers = tool_answers(survivor.prompts[-1]["messages"])
    return found


async def _finish_by_next(file: Path, cases: Sequence[CrashCase], found: dict[str, SurvivedResponse]) -> None:
    """Let a gateway die in the middle of each case, after it has finished the one before."""

    async def find_latest() -> str:
        return latest_response_id(file.parent)

    crashed: CrashCase | None = None
    for case in (*cases, None):
        environ = {AT: case.point if case is not None else ""}
        async with (
            asyncio.timeout(CASE_SECONDS),
            run_gateway_process(file, program=PROGRAM, environ=environ) as served,
        ):
            if crashed is not None:
                await _collect_finished(served, crashed, found[crashed.name])
            if case is not None:
                found[case.name] = await _start_and_crash(served, case, find_latest)
            crashed = case


async def _finish_by_other(
    file: Path, cases: Sequence[CrashCase], found: dict[str, SurvivedResponse], environ: Mapping[str, str]
) -> None:
    """Let a gateway die in the middle of each case, which another one finishes that runs all the time."""
    async with run_gateway_process(file, environ=environ) as other:

        async def find_latest() -> str:
            _, page, _ = await other.send("GET", "/v1/runs?limit=1")
            return str(page["data"][0]["id"])

        for case in cases:
            async with asyncio.timeout(CASE_SECONDS):
                async with run_gateway_process(file, program=PROGRAM, environ={**environ, AT: case.point}) as served:
                    found[case.name] = await _start_and_crash(served, case, find_latest)
                await _collect_finished(other, case, found[case.name])


def _case_of(cases: Mapping[str, CrashCase], messages: Sequence[dict[str, Any]]) -> CrashCase:
    questions = [str(message["content"]) for message in messages if message["role"] == "user"]
    return next(cases[text] for text in reversed(questions) if text in cases)


async def _start_and_crash(
    served: GatewayProcess, case: CrashCase, find_latest: Callable[[], Awaitable[str]]
) -> SurvivedResponse:
    """A response whose gateway has died. `find_latest`: the id of the one that was stored last."""
    survivor = SurvivedResponse()
    more = await case.prepare(served) if case.prepare is not None else {}
    try:
        body = {"model": "demo", "input": case.name, "background": True, **case.body, **more}
        status, begun, _ = await served.send("POST", "/v1/responses", body)
        assert status == 200, begun
        survivor.id = begun["id"]
    except aiohttp.ClientError:  # no client has seen it
        survivor.id = await find_latest()
    else:
        survivor.events_before = await read_stream_until(served, survivor.id)
    assert await served.wait_exit() == -signal.SIGKILL, f"{case.name} never reached '{case.point}'"
    return survivor


async def _collect_finished(served: GatewayProcess, case: CrashCase, survivor: SurvivedResponse) -> None:
    try:
        survivor.response = await wait_ended(served, survivor.id)
    except asyncio.CancelledError:
        raise AssertionError(f"{case.name} is not finished: {''.join(served.stderr_lines)}") from None
    survivor.events = await read_stream(served, survivor.id)
    last = survivor.events_before[-1]["sequence_number"] if survivor.events_before else -1
    survivor.events_after = await read_stream(served, survivor.id, last)
    if case.inspect is not None:
        await case.inspect(served, survivor)


def latest_response_id(folder: Path) -> str:
    """The id of the response that was stored last."""
    database = sqlite3.connect(next(folder.glob("**/*.db")))
    try:
        found = database.execute("SELECT id FROM responses ORDER BY created_at DESC, rowid DESC LIMIT 1").fetchone()
        return str(found[0])
    finally:
        database.close()
