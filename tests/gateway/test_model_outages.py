"""An outage of a model or a server: background responses wait until it is back, all other responses do not."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit
from gateway.gateway_process import GatewayProcess, run_gateway_process, wait_logged, write_gateway_file
from gateway.running_gateway import MODEL, run_gateway
from gateway.test_run_list import ALICE, BOB

from holodeck.providers.wrappers import retry
from holodeck.providers.wrappers.retry import MODEL_ATTEMPTS
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.script import Turn, status
from holodeck.testing.model.scripted import ScriptedServer

SECONDS = 120.0
AWAY = status(503, retry_after="0.01")


async def _wait_model_requests(model: ScriptedServer, times: int) -> None:
    while len(model.received) < times:  # noqa: ASYNC110 - another process sends the requests
        await asyncio.sleep(0.02)


async def _ended(served: GatewayProcess, response_id: str) -> dict[str, Any]:
    while True:
        _, found, _ = await served.send("GET", f"/v1/responses/{response_id}")
        if found["status"] not in ("queued", "in_progress"):
            return dict(found)
        await asyncio.sleep(0.02)


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_background_response_waits_for_its_model_also_through_a_kill_and_repeats_no_tool(
    tmp_path: Path,
) -> None:
    is_away = True

    def turn(received: Any) -> Turn:
        if received.json["messages"][-1]["role"] != "tool":
            return call("echo", text="once")
        return AWAY if is_away else say("done")

    async with FaultyMCPServer() as mcp, ScriptedModel(turn).serve() as model:
        server = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": mcp.url}
        file = write_gateway_file(tmp_path, model.url, mcp_servers=[server], background={"durable": True})
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await _wait_model_requests(model, 1 + MODEL_ATTEMPTS + 1)
            assert (await served.send("GET", f"/v1/responses/{begun['id']}"))[1]["status"] == "in_progress"
            assert any("model.wait" in line and begun["id"] in line for line in served.stderr_lines)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            await _wait_model_requests(model, len(model.received) + MODEL_ATTEMPTS + 1)
            is_away = False
            found = await _ended(served, begun["id"])
        assert (found["status"], found["output"][-1]["content"][0]["text"]) == ("completed", "done")
        assert len(mcp.calls()) == 1


@async_test(SECONDS)
async def test_a_background_response_whose_prompt_breaks_the_model_takes_it_from_no_other_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MODEL_FIRST_PAUSE", "MODEL_WAIT_FIRST_PAUSE", "MODEL_WAIT_MAX_PAUSE"):
        monkeypatch.setattr(retry, name, 0.01)
    failed, enough = 0, asyncio.Event()

    def answer(received: Any) -> Turn:
        nonlocal failed
        if b"break" not in received.body:
            return say("well")
        failed += 1
        if failed == 20:
            enough.set()
        return status(500)

    async with run_gateway(tmp_path, ScriptedModel(answer), keys=[ALICE, BOB]) as gateway:
        body = {"model": MODEL, "input": "break", "background": True}
        _, begun = await gateway.send("POST", "/v1/responses", body, key=ALICE)
        await enough.wait()
        for _ in range(12):
            code, found = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}, key=BOB)
            assert (code, found["status"]) == (200, "completed")
        await gateway.send("POST", f"/v1/responses/{begun['id']}/cancel", key=ALICE)


@pytest.mark.proves("D-32")
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "in the process"])
@async_test(SECONDS)
async def test_a_background_response_that_waits_for_its_model_is_cancelled_at_once(
    tmp_path: Path, is_durable: bool
) -> None:
    async with ScriptedModel(lambda _: AWAY).serve() as model:
        file = write_gateway_file(tmp_path, model.url, background={"durable": is_durable})
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await _wait_model_requests(model, MODEL_ATTEMPTS + 1)
            await served.send("POST", f"/v1/responses/{begun['id']}/cancel")
            assert (await _ended(served, begun["id"]))["status"] == "cancelled"


@pytest.mark.parametrize(
    ("fault", "more"), [(status(401), {}), (status(400), {}), (AWAY, {"model_wait_seconds": 0})], ids=str
)
@async_test(SECONDS)
async def test_a_background_response_fails_at_once_for_a_permanent_error_or_without_a_wait(
    tmp_path: Path, fault: Turn, more: dict[str, Any]
) -> None:
    async with ScriptedModel(lambda _: fault).serve() as model:
        file = write_gateway_file(tmp_path, model.url, background={"durable": False, **more})
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            assert (await _ended(served, begun["id"]))["status"] == "failed"
            assert len(model.received) == (MODEL_ATTEMPTS if more else 1)


@pytest.mark.proves("D-14", "D-32")
@async_test(SECONDS)
async def test_a_durable_response_that_goes_on_waits_for_a_server_whose_tools_it_had(tmp_path: Path) -> None:
    never = asyncio.Event()
    turns = iter([call("echo", text="it"), wait(never), say("done")])
    async with FaultyMCPServer() as mcp, ScriptedModel(lambda _: next(turns)).serve() as model:
        server = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": mcp.url}
        file = write_gateway_file(tmp_path, model.url, mcp_servers=[server], background={"durable": True})
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await _wait_model_requests(model, 2)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        await mcp.go_down()
        async with run_gateway_process(file) as served:
            await wait_logged(served, "run.server_wait")
            await mcp.come_up()
            found = await _ended(served, begun["id"])
    assert (found["status"], len(mcp.calls("echo")), len(model.received)) == ("completed", 1, 3)
    assert model.received[2].json["tools"] == model.received[1].json["tools"]


@pytest.mark.proves("D-14", "D-32")
@async_test(SECONDS)
async def test_a_call_of_a_durable_response_waits_for_a_server_that_is_restarted_and_is_made_once(
    tmp_path: Path,
) -> None:
    gate = wait(asyncio.Event())
    async with (
        # Without sessions: one that its restart has lost would be refused first.
        FaultyMCPServer(era="modern") as mcp,
        ScriptedModel([gate, call("echo", text="it")], say("done")).serve() as model,
    ):
        server = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": mcp.url}
        file = write_gateway_file(
            tmp_path, model.url, mcp_servers=[server], background={"durable": True}, audit={"file": AUDIT_FILE}
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await gate.reached.wait()
            await mcp.go_down()
            gate.until.set()
            await wait_logged(served, "run.server_wait")
            await mcp.come_up()
            found = await _ended(served, begun["id"])
            _, trace, _ = await served.send("GET", f"/v1/runs/{begun['id']}/trace")
    (made,) = [item for item in found["output"] if item["type"] == "mcp_call"]
    assert (found["status"], made["output"], len(mcp.calls("echo"))) == ("completed", "it", 1)
    (notice,) = [span for span in trace["spans"] if span["kind"] == "notice"]
    assert notice["name"] == "Waiting up to 600 s for the MCP server tools, which cannot be reached."
    assert notice["parent"] == next(span["id"] for span in trace["spans"] if span["kind"] == "tool")
    called, ended = read_audit(tmp_path, "tool_call", "tool_result")
    assert (called["call_id"], ended["outcome"]) == (ended["call_id"], "ok")


@pytest.mark.proves("D-14", "D-32")
@async_test(SECONDS)
async def test_a_call_of_a_durable_response_that_waits_for_its_server_is_cancelled_at_once(tmp_path: Path) -> None:
    gate = wait(asyncio.Event())
    async with FaultyMCPServer(era="modern") as mcp, ScriptedModel([gate, call("echo", text="it")]).serve() as model:
        server = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": mcp.url}
        file = write_gateway_file(tmp_path, model.url, mcp_servers=[server], background={"durable": True})
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await gate.reached.wait()
            await mcp.go_down()
            gate.until.set()
            await wait_logged(served, "run.server_wait")
            await served.send("POST", f"/v1/responses/{begun['id']}/cancel")
            assert (await _ended(served, begun["id"]))["status"] == "cancelled"
            await mcp.come_up()
    assert not mcp.calls()
