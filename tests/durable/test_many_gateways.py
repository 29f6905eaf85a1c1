"""Several gateways on one PostgreSQL are one: any of them answers for any response, and none is needed."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import (
    STAND_IN,
    UNKNOWN,
    fail_first_turn,
    mcp_server_entry,
    read_stream,
    read_stream_until,
    tool_answers,
    wait_ended,
    wait_model_requests,
    write_models,
)
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from storage.postgres_server import PostgresServer

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import ScriptedServer

SECONDS = 180.0
DRAIN = 30.0


@dataclass
class GatewayGroup:
    """Gateways on one database, and the servers behind them."""

    gateways: list[GatewayProcess]
    mcp: FaultyMCPServer
    model: ScriptedServer
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """The model waits for it in every answer that is to be watched."""

    def calls(self, name: str) -> list[str]:
        """The arguments that a tool received for a response, in order."""
        texts = [str(one.params["arguments"].get("text", "")) for one in self.mcp.calls()]
        return [text.removeprefix(f"{name} ") for text in texts if text.startswith(name)]

    def tool_outputs(self, name: str) -> list[str]:
        """The tool outputs in the last model request of a response."""
        return tool_answers([m for m in (one.json["messages"] for one in self.model.received) if _name(m) == name][-1])


class Script:
    """How the model answers, by the name that the user gave."""

    def __init__(self, gate: asyncio.Event) -> None:
        self._gate = gate
        self._times: Counter[tuple[str, int]] = Counter()

    def __call__(self, received: Any) -> Turn:
        messages = received.json["messages"]
        name, known = _name(messages), len(tool_answers(messages))
        self._times[name, known] += 1
        is_first = self._times[name, known] == 1
        if name.startswith("<watched"):
            return [say("Hel"), wait(self._gate), say("lo")]
        if name == "<slow>":
            return call("slow", seconds=60)
        if name == "<long>" and known == 0:
            return call("slow", seconds=2)
        if name.startswith("<two") and known < 2:
            return call("echo", text=f"{name} {known}")
        if name.startswith("<two") and is_first:
            return [say("Now"), wait(self._gate), say(" done")]
        return say("done")


def _name(messages: list[dict[str, Any]]) -> str:
    return str(messages[0]["content"])


@asynccontextmanager
async def gateways(
    folder: Path, url: str, count: int, *, usual: str = "", **config: Any
) -> AsyncIterator[GatewayGroup]:
    """So many of them, with one file and one database. `usual`: where the model is for which theirs stands in."""
    gate = asyncio.Event()
    async with AsyncExitStack() as stack:
        mcp = await stack.enter_async_context(FaultyMCPServer())
        model = await stack.enter_async_context(ScriptedModel(Script(gate)).serve())
        file = write_gateway_file(
            folder,
            model.url,
            **{
                "mcp_servers": [mcp_server_entry(mcp.url)],
                "storage": {"url": "${DATABASE_URL}"},
                "background": {"durable": True},
                "limits": {"drain_seconds": DRAIN},
                **({"models": write_models(usual, model.url)} if usual else {}),
                **config,
            },
        )
        serving = [
            stack.enter_async_context(run_gateway_process(file, environ={"DATABASE_URL": url})) for _ in range(count)
        ]
        yield GatewayGroup(gateways=list(await asyncio.gather(*serving)), mcp=mcp, model=model, gate=gate)


async def start_response(served: GatewayProcess, name: str) -> str:
    """The id of a background response."""
    status, made, _ = await served.create_response(name, background=True)
    assert status == 200, made
    return str(made["id"])


async def check_whole(served: GatewayProcess, response_id: str) -> dict[str, Any]:
    """A response, checked to have a stream without gaps that agrees with it."""
    found, events = await wait_ended(served, response_id), await read_stream(served, response_id)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"] == found
    done = {e["output_index"]: e["item"] for e in events if e["type"] == "response.output_item.done"}
    # What a gateway had begun of a turn when it ended is void, and ends as incomplete.
    void = [index for index, item in done.items() if item["status"] == "incomplete" and item not in found["output"]]
    assert [done[index] for index in sorted(done) if index not in void] == found["output"]
    return found


@pytest.mark.proves("D-32", "D-28", "D-16")
@async_test(SECONDS)
async def test_three_gateways_serve_each_others_responses_until_one_remains(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = await asyncio.to_thread(postgres.new_database)
    async with gateways(tmp_path, url, 3) as group:
        first, second, third = group.gateways

        watched = await start_response(second, "<watched>")
        live = asyncio.create_task(read_stream(first, watched))
        before = await read_stream_until(first, watched, "response.output_text.delta")
        _, polled, _ = await first.send("GET", f"/v1/responses/{watched}")
        assert polled["status"] == "in_progress"

        unwanted, stuck, deleted_id = [
            await start_response(second, name) for name in ("<watched 2>", "<slow>", "<watched 3>")
        ]
        await group.mcp.received("tools/call")
        await read_stream_until(second, unwanted, "response.output_text.delta")
        await read_stream_until(second, deleted_id, "response.output_text.delta")
        group.model.left.clear()
        _, cancelled, _ = await first.send("POST", f"/v1/responses/{unwanted}/cancel")
        assert cancelled["status"] == "cancelled"
        await group.model.left.wait()
        _, cancelled, _ = await first.send("POST", f"/v1/responses/{stuck}/cancel")
        assert cancelled["status"] == "cancelled"
        group.model.left.clear()
        status, deleted, _ = await first.send("DELETE", f"/v1/responses/{deleted_id}")
        assert (status, deleted["deleted"]) == (200, True)
        await group.model.left.wait()

        group.gate.set()
        events = await live
        assert events == await read_stream(second, watched) == await read_stream(third, watched)
        assert events[: len(before)] == before
        assert (await check_whole(first, watched))["output"][0]["content"][0]["text"] == "Hello"
        assert (await second.send("GET", f"/v1/responses/{deleted_id}"))[0] == 404

        group.gate.clear()
        killed = await start_response(second, "<two killed>")
        seen = await read_stream_until(first, killed, "response.output_text.delta")
        following = asyncio.create_task(read_stream(third, killed))
        second.stop(signal.SIGKILL)
        found = await check_whole(first, killed)
        assert found["status"] == "completed"
        assert group.calls("<two killed>") == ["0", "1"]
        events = await following
        assert events[: len(seen)] == seen
        assert events[-1]["response"] == found

        calls = len(group.mcp.calls())
        handed = await start_response(third, "<long>")
        await group.mcp.received("tools/call", count=calls + 1)
        third.stop(signal.SIGTERM)
        assert await third.wait_exit() == 0
        found = await check_whole(first, handed)
        assert found["status"] == "completed"
        assert UNKNOWN not in group.tool_outputs("<long>")[0], "the call was finished before the gateway ended"
        assert (await first.send("GET", f"/v1/responses/{deleted_id}"))[0] == 404


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_another_gateway_goes_on_with_the_stand_in_of_a_killed_one(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = await asyncio.to_thread(postgres.new_database)
    async with (
        ScriptedModel(fail_first_turn).serve() as usual,
        gateways(tmp_path, url, 2, usual=usual.url) as group,
    ):
        killed, other = group.gateways
        response_id = await start_response(killed, "<two>")
        await read_stream_until(other, response_id, "response.output_text.delta")
        killed.stop(signal.SIGKILL)
        found = await check_whole(other, response_id)
        assert (found["status"], found["model"], group.calls("<two>")) == ("completed", STAND_IN, ["0", "1"])
        assert found["output"][-1]["content"][0]["text"] == "done"
        assert not any(tool_answers(received.json["messages"]) for received in usual.received)


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_database_that_restarts_under_two_gateways_loses_nothing(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = await asyncio.to_thread(postgres.new_database)
    async with gateways(tmp_path, url, 2) as group:
        names = [f"<two {number}>" for number in range(4)]
        made = [await start_response(group.gateways[number % 2], name) for number, name in enumerate(names)]
        for response_id in made:
            await read_stream_until(group.gateways[0], response_id, "response.output_text.delta")
        calls = len(group.mcp.calls())
        acting = await start_response(group.gateways[0], "<long>")
        await group.mcp.received("tools/call", count=calls + 1)
        await asyncio.to_thread(postgres.stop)
        await asyncio.to_thread(postgres.start)
        group.gate.set()
        for name, response_id in zip(names, made, strict=True):
            assert (await check_whole(group.gateways[1], response_id))["status"] == "completed"
            assert group.calls(name) == ["0", "1"]
            assert group.tool_outputs(name) == [f"{name} 0", f"{name} 1"]
        assert (await check_whole(group.gateways[1], acting))["status"] == "completed"
        assert len(group.mcp.calls()) == calls + 1, "the call that was under way was not made again"


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_queued_response_is_run_by_whichever_gateway_has_a_free_slot(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = await asyncio.to_thread(postgres.new_database)
    async with gateways(tmp_path, url, 2, background={"durable": True, "at_once": 1}) as group:
        busy, idle = group.gateways
        made = [await start_response(busy, f"<watched {number}>") for number in range(5)]
        while "holodeck_background_running 1" not in (await idle.send("GET", "/metrics"))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await wait_model_requests(group.model, 2)
        group.gate.set()
        for response_id in made:
            assert (await check_whole(idle, response_id))["status"] == "completed"
        assert len(group.model.received) == len(made), "each was begun once"
