"""A call that needs approval runs only with it, also when gateways die before or after the approval."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import UNKNOWN, mcp_server_entry, wait_ended, wait_model_requests
from durable.crashing_gateway import AT, PROGRAM
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

SECONDS = 120.0
ASKING = {"type": "mcp", "server_label": "tools", "require_approval": "always"}
GET_TIME = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
DURABLE = {"background": {"durable": True}}


def yes(response: dict[str, Any]) -> dict[str, Any]:
    (approval_request,) = [item for item in response["output"] if item["type"] == "mcp_approval_request"]
    return {"type": "mcp_approval_response", "approval_request_id": approval_request["id"], "approve": True}


async def send(served: GatewayProcess, input_: Any, *declared: dict[str, Any], **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "demo", "input": input_, "tools": declared or (ASKING,), **more}
    status, answer, _ = await served.send("POST", "/v1/responses", body)
    assert status == 200, answer
    return dict(answer)


async def refusal(served: GatewayProcess, input_: Any, **more: Any) -> str:
    body = {"model": "demo", "input": input_, "tools": [ASKING], **more}
    status, answer, _ = await served.send("POST", "/v1/responses", body)
    assert status == 400, answer
    return str(answer["error"]["code"])


@pytest.mark.proves("D-32", "D-26")
@async_test(SECONDS)
async def test_a_call_whose_server_is_unavailable_after_a_crash_still_needs_approval(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="one"), say("Then not."))
    server = FaultyMCPServer()
    async with model.serve() as scripted:
        async with server as mcp:
            port = int(mcp.url.split(":")[2].split("/")[0])
            file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], **DURABLE)
            async with run_gateway_process(file, program=PROGRAM, environ={AT: "turn 1 after"}) as served:
                begun = await send(served, "Go", background=True)
                await served.wait_exit()
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
            async with FaultyMCPServer(port=port) as back:
                await send(served, "Go on", previous_response_id=found["id"])
                assert not back.calls()
    outputs = [message for message in scripted.received[-1].json["messages"] if message["role"] == "tool"]
    assert ["without approving" in message["content"] for message in outputs] == [True]


@pytest.mark.proves("D-32", "D-16", "D-26")
@async_test(SECONDS)
async def test_an_approval_is_used_by_a_run_that_survives_and_by_no_other(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), say("I will look first"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], **DURABLE)
        async with run_gateway_process(file) as served:
            first = await send(served, "Go")
            before = {"previous_response_id": first["id"], "background": True}
            begun = await send(served, [yes(first)], **before)
            await mcp.received("tools/call")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            assert await refusal(served, [yes(first)], **before) == "approval_request_used"
            found = await wait_ended(served, begun["id"])
            assert await refusal(served, [yes(first)], **before) == "approval_request_used"
    assert found["status"] == "completed"
    assert UNKNOWN in scripted.received[-1].json["messages"][-1]["content"]
    assert len(mcp.calls()) == 1


@pytest.mark.proves("D-32", "D-23", "D-26")
@async_test(SECONDS)
async def test_a_resent_turn_is_complete_after_a_crash(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="one"), call("get_time")], say("done"))
    go = {"role": "user", "content": "Go"}
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], **DURABLE)
        async with run_gateway_process(file, program=PROGRAM, environ={AT: "call 1 after"}) as served:
            first = await send(served, [go], GET_TIME)
            (called,) = first["output"]
            noon = {"type": "function_call_output", "call_id": called["call_id"], "output": "noon"}
            begun = await send(served, [go, called, noon], GET_TIME, background=True)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            assert (await wait_ended(served, begun["id"]))["status"] == "completed"
    _, made, *outputs = scripted.received[-1].json["messages"]
    assert [each["function"]["name"] for each in made["tool_calls"]] == ["echo", "get_time"]
    assert [message["content"] for message in outputs] == ["one", "noon"]
    assert len(mcp.calls()) == 1


@pytest.mark.proves("D-32", "D-16", "D-26")
@async_test(SECONDS)
async def test_an_approval_for_a_run_that_never_started_can_be_used_again(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel(call("echo", text="one"), [wait(go), say("done")], say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        durable = {"background": {"durable": True, "at_once": 1}}
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], **durable)
        async with run_gateway_process(file) as served:
            first = await send(served, "Go")
            before = {"previous_response_id": first["id"], "background": True}
            await send(served, "First", background=True)
            await wait_model_requests(scripted, 2)
            waits = await send(served, [yes(first)], **before)
            assert await refusal(served, [yes(first)], **before) == "approval_request_used"
            await served.send("POST", f"/v1/responses/{waits['id']}/cancel")
            assert (await wait_ended(served, waits["id"]))["status"] == "cancelled"
            assert not mcp.calls()
            again = await send(served, [yes(first)], **before)
            go.set()
            assert (await wait_ended(served, again["id"]))["status"] == "completed"
    assert len(mcp.calls()) == 1


@pytest.mark.proves("D-32", "D-16", "D-26")
@async_test(SECONDS)
async def test_an_approval_for_a_run_that_cannot_go_on_after_a_crash_can_be_used_again_if_it_never_started(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    model = ScriptedModel(call("echo", text="one"), [wait(go), say("done")], [wait(go), say("done")], say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        durable = {"background": {"durable": True, "at_once": 1}, "mcp_servers": [mcp_server_entry(mcp.url)]}
        demo = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        models = [{"name": name, "model": demo} for name in ("demo", "removed")]
        file = write_gateway_file(tmp_path, scripted.url, **durable, models=models)
        async with run_gateway_process(file) as served:
            first = await send(served, "Go")
            before = {"previous_response_id": first["id"], "background": True}
            await send(served, "First", background=True)
            await wait_model_requests(scripted, 2)
            waits = await send(served, [yes(first)], **before | {"model": "removed"})
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        write_gateway_file(tmp_path, scripted.url, **durable)
        go.set()
        async with run_gateway_process(file) as served:
            assert (await wait_ended(served, waits["id"]))["status"] == "failed"
            again = await send(served, [yes(first)], **before)
            assert (await wait_ended(served, again["id"]))["status"] == "completed"
    assert len(mcp.calls()) == 1


KINDS: tuple[dict[str, Any], ...] = ({}, {"store": False}, {"background": True})


@pytest.mark.proves("D-32", "D-16", "D-26")
@pytest.mark.parametrize("kind", KINDS, ids=["stored", "unstored", "background"])
@async_test(SECONDS)
async def test_an_approval_can_be_used_again_if_its_gateway_was_killed_before_any_call(
    tmp_path: Path, kind: dict[str, Any]
) -> None:
    model = ScriptedModel(call("echo", text="one"), say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        # Without an engine: no other gateway goes on with what one has begun.
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)])
        async with run_gateway_process(file, program=PROGRAM, environ={AT: "claim 1 after"}) as served:
            first = await send(served, "Go")
            before = {"previous_response_id": first["id"], **kind}
            sending = asyncio.create_task(send(served, [yes(first)], **before))
            await served.wait_exit()
            await asyncio.wait({sending})
            assert sending.exception() is not None
        async with run_gateway_process(file) as served:
            again = await send(served, [yes(first)], **before)
            found = await wait_ended(served, again["id"]) if "background" in kind else again
    assert found["status"] == "completed"
    assert len(mcp.calls()) == 1


@pytest.mark.proves("D-32", "D-16", "D-26")
@async_test(SECONDS)
async def test_an_approval_stays_used_if_its_gateway_was_killed_during_the_call(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: call("slow", seconds=60))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)])
        async with run_gateway_process(file) as served:
            firsts = [await send(served, "Go") for _ in KINDS]
            befores = [{"previous_response_id": first["id"], **kind} for first, kind in zip(firsts, KINDS, strict=True)]
            asked = zip(firsts, befores, strict=True)
            sending = [asyncio.create_task(send(served, [yes(first)], **before)) for first, before in asked]
            await mcp.received("tools/call", count=len(KINDS))
            served.stop(signal.SIGKILL)
            await served.wait_exit()
            await asyncio.wait(sending)
        async with run_gateway_process(file) as served:
            for first, before in zip(firsts, befores, strict=True):
                assert await refusal(served, [yes(first)], **before) == "approval_request_used"
    assert [each.exception() is None for each in sending] == ["background" in kind for kind in KINDS]
    assert len(mcp.calls()) == len(KINDS)
