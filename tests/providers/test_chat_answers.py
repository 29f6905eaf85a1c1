"""The events that Chat Completions answers become, in every shape that compatible servers send."""

from __future__ import annotations

from typing import Any

import pytest
from providers.model_exchange import run_exchange

from holodeck.models.items import FunctionCall, Reasoning, Usage, text_message
from holodeck.testing.model.script import call, call_raw, finish, raw, say, spend, think

DONE = b"data: [DONE]\n\n"


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def tool(index: int | None, arguments: Any = None, *, name: str | None = None, call_id: str | None = None) -> Any:
    part: dict[str, Any] = {"function": {"name": name, "arguments": arguments}, "id": call_id}
    return part if index is None else {**part, "index": index}


def calls(*parts: Any) -> dict[str, Any]:
    return chunk(tool_calls=list(parts))


@pytest.mark.parametrize("writing", ["events", "bytes", "whole"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_text_arrives_in_order_however_the_bytes_are_cut(writing: Any, newline: str) -> None:
    outcome = run_exchange([say("Grüße, 世界! 🎉"), spend(7, 5)], writing=writing, newline=newline, chunk=3)
    assert outcome.message == "Grüße, 世界! 🎉"
    assert outcome.answer.items == (text_message("assistant", "Grüße, 世界! 🎉"),)
    assert outcome.answer.finish == "stop"
    assert outcome.answer.usage == Usage(input_tokens=7, output_tokens=5)
    assert outcome.answer.model == "answering"


def test_several_calls_are_returned_complete_and_in_order() -> None:
    outcome = run_exchange([say("Let me see."), call("add", a=1, b=2), call("now"), call("sub", a=[1])], chunk=2)
    assert outcome.calls == [
        FunctionCall(call_id="call_1", name="add", arguments='{"a":1,"b":2}'),
        FunctionCall(call_id="call_2", name="now", arguments="{}"),
        FunctionCall(call_id="call_3", name="sub", arguments='{"a":[1]}'),
    ]
    assert outcome.answer.finish == "tool_calls"


def test_fragments_of_interleaved_calls_are_joined_per_call() -> None:
    outcome = run_exchange(
        raw(
            calls(tool(0, "", name="a", call_id="x"), tool(1, "", name="b", call_id="y")),
            calls(tool(1, '{"n":')),
            calls(tool(0, '{"m"'), tool(1, "2}")),
            calls(tool(0, ":1}")),
            chunk("tool_calls"),
            DONE,
        )
    )
    assert [(c.call_id, c.name, c.arguments) for c in outcome.calls] == [("x", "a", '{"m":1}'), ("y", "b", '{"n":2}')]


@pytest.mark.parametrize("arguments", ["", None, "{}"])
def test_no_arguments_are_an_empty_object(arguments: str | None) -> None:
    outcome = run_exchange(raw(calls(tool(0, arguments, name="now", call_id="x")), chunk("tool_calls"), DONE))
    assert outcome.calls[0].arguments == "{}"


def test_arguments_that_came_as_an_object_become_text() -> None:
    outcome = run_exchange(raw(calls(tool(0, {"a": 1}, name="add", call_id="x")), chunk("stop"), DONE))
    assert outcome.calls[0].arguments == '{"a":1}'


def test_broken_arguments_are_returned_unchanged() -> None:
    assert run_exchange(call_raw("add", '{"a": 1,,')).calls[0].arguments == '{"a": 1,,'


def test_whole_calls_that_all_have_number_0_are_separate_calls() -> None:
    outcome = run_exchange(
        raw(
            calls(tool(0, '{"a":1}', name="add", call_id="x")),
            calls(tool(0, '{"a":2}', name="add", call_id="y")),
            chunk("stop"),
            DONE,
        )
    )
    assert [(c.call_id, c.arguments) for c in outcome.calls] == [("x", '{"a":1}'), ("y", '{"a":2}')]
    assert outcome.answer.finish == "tool_calls"


def test_calls_without_numbers_and_ids_get_ids_of_their_own() -> None:
    parts = (tool(None, '{"a":1}', name="add"), tool(None, '{"a":', name="add"), tool(None, "2}"))
    events = raw(*(calls(part) for part in parts), chunk("stop"), DONE)
    first, again = run_exchange(events), run_exchange(events)
    assert [(c.name, c.arguments) for c in first.calls] == [("add", '{"a":1}'), ("add", '{"a":2}')]
    assert len({c.call_id for c in first.calls}) == 2
    assert first.calls == again.calls, "the same conversation gives the same ids"


def test_an_id_that_the_server_used_before_is_replaced() -> None:
    outcome = run_exchange(raw(calls(tool(0, "{}", name="a", call_id="x"), tool(1, "{}", name="b", call_id="x")), DONE))
    assert len({c.call_id for c in outcome.calls}) == 2


def test_a_name_may_come_after_the_id_and_the_id_with_every_fragment() -> None:
    outcome = run_exchange(
        raw(
            calls(tool(0, call_id="x")),
            calls(tool(0, '{"a"', name="add", call_id="x")),
            calls(tool(0, ":1}", name="add", call_id="x")),
            chunk("tool_calls"),
            DONE,
        )
    )
    assert [(c.call_id, c.name, c.arguments) for c in outcome.calls] == [("x", "add", '{"a":1}')]


def test_a_call_that_never_got_a_name_is_still_reported() -> None:
    outcome = run_exchange(raw(calls(tool(0, "{}", call_id="x")), chunk("tool_calls"), DONE))
    assert outcome.calls == [FunctionCall(call_id="x", name="", arguments="{}")]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_stored_with_the_name_of_its_field(field: str) -> None:
    outcome = run_exchange(
        raw(chunk(**{field: "Hm, "}), chunk(**{field: "yes."}), chunk(content="Yes"), chunk("stop"), DONE)
    )
    assert outcome.thoughts == "Hm, yes."
    assert outcome.reasoning == [Reasoning(text="Hm, yes.", opaque={"chat": field})]
    assert outcome.message == "Yes"


def test_content_in_parts_is_read() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    outcome = run_exchange(raw(chunk(content=[thought, {"type": "text", "text": "Yes"}]), chunk("stop"), DONE))
    assert (outcome.thoughts, outcome.message) == ("Hm", "Yes")


def test_a_refusal_is_what_the_model_said() -> None:
    assert run_exchange(raw(chunk(refusal="I can't "), chunk(refusal="do that."), chunk("stop"), DONE)).message == (
        "I can't do that."
    )


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
    ],
)
def test_every_finish_reason_is_mapped(reason: str, expected: str) -> None:
    assert run_exchange(raw(chunk(content="a"), chunk(reason), DONE)).answer.finish == expected


def test_a_call_that_was_cut_off_by_the_limit_is_not_taken_for_complete() -> None:
    assert run_exchange([call_raw("add", '{"a":'), finish("length")]).answer.finish == "length"


def test_usage_is_counted_with_its_details() -> None:
    usage = run_exchange([think("hm"), say("a"), spend(10, 6, cached=4, reasoning=2)]).answer.usage
    assert usage == Usage(input_tokens=10, output_tokens=6, cached_tokens=4, reasoning_tokens=2)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # xAI and Gemini count reasoning beside the completion; it is paid as output.
        (
            {"completion_tokens": 5, "total_tokens": 65, "completion_tokens_details": {"reasoning_tokens": 50}},
            Usage(input_tokens=10, output_tokens=55, reasoning_tokens=50),
        ),
        ({"completion_tokens": 5, "total_tokens": 65}, Usage(input_tokens=10, output_tokens=55, reasoning_tokens=50)),
        # OpenAI counts it in the completion.
        (
            {"completion_tokens": 55, "total_tokens": 65, "completion_tokens_details": {"reasoning_tokens": 50}},
            Usage(input_tokens=10, output_tokens=55, reasoning_tokens=50),
        ),
        ({"completion_tokens": 5}, Usage(input_tokens=10, output_tokens=5)),
        # DeepSeek, Moonshot and Mistral.
        *(
            (
                {"completion_tokens": 5, "total_tokens": 15, name: 8},
                Usage(input_tokens=10, output_tokens=5, cached_tokens=8),
            )
            for name in ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens")
        ),
    ],
)
def test_usage_is_that_of_the_bill_however_a_service_tells_it(counts: dict[str, Any], expected: Usage) -> None:
    told = {"choices": [], "usage": {"prompt_tokens": 10, **counts}}
    assert run_exchange(raw(chunk(content="a"), chunk("stop"), told, DONE)).answer.usage == expected


def test_usage_may_be_missing() -> None:
    assert run_exchange(say("a")).answer.usage == Usage()


def test_deltas_may_lack_a_role_or_be_null_and_comments_may_come_between() -> None:
    null = {"choices": [{"index": 0, "delta": None, "finish_reason": None}]}
    other = {"choices": [{"index": 1, "delta": {"content": "never"}, "finish_reason": "stop"}]}
    outcome = run_exchange(
        raw(b": ping\n\n", null, other, b"event: x\nid: 7\n", chunk(content="a"), chunk("stop"), DONE)
    )
    assert outcome.message == "a"


def test_an_event_may_have_its_data_on_several_lines() -> None:
    outcome = run_exchange(
        raw(b'data: {"choices": [{"index": 0,\ndata:"delta": {"content": "a"}}]}\n\n', chunk("stop"), DONE)
    )
    assert outcome.message == "a"


def test_a_finish_without_a_last_mark_is_complete() -> None:
    assert run_exchange(raw(chunk(content="a"), chunk("stop"))).message == "a"


def test_a_last_mark_without_a_finish_or_a_blank_line_is_complete() -> None:
    assert run_exchange(raw(chunk(content="a"), b"data: [DONE]")).answer.finish == "stop"


def test_the_old_function_call_is_understood() -> None:
    outcome = run_exchange(raw(chunk(function_call={"name": "now", "arguments": "{}"}), chunk("function_call"), DONE))
    assert [c.name for c in outcome.calls] == ["now"]
