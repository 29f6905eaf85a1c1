"""An answer that comes as one document is the answer that comes as a stream, in every dialect and every failure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, get_args

import pytest
from providers.model_exchange import (
    Exchange,
    collect_events,
    exchange_error,
    model_at,
    model_request,
    run_exchange,
    run_with_timeout,
)

from holodeck.lib.errors import ModelError
from holodeck.models.llm import LLM
from holodeck.models.model_io import CallDelta, Logprob, ModelAnswer, ModelEvent, ReasoningDelta, TextDelta
from holodeck.providers.answer_decoder import join_deltas
from holodeck.providers.factory import build_model_provider
from holodeck.providers.http import endpoint, model
from holodeck.providers.wrappers.guarded import GuardedModel, Timeouts
from holodeck.providers.wrappers.retry import RetryPolicy
from holodeck.testing.model.script import (
    Turn,
    call_raw,
    cut,
    error_event,
    finish,
    page,
    raw,
    say,
    say_tokens,
    spend,
    status,
    think,
    tier,
    wait,
)
from holodeck.testing.model.scripted import DialectName, ScriptedModel

every_dialect = pytest.mark.parametrize("dialect", get_args(DialectName))
ALTERNATIVE = Logprob(token="Bye", logprob=-2.0)
TURNS: Mapping[str, Turn] = {
    "text": [say("Hello, wörld."), spend(9, 4, cached=3, reasoning=1, cache_write=2), tier("flex")],
    "calls": [say("I look."), call_raw("a", '{"x":1}', call_id="c1"), call_raw("a", "{}", call_id="c2")],
    "reasoning": [think("Hm, hm."), say("Yes.")],
    "signed reasoning": [think("Hm.", signature="abc="), say("Yes.")],
    "sealed reasoning": [think("", encrypted_content="xyz=", data="xyz="), say("Yes.")],
    "nothing": [spend(3, 0)],
    "length": [say("Hel"), finish("length")],
    "filter": [say("I"), finish("content_filter")],
    "logprobs": say_tokens(
        Logprob(token="Hello", logprob=-0.1, bytes=(72, 105), top=(ALTERNATIVE,)), Logprob(token="!", logprob=-0.2)
    ),
}
UNREAD = model_request(is_streamed=False)


def _joined(exchange: Exchange) -> Any:
    """What an exchange has told, however it was split into deltas."""
    logprobs = [each for event in exchange.events if isinstance(event, TextDelta) for each in event.logprobs]
    refused = {event.is_refusal for event in exchange.events if isinstance(event, TextDelta)}
    return exchange.answer, exchange.text, exchange.thoughts, exchange.calls, logprobs, refused


@every_dialect
def test_a_document_is_decoded_to_the_answer_of_the_stream(dialect: DialectName) -> None:
    for name, turn in TURNS.items():
        options = {"top_logprobs": 1} if name == "logprobs" and dialect != "anthropic" else {}
        streamed = run_exchange(turn, model_request(**options), dialect=dialect, chunk=2)
        whole = run_exchange(turn, model_request(is_streamed=False, **options), dialect=dialect, chunk=2)
        assert (streamed.body["stream"], whole.body["stream"]) == (True, False)
        assert "stream_options" not in whole.body
        assert whole.received[0].headers["accept"] == "application/json"
        assert _joined(whole) == _joined(streamed), name
        assert sum(isinstance(event, TextDelta) for event in whole.events) <= 1


def test_a_refusal_in_a_document_is_the_refusal_of_the_stream() -> None:
    part = {"type": "refusal", "refusal": "No."}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
    response = {"object": "response", "status": "completed", "output": [item]}
    message = {"role": "assistant", "content": None, "refusal": "No."}
    table: dict[DialectName, tuple[Turn, Turn]] = {
        "chat": (
            raw({"choices": [{"index": 0, "delta": message, "finish_reason": "stop"}]}, b"data: [DONE]\n\n"),
            status(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}),
        ),
        "responses": (
            raw(
                {"type": "response.refusal.delta", "output_index": 0, "delta": "No."},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": response},
            ),
            status(200, response),
        ),
    }
    for dialect, (events, document) in table.items():
        streamed, whole = run_exchange(events, dialect=dialect), run_exchange(document, UNREAD, dialect=dialect)
        assert _joined(whole) == _joined(streamed)
        assert TextDelta(text="No.", is_refusal=True) in whole.events


def test_calls_of_a_document_stay_apart_without_ids() -> None:
    calls = [{"function": {"name": "now", "arguments": ""}}] * 2
    document = {"choices": [{"index": 0, "message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    assert [each.name for each in run_exchange(status(200, document), UNREAD).calls] == ["now", "now"]


@every_dialect
def test_a_failure_in_a_document_is_the_failure_of_the_stream(dialect: DialectName) -> None:
    for turn, text in (
        ([say("Hel"), error_event("broken pipe")], "in the middle of its answer: broken pipe (server_error)"),
        ([say("Hel"), cut()], "the connection was lost before the answer was complete"),
        ([say("Hel"), cut(clean=True)], "ended before the answer was complete. Ask again."),
    ):
        for request in (model_request(), UNREAD):
            error = exchange_error(turn, request, dialect=dialect)
            assert text in str(error)
            assert error.is_retryable
    assert "it answered with text/html instead of JSON" in str(exchange_error(page(), UNREAD, dialect=dialect))
    error = exchange_error(status(200, {"error": {"message": "no", "type": "bad"}}), UNREAD, dialect=dialect)
    assert "no (bad)" in str(error)


def test_a_cancelled_response_is_no_answer() -> None:
    document = {"object": "response", "status": "cancelled", "output": []}
    assert "reported an error" in str(exchange_error(status(200, document), UNREAD, dialect="responses"))


@every_dialect
def test_a_document_that_trickles_in_is_complete(dialect: DialectName) -> None:
    assert run_exchange(say("Hello"), UNREAD, dialect=dialect, writing="bytes").message == "Hello"


def test_an_event_stream_that_nobody_asked_for_is_decoded() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}
    assert run_exchange(raw(chunk, b"data: [DONE]\n\n"), UNREAD).message == "Hello"


def test_a_document_is_read_no_further_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_MODEL_BODY_BYTES", 1_000)
    assert "too big to be one" in str(exchange_error(say("x" * 1_000), UNREAD))


@every_dialect
def test_a_document_that_does_not_come_is_given_up_and_its_connection_closed(dialect: DialectName) -> None:
    async def exchange() -> None:
        stall = wait(asyncio.Event())
        async with ScriptedModel([say("Hel"), stall], [say("Hel"), stall]).serve(dialect) as server:
            guarded = GuardedModel(model_at(server.url, dialect), timeouts=Timeouts(first=0.05, idle=9))
            with pytest.raises(ModelError, match=r"did not begin to answer within 0\.05 s"):
                await collect_events(guarded, UNREAD)
            await server.left.wait()
            server.left.clear()
            stall.reached.clear()
            asking = asyncio.create_task(collect_events(model_at(server.url, dialect), UNREAD))
            await stall.reached.wait()
            asking.cancel()
            await server.left.wait()
            await guarded.close()

    run_with_timeout(exchange())


def _forms(turns: list[Turn], *requests: Any, **settings: Any) -> list[bool]:
    """Whether each request that the server received asks for a stream."""

    async def exchange() -> list[bool]:
        async with ScriptedModel(*turns).serve() as server:
            llm = LLM(provider="openai_compatible", endpoint=server.url, name="m", **settings)
            guarded = build_model_provider(llm, {})
            for request in requests:
                await collect_events(guarded, request)
            await guarded.close()
            return [each.json["stream"] for each in server.received]

    return run_with_timeout(exchange())


def test_a_document_is_asked_for_unless_it_could_break_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    hello, long = say("Hello"), model_request(is_streamed=False, max_tokens=model.MAX_WHOLE_TOKENS + 1)
    assert _forms([hello] * 3, UNREAD, model_request(), UNREAD) == [False, True, False]
    assert _forms([hello] * 2, long, UNREAD) == [True, False]
    assert _forms([hello], UNREAD, timeout=20) == [True]
    monkeypatch.setattr(model, "SLOW_ANSWER_SECONDS", 0.0)
    assert _forms([hello] * 2, UNREAD, UNREAD) == [False, True]


def test_a_server_that_gives_up_a_document_is_asked_for_a_stream_until_it_is_quick() -> None:
    async def exchange() -> None:
        async with ScriptedModel(status(504), say("Hello"), say("Hello")).serve() as server:
            guarded = GuardedModel(model_at(server.url), retry=RetryPolicy(sleep=lambda _: asyncio.sleep(0)))
            await collect_events(guarded, UNREAD)
            await collect_events(guarded, UNREAD)
            await guarded.close()
            assert [each.json["stream"] for each in server.received] == [False, True, False]

    run_with_timeout(exchange())


def test_a_model_that_only_streams_is_asked_for_streams_from_then_on() -> None:
    refusal = status(400, {"error": {"message": "This model only supports stream mode."}})
    assert _forms([refusal, say("Hello"), say("Hello")], UNREAD, UNREAD) == [False, True, True]


def test_a_stream_that_nothing_reads_has_one_delta_for_each_item_of_a_read() -> None:
    turn = [think("Hm, hm."), say("Hello"), call_raw("a", '{"x":1}', call_id="c1")]

    async def exchange(dialect: DialectName) -> None:
        request = model_request(is_streamed=False, max_tokens=model.MAX_WHOLE_TOKENS + 1)
        async with ScriptedModel(turn, chunk=1).serve(dialect, writing="whole") as server:
            asked = model_at(server.url, dialect)
            async with aclosing(asked.stream(request)) as stream:
                *deltas, answer = [event async for event in stream]
            await asked.close()
        assert server.received[0].json["stream"] is True
        assert deltas == [
            ReasoningDelta(text="Hm, hm."),
            TextDelta(text="Hello"),
            CallDelta(index=0, call_id="c1", name="a", arguments='{"x":1}'),
        ]
        assert isinstance(answer, ModelAnswer)

    for dialect in get_args(DialectName):
        run_with_timeout(exchange(dialect))


def test_deltas_of_different_items_are_not_joined() -> None:
    one, other = Logprob(token="a", logprob=-1.0), Logprob(token="b", logprob=-2.0)
    deltas: list[ModelEvent] = [
        TextDelta(text="a", logprobs=(one,)),
        TextDelta(text="b", logprobs=(other,)),
        TextDelta(text="No.", is_refusal=True),
        CallDelta(index=0, call_id="c1", name="f"),
        CallDelta(index=1, call_id="c2", name="g", arguments="{"),
        CallDelta(index=1, arguments="}"),
        CallDelta(index=0, arguments="{}"),
    ]
    assert join_deltas(list(deltas)) == [
        TextDelta(text="ab", logprobs=(one, other)),
        deltas[2],
        deltas[3],
        CallDelta(index=1, call_id="c2", name="g", arguments="{}"),
        deltas[6],
    ]
