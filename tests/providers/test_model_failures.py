"""Every failure of a model is one error that names the model, the cause and the fix, and leaves nothing open."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import aclosing
from typing import Any, get_args

import pytest
from providers.model_exchange import KEY, collect_events, exchange_error, model_at, model_request, run_with_timeout

from holodeck.lib.errors import ModelError
from holodeck.lib.secret import Secret
from holodeck.models.model_io import ModelRequest, TextDelta
from holodeck.providers.base import ModelProvider
from holodeck.providers.openai_chat import ChatCompletions
from holodeck.testing.model.script import cut, error_event, page, raw, say, status, wait
from holodeck.testing.model.scripted import DialectName, ScriptedModel

DIALECTS = get_args(DialectName)
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


async def first_event(model: ModelProvider, request: ModelRequest) -> Any:
    """The first event of a stream that is then abandoned."""
    async with aclosing(model.stream(request)) as events:
        return await anext(events)


@every_dialect
@pytest.mark.parametrize(
    ("code", "advice", "is_retryable"),
    [
        (400, "", False),
        (401, "Check the key in ", False),
        (403, "Check the key in ", False),
        (404, "Check the name of the model", False),
        (408, "", True),
        (409, "", True),
        (413, "too big", False),
        (429, "Ask again later", True),
        (500, "ask again later", True),
        (503, "ask again later", True),
        (529, "ask again later", True),
        (302, "Redirects are not followed", False),
    ],
)
def test_a_refusal_says_what_to_do(dialect: Any, code: int, advice: str, is_retryable: bool) -> None:
    error = exchange_error(status(code, {"error": {"message": "because", "type": "reason"}}), dialect=dialect)
    assert error.status == code
    assert error.is_retryable is is_retryable
    assert str(error).startswith("Model 'm' at 127.0.0.1:")
    assert f"it answered {code} " in str(error)
    assert "because (reason)" in str(error)
    assert advice in str(error)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"error": "just words"}, "just words"),
        ({"detail": "of FastAPI"}, "of FastAPI"),
        ({"message": "at the top", "code": "x1"}, "at the top (x1)"),
        ([{"error": {"message": "in a list"}}], "in a list"),
        ({"detail": [{"loc": ["a"], "msg": "bad"}]}, '[{"loc":["a"],"msg":"bad"}]'),
        (b"plain text\nin two lines", "plain text in two lines"),
        (b"<html>Bad gateway</html>", "a web page instead of JSON"),
        (b"", "Internal Server Error."),
        (b"\xff\xfe", "Internal Server Error"),
        ("\x1b[31mred", "<U+001B>[31mred"),
    ],
)
def test_the_reason_is_found_in_any_body(body: Any, reason: str) -> None:
    assert reason in str(exchange_error(status(500, body)))


def test_long_reasons_are_clipped() -> None:
    assert len(str(exchange_error(status(500, {"error": {"message": "long " * 100_000}})))) < 800


@every_dialect
def test_the_key_is_in_no_error_even_when_the_provider_repeats_it(dialect: Any) -> None:
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}. Also sk-proj-abcdef123456 and Bearer abcdefghij"}}
    for turn in (status(401, echo), raw({"type": "error", **echo})):
        error = exchange_error(turn, dialect=dialect)
        assert "Incorrect API key provided: ***" in str(error)
        assert KEY not in repr(error) + str(error.__dict__)
        assert "abcdef" not in str(error)


def test_the_advice_for_a_wrong_key_names_its_variable() -> None:
    assert "Check the key in OPENAI_API_KEY." in str(exchange_error(status(401), dialect="responses"))
    assert "Check the key in ANTHROPIC_API_KEY." in str(exchange_error(status(401), dialect="anthropic"))
    assert "Check the key in model.api_key." in str(exchange_error(status(401), dialect="chat"))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after": "9", "retry_after_ms": "1500"}, 1.5),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-3"}, None),
        ({"retry_after": "inf"}, None),
        ({}, None),
    ],
)
def test_the_pause_that_a_provider_asks_for_is_read(headers: dict[str, Any], seconds: float | None) -> None:
    error = exchange_error(status(429, None, **headers))
    assert error.retry_after == seconds
    if seconds == 7.0:
        assert "Ask again in 7 s." in str(error)


def test_a_provider_may_say_whether_to_retry() -> None:
    assert not exchange_error(status(500, x_should_retry="false")).is_retryable
    assert exchange_error(status(400, x_should_retry="true")).is_retryable
    assert not exchange_error(status(429, {"error": {"message": "pay", "code": "insufficient_quota"}})).is_retryable


@every_dialect
@pytest.mark.parametrize("clean", [True, False])
def test_a_stream_that_ends_too_early_is_an_error(dialect: Any, clean: bool) -> None:
    error = exchange_error([say("half an ans"), cut(clean=clean)], dialect=dialect)
    assert "before the answer was complete" in str(error)
    assert error.is_retryable


@every_dialect
def test_a_stream_that_is_cut_in_the_middle_of_an_event_is_an_error(dialect: Any) -> None:
    assert "before the answer was complete" in str(exchange_error(raw(b'data: {"choices": [{"del'), dialect=dialect))
    assert "before the answer was complete" in str(exchange_error(raw(b""), dialect=dialect))


@every_dialect
def test_a_last_mark_alone_is_no_answer(dialect: Any) -> None:
    assert "before the answer was complete" in str(exchange_error(raw(b"data: [DONE]\n\n"), dialect=dialect))


@every_dialect
def test_an_error_in_the_stream_is_an_error(dialect: Any) -> None:
    error = exchange_error([say("a"), error_event("out of memory")], dialect=dialect)
    assert "in the middle of its answer: out of memory (server_error)" in str(error)
    assert error.is_retryable
    assert not exchange_error(error_event("bad", "invalid_request_error"), dialect=dialect).is_retryable


@every_dialect
@pytest.mark.parametrize("garbage", [b"data: {nonsense\n\n", b"data: 7\n\n", b'data: "text"\n\n', b"data:\n\n"])
def test_garbage_in_the_stream_is_an_error(dialect: Any, garbage: bytes) -> None:
    assert "not a JSON object" in str(exchange_error(raw(garbage), dialect=dialect))


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("chat", {"choices": 5}),
        ("chat", {"choices": [{"delta": {"tool_calls": [{"index": {}}]}}]}),
        ("chat", {"choices": [{"delta": {"content": 5}}]}),
        ("chat", {"choices": [{"delta": {"refusal": 5}, "finish_reason": "stop"}]}),
        ("chat", {"usage": {"prompt_tokens_details": 5}}),
        ("responses", {"type": "response.output_text.delta"}),
        ("responses", {"type": "response.function_call_arguments.delta", "delta": "x"}),
        ("responses", {"type": "response.completed", "response": 5}),
        ("anthropic", {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "a"}}),
        ("anthropic", {"type": "message_start"}),
    ],
)
def test_events_of_a_wrong_shape_are_an_error(dialect: Any, event: Any) -> None:
    assert "shape" in str(exchange_error(raw(event), dialect=dialect))


@every_dialect
def test_a_web_page_is_an_error_that_points_at_the_path(dialect: Any) -> None:
    assert "text/html instead of an event stream. Check the path" in str(exchange_error(page(), dialect=dialect))


def test_an_answer_that_is_not_streamed_is_read() -> None:
    chat = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "model": "m"}
    responses = {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "a"}]}],
    }
    anthropic = {"type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}

    async def exchange() -> None:
        for dialect, body in zip(DIALECTS, (chat, responses, anthropic), strict=True):
            async with ScriptedModel(status(200, body)).serve(dialect) as server:
                model = model_at(server.url, dialect)
                events = await collect_events(model, model_request())
                await model.close()
                assert events[0] == TextDelta(text="a")
                assert len(events) == 2

    run_with_timeout(exchange())


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
def test_a_stream_by_another_name_is_read(kind: str) -> None:
    async def exchange() -> None:
        stream = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
        async with ScriptedModel(status(200, stream, content_type=kind)).serve() as server:
            model = model_at(server.url)
            assert (await collect_events(model, model_request()))[0] == TextDelta(text="a")
            await model.close()

    run_with_timeout(exchange())


def test_a_server_that_is_not_there_is_named() -> None:
    async def exchange() -> None:
        async with ScriptedModel().serve() as server:
            url = server.url
        model = model_at(url)
        with pytest.raises(
            ModelError, match=r"127\.0\.0\.1:\d+ .*could not be reached.*Is the server running\?"
        ) as found:
            await collect_events(model, model_request())
        assert found.value.is_retryable
        await model.close()
        await model.close()

    run_with_timeout(exchange())


def test_the_query_of_an_endpoint_is_sent_and_never_shown() -> None:
    async def exchange() -> None:
        async with ScriptedModel(status(500)).serve() as server:
            model = ChatCompletions(base_url=f"{server.url}?key=hidden", model="m", api_key=Secret(KEY))
            with pytest.raises(ModelError) as found:
                await collect_events(model, model_request())
            assert server.received[0].query == {"key": "hidden"}
        with pytest.raises(ModelError) as unreachable:
            await collect_events(model, model_request())
        await model.close()
        for error in (found.value, unreachable.value):
            assert "hidden" not in "".join(traceback.format_exception(error))

    run_with_timeout(exchange())


@every_dialect
def test_abandoning_an_answer_closes_the_connection_at_once(dialect: Any) -> None:
    async def exchange() -> None:
        never = asyncio.Event()
        async with ScriptedModel([say("a"), wait(never), say("b")]).serve(dialect) as server:
            model = model_at(server.url, dialect)
            assert await first_event(model, model_request()) == TextDelta(text="a")
            await server.left.wait()
            await model.close()

    run_with_timeout(exchange())


@every_dialect
def test_cancelling_closes_the_connection_at_once(dialect: Any) -> None:
    async def exchange() -> None:
        stall = wait(asyncio.Event())
        async with ScriptedModel([say("a"), stall]).serve(dialect) as server:
            model = model_at(server.url, dialect)
            reading = asyncio.create_task(collect_events(model, model_request()))
            await stall.reached.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await server.left.wait()
            await model.close()

    run_with_timeout(exchange())


@every_dialect
def test_requests_share_one_connection(dialect: Any) -> None:
    async def exchange() -> None:
        async with ScriptedModel(*[say("a")] * 3, status(500), say("b")).serve(dialect) as server:
            model = model_at(server.url, dialect)
            for _ in range(3):
                await collect_events(model, model_request())
            with pytest.raises(ModelError):
                await collect_events(model, model_request())
            await collect_events(model, model_request())
            await model.close()
            assert len(server.connections) == 1

    run_with_timeout(exchange())


def test_concurrent_requests_do_not_mix() -> None:
    async def exchange() -> None:
        def echo(received: Any) -> Any:
            return say(received.json["messages"][0]["content"])

        async with ScriptedModel(echo, chunk=1).serve(writing="bytes") as server:
            model = model_at(server.url)
            answers = await asyncio.gather(*(collect_events(model, model_request(f"question {n}")) for n in range(20)))
            await model.close()
        for number, events in enumerate(answers):
            assert "".join(e.text for e in events if isinstance(e, TextDelta)) == f"question {number}"

    run_with_timeout(exchange())
