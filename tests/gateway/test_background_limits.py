"""A background response that is refused for being one too many leaves everything as it was."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import wait_ended
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, RunningGateway, gateway_config, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

ASKING = {"type": "mcp", "server_label": "sums", "require_approval": "always"}
AT_ONCE = 8.0  # less than a writer waits for another one
ONE = {"key": {"background": 1}, "drain_seconds": 0}


async def _send(stand: RunningGateway, given: Any, **more: Any) -> tuple[int, Any]:
    body = {"model": MODEL, "input": given, "tools": [ASKING], **more}
    return await stand.send("POST", "/v1/responses", body)


@pytest.mark.proves("D-26", "D-29")
@pytest.mark.parametrize("is_conversation", [True, False])
@async_test(30)
async def test_an_approval_that_was_refused_for_lack_of_room_can_be_given_again(
    tmp_path: Path, is_conversation: bool
) -> None:
    gate = asyncio.Event()

    def turn(received: Any) -> Any:
        messages = received.json["messages"]
        if messages[-1]["content"] == "Wait":
            return [say("One"), wait(gate), say(" moment.")]
        return say("Done.") if messages[-1]["role"] == "tool" else call("add", a=1, b=2)

    async with (
        FaultyMCPServer() as mcp,
        run_gateway(tmp_path, ScriptedModel(turn), mcp={"sums": mcp}, limits=ONE) as stand,
    ):
        if is_conversation:
            made = (await stand.send("POST", "/v1/conversations", {}))[1]
            place = {"conversation": made["id"]}
        _, asked = await _send(stand, "Go", **(place if is_conversation else {}))
        yes = {"type": "mcp_approval_response", "approval_request_id": asked["output"][-1]["id"], "approve": True}
        after = place if is_conversation else {"previous_response_id": asked["id"]}
        _, running = await _send(stand, "Wait", background=True)
        for _ in range(2):
            status, refused = await _send(stand, [yes], background=True, **after)
            assert (status, refused["error"]["code"]) == (429, "rate_limit_exceeded")
        assert (await _send(stand, "Go", stream=False))[0] == 200  # what its client waits for is not counted
        gate.set()
        await stand.stream(f"/v1/responses/{running['id']}?stream=true")
        status, queued = await _send(stand, [yes], background=True, **after)
        assert status == 200, queued
        events = await stand.stream(f"/v1/responses/{queued['id']}?stream=true")
        assert events[-1]["response"]["status"] == "completed"
        assert len(mcp.calls("add")) == 1


@pytest.mark.proves("D-29")
@async_test(30)
async def test_a_background_response_over_the_limit_is_refused_without_touching_storage(tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(lambda _: [say("One"), wait(gate), say(" moment.")])
    async with run_gateway(tmp_path, model, limits=ONE, storage={"url": "sqlite:///kept.db"}) as stand:
        assert (await _send(stand, "Wait", background=True, tools=[]))[0] == 200
        with closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # whoever writes waits
            async with asyncio.timeout(AT_ONCE):
                for given in ("Go", [{"type": "item_reference", "id": "msg_none"}]):
                    more = {"previous_response_id": "resp_none", "tools": []}
                    status, refused = await _send(stand, given, background=True, **more)
                    assert (status, refused["error"]["code"]) == (429, "rate_limit_exceeded")
            other.execute("COMMIT")
        gate.set()


@pytest.mark.proves("D-26", "D-32")
@async_test(60)
async def test_an_approval_can_be_sent_again_when_its_background_response_could_not_start(tmp_path: Path) -> None:
    model = ScriptedModel(
        lambda received: say("Done.") if len(received.json["messages"]) > 1 else call("add", a=1, b=2)
    )
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        config = gateway_config(scripted.url, {"sums": mcp}) | {"background": {"durable": True}}
        file = write_gateway_file(tmp_path, scripted.url, **config, storage={"url": "sqlite:///kept.db"})
        async with run_gateway_process(file) as served:
            (tmp_path / "kept.db.work").mkdir()
            made = (await served.send("POST", "/v1/conversations", {}))[1]
            place = {"conversation": made["id"], "tools": [ASKING]}
            _, asked, _ = await served.create_response("Go", **place)
            yes = {"type": "mcp_approval_response", "approval_request_id": asked["output"][-1]["id"], "approve": True}
            body = {"model": MODEL, "input": [yes], "background": True, **place}
            status, refused, _ = await served.send("POST", "/v1/responses", body)
            assert (status, refused["error"]["code"]) == (503, "storage_error")
            (tmp_path / "kept.db.work").rmdir()
            status, queued, _ = await served.send("POST", "/v1/responses", body)
            assert status == 200, queued
            assert (await wait_ended(served, queued["id"]))["status"] == "completed"
            assert len(mcp.calls("add")) == 1
