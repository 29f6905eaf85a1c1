"""What a server that speaks Chat Completions receives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from providers.model_exchange import KEY, model_request, run_exchange, run_with_timeout
from providers.sample_conversation import (
    ADD,
    BROKEN_CALL,
    BYTES,
    CALLS,
    EMPTY_RESULT,
    LINK,
    PDF_URL,
    PICTURE_BYTES,
    PICTURES,
    PNG_URL,
    SCHEMA,
    SHOT,
    SOUND,
    TOOLS,
)

from holodeck.lib.secret import Secret
from holodeck.models.items import (
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Item,
    Message,
    Reasoning,
    TextContent,
    text_message,
)
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.providers.openai_chat import AzureChatCompletions
from holodeck.testing.model.script import raw, say
from holodeck.testing.model.scripted import ScriptedModel

OFFER = [
    {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "shot", "parameters": {"type": "object", "properties": {}}}},
]


def body(*items: Item | str, **fields: Any) -> dict[str, Any]:
    return run_exchange(say("ok"), model_request(*items, **fields)).body


def messages(*items: Item | str, **fields: Any) -> list[dict[str, Any]]:
    found = body(*items, **fields)["messages"]
    assert isinstance(found, list)
    return found


def test_a_plain_question_sends_no_optional_fields() -> None:
    outcome = run_exchange(say("ok"), model_request("hello"))
    assert outcome.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    received = outcome.received[0]
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["content-type"] == "application/json"


def test_settings_are_sent_when_they_are_set() -> None:
    found = body("hello", instructions="Be brief.", temperature=0.0, top_p=0.5, max_tokens=9)
    assert (found["temperature"], found["top_p"], found["max_tokens"]) == (0.0, 0.5, 9)
    assert found["messages"][0] == {"role": "system", "content": "Be brief."}


def test_developer_messages_are_sent_as_system_messages() -> None:
    assert messages(text_message("developer", "x"), text_message("system", "y"), "z") == [
        {"role": "system", "content": "x"},
        {"role": "system", "content": "y"},
        {"role": "user", "content": "z"},
    ]


def test_user_messages_may_have_images_and_files() -> None:
    assert messages(PICTURES)[0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}},
    ]


def test_user_messages_may_have_audio() -> None:
    sound = Message(role="user", content=(TextContent(text="Hear:"), SOUND))
    assert messages(sound)[0]["content"][1] == {
        "type": "input_audio",
        "input_audio": {"data": "c291bmQ=", "format": "wav"},
    }


def test_images_of_tools_follow_their_outputs() -> None:
    assert messages(*CALLS) == [
        {"role": "user", "content": "Add and look."},
        {
            "role": "assistant",
            "content": "I will.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "shot", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "Error: no such number"},
        {
            "role": "tool",
            "tool_call_id": "c2",
            "content": "Here:\n[Image 1: it is in the message after the tool results.]\n"
            "[A sound (1 KiB of audio/wav) that this model cannot be played.]",
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Image 1, from shot:"},
                {"type": "image_url", "image_url": {"url": PNG_URL}},
            ],
        },
    ]


def test_content_that_cannot_be_sent_is_described() -> None:
    result = FunctionCallOutput(call_id="c1", content=(LINK, BYTES, PICTURE_BYTES))
    found = messages("go", FunctionCall(call_id="c1", name="add", arguments="{}"), result)
    assert found[2]["content"] == (
        "[A link to a resource 'a.bin' (application/x) at file:///a.bin: all of it]\n"
        "[A resource 'a.zip' (5 bytes of application/zip) that this model cannot be shown.]\n"
        "[Image 1: it is in the message after the tool results.]"
    )
    assert found[3]["content"][1]["image_url"]["url"] == PNG_URL


def test_an_empty_result_says_so() -> None:
    assert messages(*EMPTY_RESULT)[2]["content"] == "(The tool gave no output.)"


def test_a_broken_call_goes_back_as_json_that_every_server_can_read() -> None:
    arguments = messages(*BROKEN_CALL)[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"invalid_arguments": '{"a": 1,,'}


def test_a_turn_without_text_has_null_content() -> None:
    assert messages(*EMPTY_RESULT)[1]["content"] is None


def test_reasoning_is_resent_in_its_field_also_after_the_next_question() -> None:
    thought = Reasoning(text="Hm.", opaque={"chat": "reasoning_content"})
    foreign = Reasoning(text="No.", opaque={"anthropic": {}})
    call = FunctionCall(call_id="c1", name="add", arguments="{}")
    result = FunctionCallOutput(call_id="c1", content=(TextContent(text="1"),))
    assert messages("a", foreign, thought, call, result)[1]["reasoning_content"] == "Hm."
    # A prompt that changed what was sent before would not be found in the cache of the provider.
    later = messages("a", thought, call, result, text_message("assistant", "1"), "b")
    assert later[1]["reasoning_content"] == "Hm."


def test_extra_fields_of_a_call_are_resent_with_it() -> None:
    extra = {"google": {"thought_signature": "xyz"}}
    call = {"index": 0, "id": "c1", "function": {"name": "add", "arguments": "{}"}, "extra_content": extra}
    other = {"index": 1, "id": "c2", "function": {"name": "add", "arguments": "{}"}}
    answered = run_exchange(
        raw({"choices": [{"delta": {"tool_calls": [call, other]}, "finish_reason": "stop"}]})
    ).answer
    calls = messages("a", *answered.items)[1]["tool_calls"]
    assert [call.get("extra_content") for call in calls] == [extra, None]


def test_a_big_image_is_sent_completely() -> None:
    url = "data:image/png;base64," + "A" * 3_000_000
    sent = messages(Message(role="user", content=(ImageLink(url=url),)))
    assert sent[0]["content"][0]["image_url"]["url"] == url


def test_messages_of_the_model_stay_apart_and_calls_end_one() -> None:
    found = messages("a", text_message("assistant", "b"), text_message("assistant", "c"), "d")
    assert [message["content"] for message in found] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice(), None),
        (ToolChoice(mode="required"), "required"),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(name="add"), {"type": "function", "function": {"name": "add"}}),
        (ToolChoice(allowed=()), "none"),
    ],
)
def test_every_choice_of_tools_has_its_form(choice: ToolChoice, expected: Any) -> None:
    found = body("a", tools=TOOLS, tool_choice=choice)
    assert found["tools"] == OFFER
    assert found.get("tool_choice") == expected


@pytest.mark.parametrize(("mode", "expected"), [("auto", None), ("required", "required")])
def test_allowed_tools_are_the_only_ones_offered(mode: Any, expected: Any) -> None:
    found = body("a", tools=TOOLS, tool_choice=ToolChoice(mode=mode, allowed=("add",)))
    assert found["tools"] == OFFER[:1]
    assert found.get("tool_choice") == expected


def test_a_request_without_tools_has_no_tool_fields() -> None:
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body("a", parallel_tool_calls=False).keys()


def test_the_request_has_calls_one_at_a_time_and_strict_tools() -> None:
    found = body("a", tools=(ToolSpec(name="add", parameters=SCHEMA, strict=True),), parallel_tool_calls=False)
    assert found["parallel_tool_calls"] is False
    assert found["tools"][0]["function"]["strict"] is True
    assert "parallel_tool_calls" not in body("a", tools=(ADD, SHOT))


@pytest.mark.parametrize(
    ("schema", "name", "strict"),
    [
        (SCHEMA, "answer", True),
        ({"type": "object", "title": "My answer!", "properties": {"a": {}}}, "My_answer_", False),
    ],
)
def test_the_answer_may_have_a_schema(schema: dict[str, Any], name: str, strict: bool) -> None:
    assert body("a", response_format=schema)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": schema, "strict": strict},
    }


@pytest.mark.parametrize(
    ("path", "version", "expected", "query"),
    [
        ("", None, "/openai/deployments/my%20gpt/chat/completions", {"api-version": "2024-10-21"}),
        (
            "/",
            "2025-01-01-preview",
            "/openai/deployments/my%20gpt/chat/completions",
            {"api-version": "2025-01-01-preview"},
        ),
        ("/openai/v1/", None, "/openai/v1/chat/completions", {}),
    ],
)
def test_azure_has_the_deployment_in_its_address(path: str, version: Any, expected: str, query: dict[str, str]) -> None:
    async def exchange() -> None:
        async with ScriptedModel(say("ok")).serve() as server:
            base = server.url.removesuffix("/v1") + path
            model = AzureChatCompletions(base_url=base, deployment="my gpt", api_key=Secret(KEY), api_version=version)
            events = [event async for event in model.stream(model_request("a", max_tokens=5))]
            await model.close()
            received = server.received[0]
            assert events
            assert (received.path, received.query) == (expected.replace("%20", " "), query)
            assert received.headers["api-key"] == KEY
            assert "authorization" not in received.headers
            assert received.json["max_completion_tokens"] == 5

    run_with_timeout(exchange())
