"""A background response over the limit is refused and changes no state."""

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
from patience import patience

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

ASKING = {"type": "mcp", "server_label": "sums", "require_approval": "always"}
AT_ONCE = 8.0  # shorter than the lock timeout of a database writer
ONE = {"key": {"background": 1}, "drain_seconds": 0}


async def _send(gateway: RunningGateway, input_items: Any, **more: Any) -> tuple[int, Any]:
    body = {"model": MODEL, "input": input_items, "tools": [ASKING], **more}
    return await gateway.send("POST", "/v1/responses", body)


@pytest.mark.proves("D-26", "D-29")
@pytest.mark.parametrize("is_conversation", [True, False])
@async_test(30)
async def test_an_approval_refused_by_the_background_limit_can_be_sent_again(
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
        run_gateway(tmp_path, ScriptedModel(turn), mcp={"sums": mcp}, limits=ONE) as gateway,
    ):
        if is_conversation:
            made = (await gateway.send("POST", "/v1/conversations", {}))[1]
            conversation = {"conversation": made["id"]}
        _, paused = await _send(gateway, "Go", **(conversation if is_conversation else {}))
        yes = {"type": "mcp_approval_response", "approval_request_id": paused["output"][-1]["id"], "approve": True}
        after = conversation if is_conversation else {"previous_response_id": paused["id"]}
        _, running = await _send(gateway, "Wait", background=True)
        for _ in range(2):
            status, refused = await _send(gateway, [yes], background=True, **after)
            assert (status, refused["error"]["code"]) == (429, "rate_limit_exceeded")
        # A response that its client waits for does not count as a background response.
        assert (await _send(gateway, "Go", stream=False))[0] == 200
        gate.set()
        await gateway.stream(f"/v1/responses/{running['id']}?stream=true")
        status, queued = await _send(gateway, [yes], background=True, **after)
        assert status == 200, queued
        events = await gateway.stream(f"/v1/responses/{queued['id']}?stream=true")
        assert events[-1]["response"]["status"] == "completed"
        assert len(mcp.calls("add")) == 1


@pytest.mark.proves("D-29")
@async_test(30)
async def test_a_background_response_over_the_limit_is_refused_without_touching_storage(tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(lambda _: [say("One"), wait(gate), say(" moment.")])
    async with run_gateway(tmp_path, model, limits=ONE, storage={"url": "sqlite:///kept.db"}) as gateway:
        assert (await _send(gateway, "Wait", background=True, tools=[]))[0] == 200
        with closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as other:
            # Every other writer now waits for the lock.
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(patience(AT_ONCE)):
                for input_items in ("Go", [{"type": "item_reference", "id": "msg_none"}]):
                    more = {"previous_response_id": "resp_none", "tools": []}
                    status, refused = await _send(gateway, input_items, background=True, **more)
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
            conversation = {"conversation": made["id"], "tools": [ASKING]}
            _, paused, _ = await served.create_response("Go", **conversation)
            yes = {"type": "mcp_approval_response", "approval_request_id": paused["output"][-1]["id"], "approve": True}
            body = {"model": MODEL, "input": [yes], "background": True, **conversation}
            status, refused, _ = await served.send("POST", "/v1/responses", body)
            assert (status, refused["error"]["code"]) == (503, "storage_error")
            (tmp_path / "kept.db.work").rmdir()
            status, queued, _ = await served.send("POST", "/v1/responses", body)
            assert status == 200, queued
            assert (await wait_ended(served, queued["id"]))["status"] == "completed"
            assert len(mcp.calls("add")) == 1
