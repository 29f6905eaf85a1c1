"""A truncated answer: its last item is incomplete, a partial call does not run, and it can be continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, call_raw, finish, say, think

FUNCTION = {"type": "function", "name": "book", "parameters": {"type": "object", "properties": {}}}


def _list_items(response: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item["type"], item["status"]) for item in response["output"]]


@pytest.mark.proves("D-25", "D-28")
@pytest.mark.parametrize("is_streamed", [True, False])
@async_test(30)
async def test_a_partial_function_call_is_incomplete_and_needs_no_output(tmp_path: Path, is_streamed: bool) -> None:
    model = ScriptedModel([say("I book."), call_raw("book", '{"room": '), finish("length")], say("Again?"), chunk=4)
    async with run_gateway(tmp_path, model) as gateway:
        body = {"model": MODEL, "input": "Book a room", "tools": [FUNCTION], "stream": is_streamed}
        if is_streamed:
            events = await gateway.stream("/v1/responses", body)
            assert events[-1]["type"] == "response.incomplete"
            first = events[-1]["response"]
        else:
            _, first = await gateway.send("POST", "/v1/responses", body)
        assert (first["status"], first["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert _list_items(first) == [("message", "completed"), ("function_call", "incomplete")]
        status, second = await gateway.send(
            "POST", "/v1/responses", {"model": MODEL, "input": "Well?", "previous_response_id": first["id"]}
        )
    assert (status, _list_items(second)) == (200, [("message", "completed")])
    assert [message["content"] for message in gateway.model_requests[-1]["messages"]] == [
        "Book a room",
        "I book.",
        "Well?",
    ]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("steps", [[think("Hm."), say("It is")], [think("It may")]])
@async_test(30)
async def test_the_last_item_of_a_truncated_answer_is_incomplete(tmp_path: Path, reason: Any, steps: list[Any]) -> None:
    model = ScriptedModel([*steps, finish(reason)])
    async with run_gateway(tmp_path, model) as gateway:
        events = await gateway.stream("/v1/responses", {"model": MODEL, "input": "Tell", "stream": True})
        response = events[-1]["response"]
        *whole, cut = _list_items(response)
        assert (response["status"], cut[1]) == ("incomplete", "incomplete")
        assert all(status == "completed" for _, status in whole)
        assert [event["item"] for event in events if event["type"].endswith("item.done")] == response["output"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_partial_call_of_a_server_does_not_run_and_is_not_repeated(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call_raw("add", '{"a": 1'), finish("length")])
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Add"})
        assert (response["status"], response["output"]) == ("incomplete", [])
        assert not server.calls()
    assert len(gateway.model_requests) == 1
