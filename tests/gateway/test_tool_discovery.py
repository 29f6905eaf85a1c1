"""Tools that a gateway discovers at its servers, and how it logs and shows them."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.changing_server import ChangingServer
from gateway.running_gateway import MODEL, run_gateway

from holodeck.engine import event_log, loop, tool_calls, transcript, turn
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.tools.executor import ToolExecutor, ToolKind


def _at(server: ChangingServer) -> list[dict[str, Any]]:
    return [{"name": "odd", "type": "mcp", "description": "odd", "transport": "http", "url": server.url}]


@pytest.mark.proves("004:EDGE-2", "004:FR-019")
@async_test(30)
async def test_a_server_without_tools_is_logged_and_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ChangingServer().serve() as server,
        run_gateway(tmp_path, ScriptedModel(say("Hello.")), mcp_servers=_at(server)) as gateway,
    ):
        assert (await (await gateway.openai_client()).responses.create(model=MODEL, input="Hi")).output_text == "Hello."
        assert "mcp.discovered server=odd tools=0" in caplog.text
        _, listed = await gateway.send("GET", "/v1/mcp/servers")
        assert listed["data"][0]["last_error"] is None


@pytest.mark.proves("004:EDGE-4", "004:FR-018")
@async_test(30)
async def test_a_tool_that_its_server_has_removed_is_an_error_for_the_model(tmp_path: Path) -> None:
    model = ScriptedModel(call("here"), say("Done."), call("here"), say("Gone."))
    async with (
        ChangingServer("here").serve() as server,
        run_gateway(tmp_path, model, mcp_servers=_at(server)) as gateway,
    ):
        client = await gateway.openai_client()
        await client.responses.create(model=MODEL, input="Hi")
        assert gateway.model_requests[1]["messages"][-1]["content"] == "done"
        server.tools.clear()
        assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "Gone."
        assert "here" in gateway.model_requests[3]["messages"][-1]["content"]
        assert "done" not in gateway.model_requests[3]["messages"][-1]["content"]


@pytest.mark.proves("004:FR-019", "004:US1-3")
@async_test(30)
async def test_connections_discoveries_and_failures_are_logged_with_fields_and_no_argument(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="holodeck")
    model = ScriptedModel(call("fail", message="a-secret-value"), say("Hello."))
    async with (
        FaultyMCPServer() as server,
        FaultyMCPServer(down=True) as gone,
        run_gateway(tmp_path, model, mcp={"sums": server, "gone": gone}) as gateway,
    ):
        await (await gateway.openai_client()).responses.create(model=MODEL, input="Hi")
    events = {record.event: record.fields for record in caplog.records if hasattr(record, "event")}  # type: ignore[attr-defined]
    assert events["mcp.connected"]["server"] == "sums"
    assert events["mcp.discovered"].items() >= {"server": "sums", "tools": 22}.items()
    assert events["mcp.unavailable"]["server"] == "gone"
    assert (events["mcp.call_failed"]["server"], events["mcp.call_failed"]["tool"]) == ("sums", "fail")
    assert "a-secret-value" not in caplog.text


@pytest.mark.proves("004:FR-005", "004:FR-006", "004:FR-007")
@async_test(30)
async def test_the_gateway_s_servers_are_one_executor_of_their_tools(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server, run_gateway(tmp_path, mcp={"sums": server}) as gateway:
        executor: ToolExecutor = gateway.service.backends[MODEL].mcp
        assert executor.kind is ToolKind.MCP
        offered = {spec.name for spec in await executor.specs()}
        assert {name for name in [*offered, "nothing"] if executor.can_execute(name)} == offered
        assert "add" in offered


@pytest.mark.proves("004:SC-005")
def test_the_loop_has_no_line_about_mcp() -> None:
    for module in (loop, turn, tool_calls, transcript, event_log):
        assert "mcp" not in inspect.getsource(module).lower()
