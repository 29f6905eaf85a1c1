"""Threads of `/v1/messages`: a client sends only what is new, as the tool runners of Anthropic's packages do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.messages.message_client import GET_TIME, create_message, run_tools, texts_of
from gateway.running_gateway import run_gateway

from holodeck.gateway.continuation.message_threads import MessageThreads
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.http.request import RequestReservation
from holodeck.lib.byte_budget import ByteBudget
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

CREATE = {"type": "create"}


def _continue(message: dict[str, Any]) -> dict[str, str]:
    return {"type": "continue", "previous_message_id": message["id"]}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
@async_test(30)
async def test_a_thread_is_continued_with_nothing_but_the_results_of_its_calls(
    tmp_path: Path, is_streamed: bool
) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("get_time")], call("get_time"), say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        mark = {"cache_control": {"type": "ephemeral"}}
        asked = [{"role": "user", "content": [{"type": "text", "text": "When?", **mark}]}]
        first = await create_message(
            gateway, asked, is_streamed=is_streamed, thread=CREATE, tools=[GET_TIME], system="Be kind."
        )
        _, result = run_tools(first, {"get_time": "noon"})
        second = await create_message(gateway, [result], is_streamed=is_streamed, thread=_continue(first))
        _, result = run_tools(second, {"get_time": "one"})
        third = await create_message(gateway, [result], is_streamed=is_streamed, thread=_continue(second))
        assert texts_of(third) == ["Noon."]
        sent = gateway.model_requests[-1]
        assert [entry["role"] for entry in sent["messages"]] == [
            *("system", "user", "assistant", "tool", "tool", "assistant", "tool")
        ]
        assert [entry["content"] for entry in sent["messages"] if entry["role"] == "tool"] == ["3", "noon", "one"]
        assert "get_time" in [tool["function"]["name"] for tool in sent["tools"]]
        # The second message was continued, so its thread ends with the third one now.
        status, error = await gateway.send(
            "POST", "/v1/messages", {"max_tokens": 9, "messages": [result], "thread": _continue(second)}
        )
        assert (status, error["error"]["type"]) == (404, "not_found_error")
        assert error["error"]["details"] == {"error_code": "thread_not_found"}


def test_a_thread_belongs_to_its_caller_and_is_forgotten_when_there_is_no_room_for_it() -> None:
    threads = MessageThreads(max_bytes=400)
    reservation = RequestReservation(ByteBudget(10_000))
    body = {"messages": [{"role": "user", "content": "Hello"}], "thread": CREATE}
    for number in range(3):
        threads.store("ada", body, {"id": f"msg_{number}", "content": [{"type": "text", "text": "x" * 100}]})
    follow: dict[str, Any] = {"messages": [{"role": "user", "content": "More"}], "thread": _continue({"id": "msg_2"})}
    joined = threads.join_body("ada", follow, reservation)
    assert [message["role"] for message in joined["messages"]] == ["user", "assistant", "user"]
    assert reservation.size > 100
    for caller, lost in (("bob", "msg_2"), ("ada", "msg_0"), ("ada", "msg_9")):
        with pytest.raises(APIError) as caught:
            threads.join_body(caller, {**follow, "thread": _continue({"id": lost})}, reservation)
        assert caught.value.code == "thread_not_found"
