"""Clients that send outputs again which the chain of responses has already, as Semantic Kernel does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GET_TIME = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}


def _output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


@pytest.mark.proves("D-25", "D-28")
@async_test(30)
async def test_an_output_that_is_sent_again_is_ignored_and_a_different_one_is_refused(tmp_path: Path) -> None:
    model = ScriptedModel(call("get_time"), call("get_time"), say("Twice noon."))
    async with run_gateway(tmp_path, model) as gateway:
        body: dict[str, Any] = {"model": MODEL, "tools": [GET_TIME]}
        _, first = await gateway.send("POST", "/v1/responses", {**body, "input": "Go"})
        noon = _output(first["output"][0]["call_id"], "noon")
        body["previous_response_id"] = first["id"]
        _, second = await gateway.send("POST", "/v1/responses", {**body, "input": [noon]})
        later = _output(second["output"][0]["call_id"], "noon, still")
        body["previous_response_id"] = second["id"]
        changed = {**body, "input": [{**noon, "output": "midnight"}, later]}
        status, refused = await gateway.send("POST", "/v1/responses", changed)
        assert (status, refused["error"]["code"]) == (400, "unknown_call_id")
        status, third = await gateway.send("POST", "/v1/responses", {**body, "input": [noon, later]})
        assert (status, third["output"][0]["content"][0]["text"]) == (200, "Twice noon.")
        sent = [each["content"] for each in gateway.model_requests[-1]["messages"] if each["role"] == "tool"]
        assert sent == ["noon", "noon, still"]


@pytest.mark.proves("D-23", "D-25")
@async_test(30)
async def test_openai_s_package_sees_a_mixed_turn_as_completed(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [call("add", a=1, b=2), call("get_time")])
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client, tools = await gateway.openai_client(), [GET_TIME]
        paused = await client.responses.create(model=MODEL, input="Go", tools=tools)  # type: ignore[arg-type] # plain data
        assert (paused.status, [item.type for item in paused.output]) == ("completed", ["function_call"])
        _, bare = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": tools})
        assert bare["status"] == "requires_action"
        assert not server.calls()
