"""`tool_choice` is enforced whatever the model answers; an impossible one is refused before a model is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

FUNCTION = {"type": "function", "name": "book", "parameters": {"type": "object", "properties": {}}}
SUMS = {"type": "mcp", "server_label": "sums"}


@pytest.mark.proves("D-24", "D-25")
@pytest.mark.parametrize("name", ["add", "book"])
@async_test(30)
async def test_with_tool_choice_none_a_call_of_the_model_neither_runs_nor_reaches_the_client(
    tmp_path: Path, name: str
) -> None:
    model = ScriptedModel(call(name, a=1, b=2), say("Without, then."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        body = {"model": MODEL, "input": "Go", "tools": [FUNCTION], "tool_choice": "none"}
        _, response = await gateway.send("POST", "/v1/responses", body)
        assert [item["type"] for item in response["output"]] == ["mcp_call", "message"]
        assert "not allowed" in response["output"][0]["error"]["content"][0]["text"]
        assert not server.calls()
    assert [request.get("tool_choice") for request in gateway.model_requests] == ["none", "none"]


@pytest.mark.proves("D-26")
@async_test(30)
async def test_tool_choice_none_does_not_cancel_an_approved_call(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, first = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": [SUMS]})
        request_id = first["output"][-1]["id"]
        answer = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": True}
        body = {"model": MODEL, "input": [answer], "tools": [SUMS], "tool_choice": "none"}
        _, second = await gateway.send("POST", "/v1/responses", {**body, "previous_response_id": first["id"]})
        assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("choice", [{"type": "function", "name": "unknown_tool"}, "required"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
@async_test(30)
async def test_tool_choice_with_an_unknown_tool_is_refused(tmp_path: Path, choice: Any, path: str) -> None:
    if path.endswith("completions") and choice != "required":
        choice = {"type": "function", "function": {"name": choice["name"]}}
    async with run_gateway(tmp_path, ScriptedModel(say("Never."))) as gateway:
        prompt = {"input": "Go"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "Go"}]}
        status, answer = await gateway.send("POST", path, {"model": MODEL, **prompt, "tool_choice": choice})
        assert (status, answer["error"]["param"]) == (400, "tool_choice")
    assert not gateway.model_requests


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_tool_that_only_the_operator_has_can_be_forced_by_its_name(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        body = {"model": MODEL, "input": "Go", "tool_choice": {"type": "function", "name": "add"}}
        status, _ = await gateway.send("POST", "/v1/responses", body)
        assert (status, len(server.calls("add"))) == (200, 1)
