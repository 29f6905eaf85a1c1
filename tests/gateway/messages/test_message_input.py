"""What the model receives of a request to `/v1/messages`, field by field and block by block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.messages.message_client import GET_TIME, HELLO, create_message, run_tools
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.models.items import Usage
from holodeck.testing import ScriptedModel, call, say
from holodeck.testing.model.script import Spend, Turn, think
from holodeck.testing.model.scripted import ScriptedServer

PIXEL = "iVBORw0KGgo="
CACHED: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


async def received(folder: Path, messages: list[Any] | None = None, **body: Any) -> dict[str, Any]:
    """The one request that the model gets for a message."""
    async with run_gateway(folder, ScriptedModel(say('{"a":"b"}'))) as gateway:
        await create_message(gateway, messages, **body)
        (asked,) = gateway.model_requests
    return asked


@async_test(30)
async def test_options_reach_the_model_in_its_own_words(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    asked = await received(
        tmp_path,
        temperature=0.5,
        top_p=0.9,
        stop_sequences=["END"],
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": schema}},
        tools=[{**GET_TIME, **CACHED, "type": "custom", "strict": False, "eager_input_streaming": True}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        metadata={"user_id": "u-1"},
        service_tier="auto",
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        cache_control={"type": "ephemeral"},
        thinking={"type": "adaptive"},
    )
    assert (asked["temperature"], asked["top_p"], asked["stop"]) == (0.5, 0.9, ["END"])
    assert (asked["reasoning_effort"], asked["parallel_tool_calls"]) == ("high", False)
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["a"]
    (tool,) = asked["tools"]
    assert tool["function"]["description"] == GET_TIME["description"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "any"}, "required"),
        ({"type": "none"}, None),
        ({"type": "tool", "name": "get_time"}, {"type": "function", "function": {"name": "get_time"}}),
    ],
    ids=["any", "none", "tool"],
)
@async_test(30)
async def test_the_tool_choice_reaches_the_model(tmp_path: Path, choice: dict[str, Any], expected: Any) -> None:
    asked = await received(tmp_path, tools=[GET_TIME], tool_choice=choice)
    assert asked.get("tool_choice") in (expected, "none" if expected is None else expected)


@pytest.mark.parametrize(("budget", "effort"), [(1_024, "low"), (4_096, "medium"), (16_384, "high"), (30_000, "high")])
@async_test(30)
async def test_a_thinking_budget_decides_the_effort(tmp_path: Path, budget: int, effort: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": budget}
    assert (await received(tmp_path, max_tokens=64_000, thinking=thinking))["reasoning_effort"] == effort


@async_test(30)
async def test_system_blocks_images_and_documents_reach_the_model(tmp_path: Path) -> None:
    content = [
        {"type": "text", "text": "Compare.", **CACHED},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "image", "source": {"type": "url", "url": "https://pictures.example/a.png"}},
        {
            "type": "document",
            "title": "Notes",
            "context": "Old.",
            "source": {"type": "text", "media_type": "text/plain", "data": "Buy milk."},
        },
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
        },
    ]
    system = [{"type": "text", "text": "Be kind.", **CACHED}, {"type": "text", "text": "Be brief."}]
    asked = await received(tmp_path, [{"role": "user", "content": content}], system=system)
    first, question = asked["messages"]
    assert first == {"role": "system", "content": "Be kind.\n\nBe brief."}
    text, image, link, about, notes, pdf = question["content"]
    assert text == {"type": "text", "text": "Compare."}
    assert image["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    assert link["image_url"]["url"] == "https://pictures.example/a.png"
    assert (about["text"], notes["text"]) == ("Notes\n\nOld.", "Buy milk.")
    assert pdf["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}


@async_test(30)
async def test_a_whole_conversation_with_tools_reaches_the_model_in_order(tmp_path: Path) -> None:
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
    calls = [
        {"type": "tool_use", "id": f"toolu_{index}", "name": "get_time", "input": {"n": index}} for index in (1, 2)
    ]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    outputs = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no clock", "is_error": True},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "noon"}, picture]},
    ]
    messages = [
        *HELLO,
        {"role": "assistant", "content": [signed, {"type": "text", "text": "I look."}, *calls]},
        {"role": "user", "content": [*outputs, {"type": "text", "text": "And now?"}]},
    ]
    asked = (await received(tmp_path, messages, tools=[GET_TIME]))["messages"]
    _, answer, failed, noon, *rest = asked
    assert answer["content"] == "I look."
    assert [made["function"]["arguments"] for made in answer["tool_calls"]] == ['{"n":1}', '{"n":2}']
    assert (failed["tool_call_id"], noon["tool_call_id"]) == ("toolu_1", "toolu_2")
    assert "no clock" in failed["content"]
    assert "noon" in str(noon["content"])
    assert PIXEL in str(rest)
    assert "And now?" in str(rest[-1])


@asynccontextmanager
async def run_anthropic_gateway(folder: Path, *turns: Turn) -> AsyncIterator[tuple[RunningGateway, ScriptedServer]]:
    """A gateway in front of a model that speaks the Messages API itself."""
    async with ScriptedModel(*turns).serve("anthropic") as model:
        llm = {"provider": "anthropic", "name": "scripted", "endpoint": model.url, "api_key": "${KEY}"}
        models = [{"name": MODEL, "model": llm}]
        async with run_gateway(folder, models=models, environ={"KEY": "k"}) as gateway:
            yield gateway, model


@async_test(30)
async def test_blocks_that_an_anthropic_model_signed_elsewhere_go_back_to_it_unchanged(tmp_path: Path) -> None:
    async with run_anthropic_gateway(tmp_path, say("Hi.")) as (gateway, model):
        signed = [
            {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
            {"type": "redacted_thinking", "data": "c2VjcmV0"},
            {"type": "text", "text": "Yes."},
        ]
        messages = [*HELLO, {"role": "assistant", "content": signed}, {"role": "user", "content": "Sure?"}]
        message = await create_message(gateway, messages, system="Be kind.")
        assert message["content"][0]["text"] == "Hi."
        (asked,) = [each.json for each in model.received]
        assert asked["messages"][1] == {"role": "assistant", "content": signed}
        assert asked["system"] == "Be kind."


@async_test(30)
async def test_marks_for_the_prompt_cache_reach_an_anthropic_model_as_they_were_sent(tmp_path: Path) -> None:
    system = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief.", **CACHED}]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}, **CACHED}
    call_block = {"type": "tool_use", "id": "toolu_1", "name": "get_time", "input": {}, **CACHED}
    result = [{"type": "text", "text": "noon", **CACHED}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "When?"}, picture]},
        {"role": "assistant", "content": [call_block]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": result, **CACHED}]},
    ]
    tool = {**GET_TIME, **CACHED}
    usage = Usage(input_tokens=20, output_tokens=7, cached_tokens=5, cache_write_tokens=12, cache_write_1h_tokens=10)
    async with run_anthropic_gateway(tmp_path, [say("Hi."), Spend(usage=usage)]) as (gateway, model):
        message = await create_message(gateway, messages, system=system, tools=[tool], **CACHED)
        (asked,) = [each.json for each in model.received]
        assert asked["system"] == system
        assert asked["messages"] == messages
        assert asked["tools"] == [tool]
        assert asked["cache_control"] == CACHED["cache_control"]
        counts = {key: value for key, value in message["usage"].items() if key.startswith(("input", "cache"))}
        assert counts == {
            "input_tokens": 3,
            "cache_creation_input_tokens": 12,
            "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 10},
            "cache_read_input_tokens": 5,
        }
        _, runs = await gateway.send("GET", "/v1/usage")
        assert runs["data"][-1]["cache_write_tokens"] == 12, runs


@async_test(30)
async def test_marks_for_the_prompt_cache_are_not_seen_by_other_models(tmp_path: Path) -> None:
    system = [{"type": "text", "text": "Be kind.", **CACHED}, {"type": "text", "text": "Be brief.", **CACHED}]
    asked = await received(
        tmp_path,
        [{"role": "user", "content": [{"type": "text", "text": "Hello", **CACHED}]}],
        system=system,
        tools=[{**GET_TIME, **CACHED}],
        **CACHED,
    )
    assert b"cache_control" not in orjson.dumps(asked)
    assert [message["content"] for message in asked["messages"]] == ["Be kind.\n\nBe brief.", "Hello"]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
@async_test(30)
async def test_thinking_that_an_anthropic_model_signed_here_goes_back_to_it_unchanged(
    tmp_path: Path, is_streamed: bool
) -> None:
    turns = [think("Is it late?", signature="EqQB"), call("get_time")], say("Noon.")
    async with run_anthropic_gateway(tmp_path, *turns) as (gateway, model):
        message = await create_message(gateway, is_streamed=is_streamed, tools=[GET_TIME])
        await create_message(gateway, [*HELLO, *run_tools(message, {"get_time": "noon"})], tools=[GET_TIME])
        _, answer, _ = model.received[-1].json["messages"]
        assert answer["content"][0] == {"type": "thinking", "thinking": "Is it late?", "signature": "EqQB"}


@async_test(30)
async def test_a_parameter_that_the_operator_allows_goes_to_the_model(tmp_path: Path) -> None:
    async with ScriptedModel(say("ok")).serve() as model:
        llm = {
            "provider": "openai_compatible",
            "name": "m",
            "endpoint": model.url,
            "allow_extra_parameters": ["top_k"],
        }
        async with run_gateway(tmp_path, models=[{"name": MODEL, "model": llm}]) as gateway:
            await create_message(gateway, top_k=5)
            question = {"model": MODEL, "messages": HELLO}
            counted, _ = await gateway.send("POST", "/v1/messages/count_tokens", {**question, "top_k": 5})
            refused, why = await gateway.send("POST", "/v1/messages", {**question, "max_tokens": 9, "min_p": 0.5})
    assert [each.json["top_k"] for each in model.received] == [5]
    assert (counted, refused) == (200, 400)
    assert "'min_p'" in why["error"]["message"]
    assert "allow_extra_parameters" in why["error"]["message"]
