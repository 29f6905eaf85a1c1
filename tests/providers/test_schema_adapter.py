"""Schemas on their way to a model and arguments on their way back, over HTTP as a provider sees them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from async_tests import async_test

from holodeck.models.items import FunctionCall, text_message
from holodeck.models.llm import LLM
from holodeck.models.model_io import ModelAnswer, ModelRequest, ToolSpec
from holodeck.models.provider import Provider
from holodeck.providers.factory import build_model_provider
from holodeck.testing import ScriptedModel, call, call_raw, say

CHOICE = {
    "anyOf": [{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"type": "object"}]
}
REFERRED: dict[str, Any] = {
    "type": "object",
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
    "properties": {"at": {"$ref": "#/$defs/point"}},
}


@async_test
async def test_references_are_inlined_before_the_provider_sees_them() -> None:
    async with ScriptedModel(say("ok")).serve("chat") as server:
        llm = LLM(provider=Provider.OPENAI_COMPATIBLE, name="m", endpoint=server.url)
        await _ask(llm, ToolSpec(name="go", parameters=REFERRED))
        (body,) = [received.json for received in server.received]
    parameters = body["tools"][0]["function"]["parameters"]
    assert "$ref" not in orjson.dumps(parameters).decode()
    assert parameters["properties"]["at"]["properties"] == {"x": {"type": "number"}}


@async_test
async def test_arguments_of_a_wrapped_schema_come_back_as_the_tool_has_them() -> None:
    async with ScriptedModel(call("go", arguments={"x": 1})).serve("anthropic") as server:
        llm = LLM.model_validate({"provider": "anthropic", "name": "m", "endpoint": server.url, "api_key": "k"})
        answered = await _ask(llm, ToolSpec(name="go", parameters=CHOICE))
        (body,) = [received.json for received in server.received]
    assert "anyOf" not in body["tools"][0]["input_schema"]
    (item,) = [item for item in answered.items if isinstance(item, FunctionCall)]
    assert orjson.loads(item.arguments) == {"x": 1}


@pytest.mark.parametrize("arguments", ["not json", "[1]"])
@async_test
async def test_broken_arguments_are_left_for_the_loop_to_explain(arguments: str) -> None:
    async with ScriptedModel(call_raw("go", arguments)).serve("chat") as server:
        llm = LLM(provider=Provider.OPENAI_COMPATIBLE, name="m", endpoint=server.url)
        answered = await _ask(llm, ToolSpec(name="go", parameters=REFERRED))
    (item,) = [item for item in answered.items if isinstance(item, FunctionCall)]
    assert item.arguments == arguments


async def _ask(llm: LLM, *tools: ToolSpec) -> ModelAnswer:
    model = build_model_provider(llm, {})
    try:
        events = [event async for event in model.stream(ModelRequest(items=(text_message("user", "hi"),), tools=tools))]
    finally:
        await model.close()
    assert isinstance(events[-1], ModelAnswer)
    return events[-1]
