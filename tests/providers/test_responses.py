"""What a server that speaks the Responses API receives, and what events its answers become."""

from __future__ import annotations

from typing import Any

import pytest
from providers.model_exchange import (
    KEY,
    collect_events,
    exchange_error,
    model_at,
    model_request,
    run_exchange,
    run_with_timeout,
)
from providers.sample_conversation import BROKEN_CALL, CALLS, EMPTY_RESULT, PDF_URL, PICTURES, PNG_URL, SCHEMA, TOOLS

from holodeck.models.items import FunctionCall, Item, Message, Reasoning, TextContent, Usage, text_message
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.testing.model.script import call, call_raw, finish, raw, say, spend, status, think
from holodeck.testing.model.scripted import ScriptedModel

OFFER = [
    {"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": False},
    {"type": "function", "name": "shot", "parameters": {"type": "object", "properties": {}}, "strict": False},
]
END = {"type": "response.completed", "response": {"status": "completed", "model": "m", "output": []}}


def body(*items: Item | str, **fields: Any) -> dict[str, Any]:
    return run_exchange(say("ok"), model_request(*items, **fields), dialect="responses").body


def test_a_plain_question_sends_no_optional_fields() -> None:
    outcome = run_exchange(say("ok"), model_request("hello"), dialect="responses")
    assert outcome.body == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    assert outcome.received[0].path == "/v1/responses"
    assert outcome.received[0].headers["authorization"] == f"Bearer {KEY}"


def test_settings_are_sent_when_they_are_set() -> None:
    found = body("hello", instructions="Be brief.", temperature=0.0, top_p=0.5, max_tokens=9)
    assert (found["temperature"], found["top_p"], found["max_output_tokens"]) == (0.0, 0.5, 9)
    assert found["instructions"] == "Be brief."


def test_user_messages_may_have_images_and_files() -> None:
    assert body(PICTURES)["input"][0]["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": PNG_URL, "detail": "low"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL},
    ]


def test_images_of_tools_are_in_their_outputs() -> None:
    assert body(*CALLS)["input"][1:] == [
        {"type": "message", "role": "assistant", "content": "I will."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "shot", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "Error: no such number"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "Here:"},
                {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
                {"type": "input_text", "text": "[A sound (1 KiB of audio/wav) that this model cannot be played.]"},
            ],
        },
    ]


def test_empty_results_and_broken_calls_are_sent_as_they_are() -> None:
    assert body(*EMPTY_RESULT)["input"][2]["output"] == "(The tool gave no output.)"
    assert body(*BROKEN_CALL)["input"][1]["arguments"] == '{"a": 1,,'


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice(), "auto"),
        (ToolChoice(mode="required"), "required"),
        (ToolChoice(mode="none"), "none"),
        (ToolChoice(name="add"), {"type": "function", "name": "add"}),
        (ToolChoice(allowed=()), "none"),
        (
            ToolChoice(mode="required", allowed=("add",)),
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]},
        ),
    ],
)
def test_every_choice_of_tools_has_its_form(choice: ToolChoice, expected: Any) -> None:
    found = body("a", tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    assert found["tools"] == OFFER
    assert found["tool_choice"] == expected
    assert found["parallel_tool_calls"] is False


def test_strict_tools_and_a_schema_of_the_answer() -> None:
    found = body("a", tools=(ToolSpec(name="add", parameters=SCHEMA, strict=True),), response_format=SCHEMA)
    assert found["tools"][0]["strict"] is True
    assert found["text"] == {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize("writing", ["events", "bytes", "whole"])
def test_text_calls_and_reasoning_are_returned_in_order(writing: Any) -> None:
    turn = [think("Hm.", encrypted_content="xyz"), say("Yes: ü"), call("add", a=1), call("now"), spend(9, 5, cached=3)]
    outcome = run_exchange(turn, dialect="responses", writing=writing, newline="\r\n", chunk=2)
    assert (outcome.thoughts, outcome.message) == ("Hm.", "Yes: ü")
    assert [(c.call_id, c.name, c.arguments) for c in outcome.calls] == [
        ("call_1", "add", '{"a":1}'),
        ("call_2", "now", "{}"),
    ]
    assert [item.type for item in outcome.answer.items] == ["reasoning", "message", "function_call", "function_call"]
    assert [item.id for item in outcome.answer.items] == ["rs_0", "msg_1", "fc_2", "fc_3"]
    assert outcome.answer.finish == "tool_calls"
    assert outcome.answer.usage == Usage(input_tokens=9, output_tokens=5, cached_tokens=3)
    assert outcome.answer.model == "answering"


def test_encrypted_reasoning_is_resent_unchanged() -> None:
    answered = run_exchange([think("Hm.", encrypted_content="xyz"), call("add", a=1)], dialect="responses").answer
    sent = body("hello", *answered.items)["input"]
    assert sent[1] == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
        "encrypted_content": "xyz",
    }
    assert sent[2]["type"] == "function_call"


def test_reasoning_of_other_providers_or_without_encryption_is_not_sent() -> None:
    bare = Reasoning(summary="Hm.", opaque={"responses": {"type": "reasoning", "id": "rs_9", "summary": []}})
    foreign = Reasoning(text="No.", opaque={"anthropic": {"type": "thinking"}})
    assert [entry["type"] for entry in body("a", bare, foreign)["input"]] == ["message"]


def test_encrypted_reasoning_is_requested_only_once_from_a_model_without_it() -> None:
    async def exchange() -> None:
        refusal = status(400, {"error": {"message": "Encrypted content is not supported with this model."}})
        async with ScriptedModel(refusal, say("one"), say("two")).serve("responses") as server:
            model = model_at(server.url, "responses")
            await collect_events(model, model_request())
            await collect_events(model, model_request())
            await model.close()
            assert ["include" in received.json for received in server.received] == [True, False, False]

    run_with_timeout(exchange())


def test_hints_for_the_cache_are_left_out_for_a_model_that_refuses_them() -> None:
    async def exchange() -> None:
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}, "cache_control": {"type": "ephemeral"}}
        content = (TextContent(text="Hello", cache_mark=mark),)
        request = model_request(
            Message(role="user", content=content), prompt_cache_options={"ttl": "12h"}, prompt_cache_retention="24h"
        )
        refusals = [
            status(400, {"error": {"message": f"Unsupported parameter: '{name}'."}})
            for name in ("prompt_cache_options", "input[0].content[0].prompt_cache_breakpoint")
        ]
        async with ScriptedModel(*refusals, say("one"), say("two")).serve("responses") as server:
            model = model_at(server.url, "responses")
            for _ in range(2):
                await collect_events(model, request)
            await model.close()
            sent = [received.json for received in server.received]
            # A later request has them again: what was refused may be a value that another caller has chosen.
            options = [body.get("prompt_cache_options") for body in sent]
            assert options == [{"ttl": "12h"}, None, None, {"ttl": "12h"}]
            assert {body["prompt_cache_retention"] for body in sent} == {"24h"}
            parts = [body["input"][0]["content"][0] for body in sent]
            plain = {"type": "input_text", "text": "Hello"}
            marked = {**plain, "prompt_cache_breakpoint": {"mode": "explicit"}}
            assert parts == [marked, marked, plain, marked]

    run_with_timeout(exchange())


def test_the_limit_is_a_finish() -> None:
    assert run_exchange([say("a"), finish("length")], dialect="responses").answer.finish == "length"
    assert run_exchange([say("a"), finish("content_filter")], dialect="responses").answer.finish == "content_filter"
    assert run_exchange(say("a"), dialect="responses").answer.finish == "stop"


def test_broken_arguments_are_returned_unchanged() -> None:
    assert run_exchange(call_raw("add", "{bro"), dialect="responses").calls[0].arguments == "{bro"


def test_summaries_of_reasoning_are_streamed_and_stored() -> None:
    summary = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "x"}
    outcome = run_exchange(
        raw(
            {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1"}},
            {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
            {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "One."},
            {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1},
            {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Two."},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            END,
        ),
        dialect="responses",
    )
    assert outcome.thoughts == "One.\n\nTwo."
    assert outcome.reasoning == [Reasoning(summary="One.\n\nTwo.", opaque={"responses": item}, id="rs_1")]


def test_a_refusal_is_what_the_model_said() -> None:
    item = {"type": "message", "id": "m1", "content": [{"type": "refusal", "refusal": "No."}]}
    outcome = run_exchange(
        raw(
            {"type": "response.refusal.delta", "output_index": 0, "delta": "No."},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            END,
        ),
        dialect="responses",
    )
    assert outcome.message == "No."


def test_items_that_only_the_last_event_has_are_reported_then() -> None:
    output = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Yes."}]},
        {"type": "function_call", "id": "fc_1", "name": "now", "arguments": ""},
        {"type": "web_search_call", "id": "ws_1"},
    ]
    last = {"type": "response.completed", "response": {"status": "completed", "output": output}}
    outcome = run_exchange(raw(last), dialect="responses")
    assert (outcome.thoughts, outcome.message) == ("Hm.", "Yes.")
    assert outcome.calls == [FunctionCall(call_id="fc_1", name="now", arguments="{}", id="fc_1")]


def test_a_failed_response_is_an_error() -> None:
    error = {"code": "server_error", "message": "The model is tired."}
    found = exchange_error(
        raw({"type": "response.failed", "response": {"status": "failed", "error": error}}), dialect="responses"
    )
    assert "The model is tired." in str(found)
    assert found.is_retryable


def test_output_of_the_model_is_resent_without_ids() -> None:
    answered = run_exchange(say("Yes."), dialect="responses").answer
    assert answered.items[0].id
    assert "id" not in body("a", *answered.items, text_message("user", "b"))["input"][1]
