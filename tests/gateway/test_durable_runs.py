"""A durable background response is finished even if its gateway is killed during the run."""

from __future__ import annotations

import asyncio
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from gateway.running_gateway import parse_events

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.scripted import ScriptedServer

SECONDS = 120.0  # two processes start, possibly on a busy machine
ENDED = ("completed", "failed", "cancelled", "incomplete")


def mcp_server_entry(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": url, **more}


async def wait_ended(served: GatewayProcess, response_id: str) -> dict[str, Any]:
    """Wait until a response is finished and return it."""
    while True:
        _, found, _ = await served.send("GET", f"/v1/responses/{response_id}")
        if found["status"] in ENDED:
            return dict(found)
        await asyncio.sleep(0.02)


async def wait_model_requests(model: ScriptedServer, times: int) -> None:
    """Wait until the model has received `times` requests."""
    while len(model.received) < times:  # noqa: ASYNC110 - another process sends the requests
        await asyncio.sleep(0.02)


async def read_stream(served: GatewayProcess, response_id: str, after: int = -1) -> list[dict[str, Any]]:
    """The events of a response after a sequence number."""
    path = f"/v1/responses/{response_id}?stream=true&starting_after={after}"
    return parse_events((await served.send("GET", path))[1])


async def read_stream_until(served: GatewayProcess, response_id: str, until: str) -> list[dict[str, Any]]:
    """The events of a response up to the first one of a type; then disconnect."""
    path = f"{served.url}/v1/responses/{response_id}?stream=true"
    lines: list[bytes] = []
    async with served.session.get(path) as answer:
        async for line in answer.content:
            lines.append(line)
            if line.startswith(b"data: ") and f'"type":"{until}"'.encode() in line:
                break
    return parse_events(b"".join(lines).decode() + "\ndata: [DONE]\n\n")


@pytest.mark.proves("D-32", "D-28")
@async_test(SECONDS)
async def test_a_run_continues_from_its_last_finished_step_after_a_kill(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel(call("echo", text="one"), call("echo", text="two"), [wait(never)], say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response("Say it twice", background=True)
            await wait_model_requests(scripted, 3)
            before = await read_stream_until(served, begun["id"], "response.in_progress")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
            events = await read_stream(served, begun["id"])
            counted = (await served.send("GET", "/metrics"))[1].splitlines()
    assert found["status"] == "completed"
    assert found["output"][-1]["content"][0]["text"] == "done"
    assert [one.params["arguments"]["text"] for one in mcp.calls()] == ["one", "two"]
    assert len(scripted.received) == 4, "only the turn without an answer was repeated"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[: len(before)] == before, "events already sent do not change"
    assert events[-1]["response"] == found
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == found["output"], "each item is done once, and is what the response has"
    for sample in ("recovered_total 1", "taken_over_total 1", "waiting 0", "running 0"):
        assert any(line.startswith(f"holodeck_background_{sample}") for line in counted), sample


@pytest.mark.proves("D-16", "D-32")
@async_test(SECONDS)
async def test_an_interrupted_call_is_not_repeated_and_the_model_gets_an_error(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), say("I will look first"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await mcp.received("tools/call")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
    assert found["status"] == "completed"
    assert len(mcp.calls()) == 1
    tool_message = scripted.received[-1].json["messages"][-1]
    assert tool_message["role"] == "tool"
    assert "Whether the call took effect is unknown" in tool_message["content"]


@pytest.mark.proves("D-16", "D-32")
@async_test(SECONDS)
async def test_a_call_that_may_be_repeated_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        server = mcp_server_entry(mcp.url, idempotent_tools=["slow"], request_timeout=2)
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[server], background={"durable": True})
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await mcp.received("tools/call")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            assert (await wait_ended(served, begun["id"]))["status"] == "completed"
    keys = [one.params["_meta"]["holodeck/idempotency-key"] for one in mcp.calls()]
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert keys[0]


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_a_run_pauses_while_the_disk_is_full(tmp_path: Path) -> None:
    go = asyncio.Event()

    def turn(received: Any) -> Any:
        """The same turn for the same messages, on every retry."""
        messages = received.json["messages"]
        return [wait(go), call("echo", text="one")] if messages[-1]["role"] == "user" else say("done")

    async with FaultyMCPServer() as mcp, ScriptedModel(turn).serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await wait_model_requests(scripted, 1)
            _, most = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (4096, most))
            go.set()
            while not any("durable.not_kept" in line for line in served.stderr_lines):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
            resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (most, most))
            found = await wait_ended(served, begun["id"])
    assert (found["status"], found["output"][-1]["content"][0]["text"]) == ("completed", "done")
    assert len(mcp.calls()) == 1, "no call runs while its result cannot be stored"


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_a_stopped_gateway_hands_its_run_over_between_two_steps(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=0.5), [wait(asyncio.Event())], say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        more: dict[str, Any] = {"mcp_servers": [mcp_server_entry(mcp.url)], "background": {"durable": True}}
        file = write_gateway_file(tmp_path, scripted.url, limits={"drain_seconds": 60}, **more)
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await mcp.received("tools/call")
            served.stop()
            assert await served.wait_exit() == 0
        async with run_gateway_process(file) as served:
            await wait_model_requests(scripted, 2)
            served.stop()
            assert await served.wait_exit() == 0
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
    assert (found["status"], found["output"][-1]["content"][0]["text"]) == ("completed", "done")
    assert len(mcp.calls()) == 1
    for received in scripted.received[1:]:
        assert "unknown" not in received.json["messages"][-1]["content"], "the running call was finished first"
