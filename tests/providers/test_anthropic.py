"""What a server that speaks Anthropic Messages receives, and what events its answers become."""

from __future__ import annotations

from typing import Any

import pytest
from providers.model_exchange import KEY, collect_events, exchange_error, model_request, run_exchange, run_with_timeout
from providers.sample_conversation import BROKEN_CALL, CALLS, EMPTY_RESULT, PICTURES, SCHEMA, TOOLS

from holodeck.lib.secret import Secret
from holodeck.models.items import Item, Reasoning, Usage, text_message
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.providers.anthropic import Anthropic
from holodeck.testing.model.script import call, call_raw, error_event, finish, raw, say, spend, think
from holodeck.testing.model.scripted import ScriptedModel

OFFER = [
    {"name": "add", "description": "Adds.", "input_schema": SCHEMA},
    {"name": "shot", "input_schema": {"type": "object", "properties": {}}},
]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1hZ2U="}}


def body(*items: Item | str, **fields: Any) -> dict[str, Any]:
    return run_exchange(say("ok"), model_request(*items, **fields), dialect="anthropic").body


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def test_a_plain_question_sends_no_optional_fields() -> None:
    outcome = run_exchange(say("ok"), model_request("hello"), dialect="anthropic")
    assert outcome.body == {
        "model": "m",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [text("hello")]}],
        "stream": True,
    }
    received = outcome.received[0]
    assert received.path == "/v1/messages"
    assert received.headers["x-api-key"] == KEY
    assert received.headers["anthropic-version"] == "2023-06-01"


def test_instructions_are_sent_once_and_settings_when_set() -> None:
    found = body(
        text_message("developer", "Rhyme."), "a", instructions="Be brief.", temperature=0.0, top_p=0.5, max_tokens=9
    )
    assert found["system"] == "Be brief.\n\nRhyme."
    assert (found["temperature"], found["top_p"], found["max_tokens"]) == (0.0, 0.5, 9)
    assert found["messages"] == [{"role": "user", "content": [text("a")]}]


def test_user_messages_may_have_images_and_files() -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "cGRm"}
    assert body(PICTURES)["messages"][0]["content"] == [
        text("What is this?"),
        IMAGE,
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "source": pdf, "title": "a.pdf"},
    ]


def test_outputs_have_images_and_an_error_mark() -> None:
    assert body(*CALLS, "And now?")["messages"] == [
        {"role": "user", "content": [text("Add and look.")]},
        {
            "role": "assistant",
            "content": [
                text("I will."),
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "shot", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("no such number")], "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [
                        text("Here:"),
                        IMAGE,
                        text("[A sound (1 KiB of audio/wav) that this model cannot be played.]"),
                    ],
                },
                text("And now?"),
            ],
        },
    ]


def test_results_come_before_messages_that_the_user_sent_meanwhile() -> None:
    *calls, first, second = CALLS
    content = body(*calls, "Wait!", first, second)["messages"][-1]["content"]
    assert [block["type"] for block in content] == ["tool_result", "tool_result", "text"]
    assert [block.get("tool_use_id") for block in content] == ["c1", "c2", None]


def test_empty_results_and_broken_calls_are_accepted() -> None:
    assert body(*EMPTY_RESULT)["messages"][2]["content"][0]["content"] == [text("(The tool gave no output.)")]
    assert body(*BROKEN_CALL)["messages"][1]["content"][0]["input"] == {"invalid_arguments": '{"a": 1,,'}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice(), {"type": "auto"}),
        (ToolChoice(mode="required"), {"type": "any"}),
        (ToolChoice(mode="none"), {"type": "none"}),
        (ToolChoice(name="add"), {"type": "tool", "name": "add"}),
        (ToolChoice(allowed=()), {"type": "none"}),
    ],
)
def test_every_choice_of_tools_has_its_form(choice: ToolChoice, expected: Any) -> None:
    found = body("a", tools=TOOLS, tool_choice=choice)
    assert found["tools"] == OFFER
    assert found["tool_choice"] == expected


def test_allowed_tools_are_the_only_ones_offered() -> None:
    found = body("a", tools=TOOLS, tool_choice=ToolChoice(mode="required", allowed=("shot",)))
    assert found["tools"] == OFFER[1:]
    assert found["tool_choice"] == {"type": "any"}


def test_calls_one_at_a_time_strict_tools_and_a_schema_of_the_answer() -> None:
    strict = (ToolSpec(name="add", parameters=SCHEMA, strict=True),)
    found = body("a", tools=strict, parallel_tool_calls=False, response_format=SCHEMA)
    assert found["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert found["tools"][0]["strict"] is True
    assert found["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}


@pytest.mark.parametrize("writing", ["events", "bytes", "whole"])
def test_text_calls_and_reasoning_are_returned_in_order(writing: Any) -> None:
    turn = [
        think("Hm.", signature="sig"),
        say("Yes: ü"),
        say("!"),
        call("add", a=1),
        call_raw("now", ""),
        spend(9, 5, cached=3, reasoning=2),
    ]
    outcome = run_exchange(turn, dialect="anthropic", writing=writing, newline="\r\n", chunk=2)
    assert (outcome.thoughts, outcome.message) == ("Hm.", "Yes: ü!")
    assert [(c.call_id, c.name, c.arguments) for c in outcome.calls] == [
        ("call_1", "add", '{"a":1}'),
        ("call_2", "now", "{}"),
    ]
    assert [item.type for item in outcome.answer.items] == ["reasoning", "message", "function_call", "function_call"]
    assert outcome.answer.finish == "tool_calls"
    assert outcome.answer.usage == Usage(input_tokens=9, output_tokens=5, cached_tokens=3, reasoning_tokens=2)
    assert outcome.answer.model == "answering"


def test_signed_and_redacted_reasoning_is_resent_unchanged() -> None:
    turn = [think("Hm.", signature="sig"), think("", data="hidden"), call("add", a=1)]
    answered = run_exchange(turn, dialect="anthropic", chunk=2).answer
    sent = body("hello", *answered.items)["messages"][1]["content"]
    assert sent[:2] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "hidden"},
    ]


def test_reasoning_of_other_providers_is_not_sent() -> None:
    foreign = Reasoning(text="No.", opaque={"chat": "reasoning"})
    assert [message["role"] for message in body("a", foreign)["messages"]] == ["user"]


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
def test_every_finish_reason_is_mapped(reason: Any) -> None:
    assert run_exchange([say("a"), finish(reason)], dialect="anthropic").answer.finish == reason


def test_a_call_may_come_whole_with_its_start() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    outcome = run_exchange(
        raw(
            {"type": "message_start", "message": {}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ),
        dialect="anthropic",
    )
    assert outcome.calls[0].arguments == '{"a":1}'


def test_an_overload_in_the_stream_is_an_error() -> None:
    found = exchange_error([say("a"), error_event("Overloaded", "overloaded_error")], dialect="anthropic")
    assert "Overloaded" in str(found)
    assert found.is_retryable


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/messages"])
def test_the_address_may_be_written_with_or_without_its_version(suffix: str) -> None:
    async def exchange() -> None:
        async with ScriptedModel(say("ok")).serve("anthropic") as server:
            model = Anthropic(model="m", base_url=server.url + suffix, api_key=Secret(KEY))
            await collect_events(model, model_request())
            await model.close()
            assert server.received[0].path == "/v1/messages"

    run_with_timeout(exchange())
