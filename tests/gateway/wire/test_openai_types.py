"""The types of the stock `openai` package accept what is written, validated more strictly than its client does."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from async_tests import async_test
from fake_executor import FakeExecutor
from gateway.wire.scripted_run import DeclaredServers, play_run
from gateway.wire.test_chat_translation import FUNCTION, play_chat
from gateway.wire.test_replay import RUNS
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import ImageDetail, Response, ResponseStreamEvent, ResponseTextConfigParam
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.shared_params import Reasoning
from pydantic import TypeAdapter

from holodeck.gateway.wire.request.body import read_request
from holodeck.lib.errors import BadRequestError
from holodeck.testing import ScriptedModel, call, say, think
from holodeck.tools.executor import ToolResult

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.mark.proves("D-25", "D-26")
@pytest.mark.parametrize("name", RUNS)
@async_test(30)
async def test_events_and_resources_are_what_the_package_says_they_are(name: str) -> None:
    turns, body = RUNS[name]
    executor = FakeExecutor(add=lambda a, b: str(a + b), fail=lambda: ToolResult.failure("", "broken"))
    servers = DeclaredServers(labels={"add": "calc", "fail": "calc"})
    seen = await play_run(ScriptedModel(*turns, chunk=3), body, executor=executor, declared=servers)
    for event in seen.events:
        parsed = EVENTS.validate_python(without_our_error_codes(event))
        assert parsed.type == event["type"]
    response = Response.model_validate(without_our_error_codes(seen.resource))
    assert [item.type for item in response.output] == [item["type"] for item in seen.resource["output"]]


def _literal_values(kind: Any) -> list[str]:
    """All string literals that a type of the package allows, however it is wrapped."""
    found = [each for each in get_args(kind) if isinstance(each, str)]
    return found + [value for each in get_args(kind) if not isinstance(each, str) for value in _literal_values(each)]


def _hints() -> list[tuple[str, dict[str, Any]]]:
    hints = get_type_hints(ResponseCreateParamsNonStreaming)
    shown: dict[str, Any] = {"type": "input_image", "image_url": "https://maker.example/a.png"}
    return [
        *((value, {"service_tier": value}) for value in _literal_values(hints["service_tier"])),
        *((value, {"truncation": value}) for value in _literal_values(hints["truncation"])),
        *((value, {"include": [value]}) for value in _literal_values(hints["include"])),
        *((value, {"reasoning": {"effort": value}}) for value in _literal_values(get_type_hints(Reasoning)["effort"])),
        *(
            (value, {"reasoning": {"summary": value}})
            for value in _literal_values(get_type_hints(Reasoning)["summary"])
        ),
        *(
            (value, {"text": {"verbosity": value}})
            for value in _literal_values(get_type_hints(ResponseTextConfigParam)["verbosity"])
        ),
        *(
            (w, {"input": [{"role": "user", "content": [{**shown, "detail": w}]}]})
            for w in _literal_values(ImageDetail)
        ),
    ]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("value", "body"), _hints())
def test_every_literal_value_that_the_package_may_send_is_known(value: str, body: dict[str, Any]) -> None:
    code = ""
    try:
        read_request({"input": "Hello", **body})
    except BadRequestError as error:
        code = error.code or ""
    assert code in ("", "unsupported_parameter"), f"{value!r} is taken for a mistake"


def without_our_error_codes(value: dict[str, Any]) -> dict[str, Any]:
    """The package lists the codes of errors that its own service has; ours is another."""
    resource = value.get("response", value)
    if resource.get("error") and resource.get("object") == "response":
        resource = {**resource, "error": {**resource["error"], "code": "server_error"}}
    return {**value, "response": resource} if "response" in value else resource


@async_test
async def test_chat_chunks_and_completions_are_what_the_package_says_they_are() -> None:
    body: dict[str, Any] = {"tools": [FUNCTION], "stream": True, "stream_options": {"include_usage": True}}
    model = ScriptedModel([think("hm"), say("Let me ask."), call("ask_client", q=1)], chunk=3)
    chunks, writer = await play_chat(model, body)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    completion = ChatCompletion.model_validate(writer.build_resource())
    assert completion.choices[0].finish_reason == "tool_calls"
