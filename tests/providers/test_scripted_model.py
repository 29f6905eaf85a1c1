"""The scripted model follows its script, and records every request."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from providers.model_exchange import collect_events, model_at, model_request, run_with_timeout

from holodeck.lib.errors import ModelError
from holodeck.models.items import FunctionCall, Reasoning, Usage, text_message
from holodeck.models.model_io import CallDelta, ModelAnswer, ModelRequest, ReasoningDelta, TextDelta
from holodeck.testing.model.script import call, call_raw, cut, fail, finish, raw, say, spend, think, wait
from holodeck.testing.model.scripted import ScriptedModel


def test_turns_are_played_in_order_and_requests_are_recorded() -> None:
    model = ScriptedModel([think("hm"), call("add", a=1), call("now")], [say("3"), spend(4, 2)], name="mine")
    first, second = model_request("a"), model_request("b")
    events = run_with_timeout(collect_events(model, first))
    assert events == [
        ReasoningDelta(text="hm"),
        CallDelta(index=0, call_id="call_1", name="add", arguments='{"a":1}'),
        CallDelta(index=1, call_id="call_2", name="now", arguments="{}"),
        ModelAnswer(
            items=(
                Reasoning(text="hm"),
                FunctionCall(call_id="call_1", name="add", arguments='{"a":1}'),
                FunctionCall(call_id="call_2", name="now", arguments="{}"),
            ),
            finish="tool_calls",
            model="mine",
        ),
    ]
    answer = ModelAnswer(
        items=(text_message("assistant", "3"),),
        finish="stop",
        usage=Usage(input_tokens=4, output_tokens=2),
        model="mine",
    )
    assert run_with_timeout(collect_events(model, second)) == [TextDelta(text="3"), answer]
    assert model.requests == [first, second]


def test_deltas_have_the_chosen_size() -> None:
    events = run_with_timeout(
        collect_events(ScriptedModel([say("abcde"), call_raw("f", "{}x", call_id="c")], chunk=2), model_request())
    )
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["ab", "cd", "e"]
    assert [event.arguments for event in events if isinstance(event, CallDelta)] == ["{}", "x"]


def test_a_script_may_be_a_function_of_the_request() -> None:
    def answer(request: ModelRequest) -> Any:
        return say(f"{len(request.items)} items")

    model = ScriptedModel(answer)
    for count in (1, 2):
        events = run_with_timeout(collect_events(model, model_request(*["a"] * count)))
        assert events[0] == TextDelta(text=f"{count} items")


def test_a_script_that_is_over_says_so() -> None:
    with pytest.raises(ModelError, match="'scripted' has 0 turns"):
        run_with_timeout(collect_events(ScriptedModel(), model_request()))


def test_it_fails_finishes_and_sends_raw_events_as_scripted() -> None:
    error = ModelError("no", status=500)
    model = ScriptedModel([say("a"), fail(error)], [say("a"), finish("length")], raw(TextDelta(text="x")), cut())
    with pytest.raises(ModelError) as found:
        run_with_timeout(collect_events(model, model_request()))
    assert found.value is error
    last = run_with_timeout(collect_events(model, model_request()))[-1]
    assert isinstance(last, ModelAnswer)
    assert last.finish == "length"
    assert run_with_timeout(collect_events(model, model_request()))[0] == TextDelta(text="x")
    with pytest.raises(TypeError, match="over HTTP only"):
        run_with_timeout(collect_events(model, model_request()))


def test_it_waits_for_its_event_and_stops_when_it_is_closed() -> None:
    async def exchange() -> None:
        stall = wait(asyncio.Event())
        model = ScriptedModel([stall, say("a")], [say("b"), wait(asyncio.Event())])
        reading = asyncio.create_task(collect_events(model, model_request()))
        await stall.reached.wait()
        assert not reading.done()
        stall.until.set()
        assert (await reading)[0] == TextDelta(text="a")
        async with aclosing(model.stream(model_request())) as events:
            assert await anext(events) == TextDelta(text="b")
        await model.close()
        assert model.is_closed

    run_with_timeout(exchange())


def test_the_server_refuses_what_is_not_its_path() -> None:
    async def exchange() -> None:
        async with ScriptedModel(say("a")).serve("anthropic") as server:
            model = model_at(server.url, "chat")
            with pytest.raises(ModelError, match=r"404.*there is no POST /chat/completions"):
                await collect_events(model, model_request())
            await model.close()

    run_with_timeout(exchange())
