"""`/v1/messages`: Anthropic's API with the same models and tools behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.messages.message_client import (
    GET_PLACE,
    GET_TIME,
    HELLO,
    create_message,
    run_tools,
    stream_message,
    texts_of,
)
from gateway.running_gateway import MODEL, run_gateway

from holodeck.models.items import Usage
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Finish, Spend, think

BOTH_WAYS = pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])


@BOTH_WAYS
@async_test(30)
async def test_a_message_is_answered_with_its_usage(tmp_path: Path, is_streamed: bool) -> None:
    usage = Usage(input_tokens=20, output_tokens=7, cached_tokens=12)
    model = ScriptedModel([say("Good day."), Spend(usage=usage)], chunk=3)
    async with run_gateway(tmp_path, model) as gateway:
        message = await create_message(gateway, is_streamed=is_streamed, system="Be kind.")
        assert message["content"] == [{"type": "text", "text": "Good day.", "citations": None}]
        assert (message["type"], message["role"], message["model"]) == ("message", "assistant", MODEL)
        assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
        counts = {key: value for key, value in message["usage"].items() if key.endswith("_tokens")}
        assert counts == {
            "input_tokens": 8,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 12,
            "output_tokens": 7,
        }
        (asked,) = gateway.model_requests
        assert asked["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
        assert asked["max_tokens"] == 4_096


@BOTH_WAYS
@async_test(30)
async def test_tools_of_the_gateway_are_run_and_not_shown(tmp_path: Path, is_streamed: bool) -> None:
    model = ScriptedModel([say("Let me see."), call("add", a=1, b=2)], say("It is 3."), chunk=3)
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        message = await create_message(gateway, is_streamed=is_streamed)
        assert {block["type"] for block in message["content"]} == {"text"}
        assert texts_of(message) == ["Let me see.", "It is 3."]
        assert message["stop_reason"] == "end_turn"
        assert len(server.calls("add")) == 1


@BOTH_WAYS
@async_test(30)
async def test_tools_of_the_client_come_back_as_tool_use(tmp_path: Path, is_streamed: bool) -> None:
    model = ScriptedModel([say("I look."), call("get_place", near="sea"), call("get_time")], say("Noon."), chunk=3)
    async with run_gateway(tmp_path, model) as gateway:
        tools = [GET_TIME, GET_PLACE]
        message = await create_message(gateway, is_streamed=is_streamed, tools=tools)
        text, place, time = message["content"]
        assert text["text"] == "I look."
        assert (place["type"], place["name"], place["input"]) == ("tool_use", "get_place", {"near": "sea"})
        assert (time["type"], time["name"], time["input"]) == ("tool_use", "get_time", {})
        assert message["stop_reason"] == "tool_use"
        answered = run_tools(message, {"get_place": "Rome", "get_time": "noon"})
        last = await create_message(gateway, [*HELLO, *answered], is_streamed=is_streamed, tools=tools)
        assert texts_of(last) == ["Noon."]
        asked = gateway.model_requests[-1]["messages"]
        assert [entry["role"] for entry in asked] == ["user", "assistant", "tool", "tool"]
        assert [entry["content"] for entry in asked[2:]] == ["Rome", "noon"]
        offered = [tool["function"]["name"] for tool in gateway.model_requests[0]["tools"]]
        assert offered == ["get_time", "get_place"]


@BOTH_WAYS
@async_test(30)
async def test_calls_of_the_gateway_are_remembered_beside_calls_of_the_client(
    tmp_path: Path, is_streamed: bool
) -> None:
    mixed = [call("add", a=1, b=2), call("get_time"), call("echo", text="hi"), call("get_place")]
    model = ScriptedModel(call("add", a=2, b=2), mixed, say("Noon."), chunk=3)
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        tools = [GET_TIME, GET_PLACE]
        message = await create_message(gateway, is_streamed=is_streamed, tools=tools)
        assert [block["name"] for block in message["content"]] == ["get_time", "get_place"]
        answered = run_tools(message, {"get_place": "Rome", "get_time": "noon"})
        await create_message(gateway, [*HELLO, *answered], is_streamed=is_streamed, tools=tools)
        _, first, first_output, second, *outputs = gateway.model_requests[-1]["messages"]
        assert [made["function"]["name"] for made in first["tool_calls"]] == ["add"]
        assert first_output["content"] == "4"
        called = [made["function"]["name"] for made in second["tool_calls"]]
        assert called == ["add", "get_time", "echo", "get_place"]
        assert [entry["content"] for entry in outputs] == ["3", "noon", "hi", "Rome"]
        assert (len(server.calls("add")), len(server.calls("echo"))) == (2, 1)


@BOTH_WAYS
@async_test(30)
async def test_reasoning_is_a_thinking_block_and_goes_back_to_the_model(tmp_path: Path, is_streamed: bool) -> None:
    model = ScriptedModel([think("Is it late?"), call("get_time")], say("Noon."), chunk=3)
    async with run_gateway(tmp_path, model) as gateway:
        thinking = {"type": "enabled", "budget_tokens": 2_000}
        message = await create_message(gateway, is_streamed=is_streamed, tools=[GET_TIME], thinking=thinking)
        thought, _ = message["content"]
        assert (thought["type"], thought["thinking"]) == ("thinking", "Is it late?")
        assert gateway.model_requests[0]["reasoning_effort"] == "low"
        await create_message(gateway, [*HELLO, *run_tools(message, {"get_time": "noon"})], tools=[GET_TIME])
        assert gateway.model_requests[-1]["messages"][1]["reasoning_content"] == "Is it late?"


@BOTH_WAYS
@pytest.mark.parametrize(
    ("thinking", "thoughts"),
    [({"type": "disabled"}, []), ({"type": "adaptive", "display": "omitted"}, [""])],
    ids=["disabled", "omitted"],
)
@async_test(30)
async def test_reasoning_is_not_shown_to_a_client_that_does_not_want_it(
    tmp_path: Path, is_streamed: bool, thinking: dict[str, Any], thoughts: list[str]
) -> None:
    async with run_gateway(tmp_path, ScriptedModel([think("Hm."), say("Hi.")])) as gateway:
        message = await create_message(gateway, is_streamed=is_streamed, thinking=thinking)
        assert [block["thinking"] for block in message["content"] if block["type"] == "thinking"] == thoughts
        assert texts_of(message) == ["Hi."]


@BOTH_WAYS
@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_tokens"), ("content_filter", "refusal")], ids=["cut", "filtered"]
)
@async_test(30)
async def test_the_stop_reason_says_why_a_message_ended(
    tmp_path: Path, is_streamed: bool, finish: Any, reason: str
) -> None:
    async with run_gateway(tmp_path, ScriptedModel([say("Once upon"), Finish(reason=finish)])) as gateway:
        assert (await create_message(gateway, is_streamed=is_streamed))["stop_reason"] == reason


@async_test(30)
async def test_a_stream_starts_with_an_empty_message_and_a_ping(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        start, ping, *_ = await stream_message(gateway, {"messages": HELLO, "stream": True})
        assert (start["type"], start["message"]["content"]) == ("message_start", [])
        assert start["message"]["stop_reason"] is None
        assert ping == {"type": "ping"}


@async_test(30)
async def test_tokens_are_counted_with_the_tools_of_the_gateway(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server, run_gateway(tmp_path, mcp={"sums": server}) as gateway:
        body = {"model": MODEL, "messages": HELLO}
        status, counted = await gateway.send("POST", "/v1/messages/count_tokens", body)
        assert status == 200
        _, same = await gateway.send("POST", "/v1/responses/input_tokens", {"model": MODEL, "input": "Hello"})
        assert counted == {"input_tokens": same["input_tokens"]}
        _, more = await gateway.send("POST", "/v1/messages/count_tokens", {**body, "tools": [GET_TIME]})
        assert more["input_tokens"] > counted["input_tokens"]
        assert gateway.model_requests == []
