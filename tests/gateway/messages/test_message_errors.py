"""Errors of `/v1/messages` in the form of Anthropic's API, before and within a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.messages.message_client import HELLO, stream_message
from gateway.running_gateway import ANY_KEY, MODEL, RunningGateway, run_gateway

from holodeck.gateway.wire.messages.request import read_messages_request
from holodeck.lib.errors import BadRequestError
from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import cut, status

SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "input": {}}


async def refuse_message(gateway: RunningGateway, key: str = ANY_KEY, **changes: Any) -> tuple[int, dict[str, Any]]:
    """The status and the error that answer a request."""
    body = {"model": MODEL, "max_tokens": 99, "messages": HELLO, **changes}
    code, reply = await gateway.send("POST", "/v1/messages", body, key=key)
    assert (code >= 400, reply["type"], set(reply)) == (True, "error", {"type", "error", "request_id"})
    error: dict[str, Any] = reply["error"]
    assert set(error) == {"type", "message"}
    return code, error


@async_test(30)
async def test_keys_are_taken_as_anthropic_s_clients_send_them(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), keys=["hd-ann"]) as gateway:
        code, error = await refuse_message(gateway, key="hd-wrong")
        assert (code, error["type"]) == (401, "authentication_error")
        session = await gateway.http_client()
        headers = {"authorization": "", "x-api-key": "hd-ann", "anthropic-version": "2023-06-01", "anthropic-beta": "x"}
        body = orjson.dumps({"model": MODEL, "max_tokens": 99, "messages": HELLO})
        async with session.post("/v1/messages", data=body, headers=headers) as reply:
            assert reply.status == 200
            message = orjson.loads(await reply.read())
        assert message["content"][0]["text"] == "Hi."


@async_test(30)
async def test_the_id_of_a_refused_request_is_in_its_body_and_its_header(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        session = await gateway.http_client()
        async with session.post("/v1/messages", data=b"{", headers={"x-request-id": "req-7"}) as reply:
            body = orjson.loads(await reply.read())
        assert (reply.status, body["error"]["type"]) == (400, "invalid_request_error")
        assert (body["request_id"], reply.headers["x-request-id"]) == ("req-7", "req-7")
        # Anthropic's packages read it under this name.
        assert reply.headers["request-id"] == "req-7"


@async_test(30)
async def test_refusals_have_the_types_and_statuses_of_the_api(tmp_path: Path) -> None:
    limits = {"key": {"requests_per_minute": 3}, "body_bytes": 100_000}
    async with run_gateway(tmp_path, keys=["hd-ann"], limits=limits) as gateway:
        code, error = await refuse_message(gateway, key="hd-ann", model="other")
        assert (code, error["type"]) == (404, "not_found_error")
        assert "other" in error["message"]
        code, error = await refuse_message(gateway, key="hd-ann", system="x" * 100_000)
        assert (code, error["type"]) == (413, "request_too_large")
        code, error = await refuse_message(gateway, key="hd-ann", max_tokens=None)
        assert (code, error["type"]) == (400, "invalid_request_error")
        assert "max_tokens" in error["message"]
        code, error = await refuse_message(gateway, key="hd-ann")
        assert (code, error["type"]) == (429, "rate_limit_error")
        code, reply = await gateway.send("POST", "/v1/messages/batches", {}, key="hd-ann")
        assert (code, reply["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("model_status", "code", "kind"),
    [
        (400, 400, "invalid_request_error"),
        (500, 500, "api_error"),
        (429, 429, "rate_limit_error"),
        (503, 529, "overloaded_error"),
    ],
)
@async_test(30)
async def test_a_model_that_fails_is_an_error_of_the_api(
    tmp_path: Path, model_status: int, code: int, kind: str
) -> None:
    turn = status(model_status, {"error": {"message": "No."}}, retry_after="120")
    async with run_gateway(tmp_path, ScriptedModel(turn, turn)) as gateway:
        found, error = await refuse_message(gateway)
        assert (found, error["type"]) == (code, kind)
        *_, last = await stream_message(gateway, {"messages": HELLO, "stream": True})
        assert (last["type"], last["error"]["type"]) == ("error", kind)


@async_test(30)
async def test_a_stream_that_breaks_ends_with_an_error_event(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel([say("Once upon"), cut()])) as gateway:
        events = await stream_message(gateway, {"messages": HELLO, "stream": True})
        assert [event["type"] for event in events[-2:]] == ["content_block_stop", "error"]
        assert events[-1]["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"top_k": 5}, "top_k"),
        ({"mcp_servers": [{"type": "url", "name": "x", "url": "https://x.example"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"tempo": 1}, "tempo"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "clear_tool_uses_20250919"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "a", "input_schema": {}, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tool_choice": {"type": "tool", "name": "nobody"}}, "nobody"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5_000}}, "thinking.budget_tokens"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [*HELLO, {"role": "assistant", "content": [{"type": "bash_code_execution_tool_result"}]}]},
            "bash_code_execution_tool_result",
        ),
        (
            {"messages": [*HELLO, {"role": "assistant", "content": [{**SERVER_CALL, "name": "code_execution"}]}]},
            "messages[1].content[0].name",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}]},
            "toolu_1",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}],
                    }
                ]
            },
            "messages[0].content[0].source.file_id",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@async_test(30)
async def test_what_the_gateway_cannot_do_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    async with run_gateway(tmp_path) as gateway:
        code, error = await refuse_message(gateway, **changes)
        assert (code, error["type"]) == (400, "invalid_request_error")
        assert named in error["message"]
        assert gateway.model_requests == []


WRONG_FORMS: list[tuple[dict[str, Any], str]] = [
    (
        {"tool_choice": {"type": "enabled"}},
        "Invalid value for 'tool_choice.type': 'enabled'. Supported values are: 'auto', 'any', 'tool' and 'none'.",
    ),
    ({"tool_choice": {"type": "auto", "name": "x"}}, "Unknown parameter: 'tool_choice.name'."),
    (
        {"tool_choice": {"type": "none", "disable_parallel_tool_use": True}},
        "Unknown parameter: 'tool_choice.disable_parallel_tool_use'.",
    ),
    ({"tool_choice": {"type": "tool"}}, "Missing required parameter: 'tool_choice.name'."),
    ({"thinking": {"type": None}}, "Missing required parameter: 'thinking.type'."),
    ({"thinking": "adaptive"}, "Invalid type for 'thinking': expected an object, but got a string instead."),
    ({"thinking": {"type": "adaptive", "budget_tokens": 9}}, "Unknown parameter: 'thinking.budget_tokens'."),
    (
        {"thread": {"type": "tool"}},
        "Invalid value for 'thread.type': 'tool'. Supported values are: 'create' and 'continue'.",
    ),
    ({"speed": "fast"}, "Unsupported parameter: 'speed'. The operator's models have one speed."),
    ({"container": "c", "stream": 1}, "Unsupported parameter: 'container'. This gateway does not implement it."),
]


def test_an_object_of_another_form_is_refused_in_the_words_of_the_api() -> None:
    for changes, message in WRONG_FORMS:
        with pytest.raises(BadRequestError) as refused:
            read_messages_request({"messages": HELLO, "max_tokens": 99, **changes})
        assert str(refused.value) == message
