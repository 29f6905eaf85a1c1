"""Retries, time-outs and the breaker, each around a scripted model and together."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest
from providers.model_exchange import collect_events, model_at, model_request, run_with_timeout

from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelAnswer, ModelEvent, TextDelta
from holodeck.providers.base import ModelProvider
from holodeck.providers.wrappers.guarded import CircuitBreaker, GuardedModel, Timeouts
from holodeck.providers.wrappers.retry import LongRetrying, RetryPolicy
from holodeck.testing.model.script import Turn, cut, error_event, fail, raw, say, status, wait
from holodeck.testing.model.scripted import DialectName, ScriptedModel

BUSY = ModelError("busy", is_retryable=True)
WRONG = ModelError("wrong question")


class Pauses:
    """A sleep that takes no time and remembers how long it should have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def joined_text(events: list[ModelEvent]) -> str:
    assert isinstance(events[-1], ModelAnswer)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def read_into(seen: list[ModelEvent], model: ModelProvider) -> None:
    async for event in model.stream(model_request()):
        seen.append(event)


def retried(*turns: Turn, chance: float = 0.0) -> tuple[ScriptedModel, GuardedModel, Pauses]:
    model, pauses = ScriptedModel(*turns), Pauses()
    return model, GuardedModel(model, retry=RetryPolicy(sleep=pauses, jitter=lambda: chance)), pauses


def test_a_request_to_a_busy_model_is_repeated_after_growing_pauses() -> None:
    model, retrying, pauses = retried(fail(BUSY), fail(BUSY), fail(BUSY), say("at last"), chance=1.0)
    assert joined_text(run_with_timeout(collect_events(retrying, model_request()))) == "at last"
    assert pauses.seconds == [0.5, 1.0, 2.0]
    assert len(model.requests) == 4
    assert retrying.name == model.name


def test_jitter_shortens_the_pauses() -> None:
    _, retrying, pauses = retried(fail(BUSY), fail(BUSY), say("ok"), chance=0.0)
    run_with_timeout(collect_events(retrying, model_request()))
    assert pauses.seconds == [0.25, 0.5]


def test_a_model_that_stays_busy_is_an_error() -> None:
    model, retrying, _ = retried(*[fail(BUSY)] * 9)
    with pytest.raises(ModelError, match="busy"):
        run_with_timeout(collect_events(retrying, model_request()))
    assert len(model.requests) == 4


def test_a_refusal_is_not_repeated() -> None:
    model, retrying, pauses = retried(fail(WRONG))
    with pytest.raises(ModelError, match="wrong question"):
        run_with_timeout(collect_events(retrying, model_request()))
    assert (len(model.requests), pauses.seconds) == (1, [])


def test_no_request_is_repeated_once_the_answer_has_begun() -> None:
    async def exchange() -> None:
        async with ScriptedModel([say("half"), cut()], say("never")).serve() as server:
            model = GuardedModel(model_at(server.url), retry=RetryPolicy(sleep=Pauses()))
            seen: list[ModelEvent] = []
            with pytest.raises(ModelError, match="before the answer was complete"):
                await read_into(seen, model)
            await model.close()
            assert seen == [TextDelta(text="half")]
            assert len(server.received) == 1

    run_with_timeout(exchange())


@pytest.mark.parametrize("dialect", get_args(DialectName))
@pytest.mark.parametrize(
    "trouble",
    [
        error_event("out of memory"),
        raw(b"data: {nonsense\n\n"),
        raw(b"data: 7\n\n"),
        raw({"type": "response.completed", "response": 5, "choices": 5, "error": 7}),
    ],
)
def test_events_that_came_together_with_an_error_are_returned_before_it(dialect: Any, trouble: Any) -> None:
    async def exchange() -> None:
        async with ScriptedModel([say("half"), trouble], say("never")).serve(dialect, writing="whole") as server:
            model = GuardedModel(model_at(server.url, dialect), retry=RetryPolicy(sleep=Pauses()))
            seen: list[ModelEvent] = []
            with pytest.raises(ModelError):
                await read_into(seen, model)
            await model.close()
            assert seen == [TextDelta(text="half")]
            assert len(server.received) == 1

    run_with_timeout(exchange())


def test_events_after_the_last_one_are_ignored() -> None:
    async def exchange() -> None:
        last = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
        async with ScriptedModel(raw(last + b"data: {nonsense\n\n")).serve(writing="whole") as server:
            model = model_at(server.url)
            assert joined_text(await collect_events(model, model_request())) == "a"
            await model.close()

    run_with_timeout(exchange())


def test_a_connection_that_is_lost_before_the_answer_is_made_again() -> None:
    async def exchange() -> None:
        async with ScriptedModel(cut(), status(503), say("ok")).serve() as server:
            model = GuardedModel(model_at(server.url), retry=RetryPolicy(sleep=Pauses()))
            assert joined_text(await collect_events(model, model_request())) == "ok"
            await model.close()
            assert len({received.body for received in server.received}) == 1
            assert len(server.received) == 3

    run_with_timeout(exchange())


def test_the_pause_that_the_provider_requests_is_respected_up_to_a_limit() -> None:
    async def exchange() -> None:
        async with ScriptedModel(
            status(429, retry_after="3"), status(429, retry_after="60"), say("ok"), status(429, retry_after="61")
        ).serve() as server:
            pauses = Pauses()
            model = GuardedModel(model_at(server.url), retry=RetryPolicy(sleep=pauses))
            assert joined_text(await collect_events(model, model_request())) == "ok"
            with pytest.raises(ModelError, match="Ask again in 61 s"):
                await collect_events(model, model_request())
            await model.close()
            assert pauses.seconds == [3.0, 60.0]

    run_with_timeout(exchange())


def test_a_model_that_does_not_begin_is_an_error() -> None:
    async def exchange() -> None:
        async with ScriptedModel([wait(asyncio.Event()), say("never")]).serve() as server:
            model = GuardedModel(model_at(server.url), timeouts=Timeouts(first=0.02, idle=5))
            with pytest.raises(ModelError, match=r"'m' did not begin to answer within 0.02 s") as found:
                await collect_events(model, model_request())
            assert found.value.is_retryable
            await model.close()

    run_with_timeout(exchange())


def test_a_model_that_falls_silent_is_an_error() -> None:
    async def exchange() -> None:
        async with ScriptedModel([say("a"), wait(asyncio.Event())]).serve() as server:
            model = GuardedModel(model_at(server.url), timeouts=Timeouts(first=5, idle=0.02))
            with pytest.raises(ModelError, match=r"fell silent in the middle of its answer for 0.02 s"):
                await collect_events(model, model_request())
            await server.left.wait()
            await model.close()

    run_with_timeout(exchange())


def test_each_request_has_its_own_timeout_on_whatever_loop_it_runs() -> None:
    silent = [[wait(asyncio.Event())] for _ in range(2)]
    scripted = ScriptedModel(say("one"), silent[0], say("two"), silent[1], say("three"))
    model = GuardedModel(scripted, timeouts=Timeouts(first=0.05, idle=5))

    async def answer() -> str:
        return joined_text(await collect_events(model, model_request()))

    async def first_loop() -> None:
        assert await answer() == "one"
        assert "did not begin" in str(await error_of(model))
        assert await answer() == "two"

    async def second_loop() -> None:
        assert "did not begin" in str(await error_of(model))
        assert await answer() == "three"
        await model.close()

    run_with_timeout(first_loop())
    run_with_timeout(second_loop())


def test_a_request_can_be_cancelled_after_an_earlier_one_timed_out() -> None:
    async def exchange() -> None:
        silent = [[wait(asyncio.Event())] for _ in range(2)]
        model = GuardedModel(ScriptedModel(*silent), timeouts=Timeouts(first=0.05, idle=5))
        await error_of(model)
        asking = asyncio.create_task(collect_events(model, model_request()))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await model.close()

    run_with_timeout(exchange())


def test_the_time_of_the_reader_does_not_count() -> None:
    async def exchange() -> None:
        seen = []
        model = GuardedModel(ScriptedModel(say("abc"), chunk=1), timeouts=Timeouts(first=0, idle=0))
        async for event in model.stream(model_request()):
            await asyncio.sleep(0)  # any turn of the loop would be too long for the model
            seen.append(event)
        assert len(seen) == 4

    run_with_timeout(exchange())


def broken(*turns: Turn) -> tuple[ScriptedModel, GuardedModel, Clock]:
    model, clock = ScriptedModel(*turns), Clock()
    breaker, once = CircuitBreaker(failures=3, pause=30, clock=clock), RetryPolicy(attempts=1)
    return model, GuardedModel(model, breaker=breaker, retry=once), clock


async def error_of(model: ModelProvider, **fields: Any) -> ModelError:
    with pytest.raises(ModelError) as found:
        await collect_events(model, model_request(**fields))
    return found.value


def test_a_failing_provider_gets_no_requests_for_a_while_then_one_probe() -> None:
    async def exchange() -> None:
        model, breaker, clock = broken(*[fail(BUSY)] * 4, say("back"), say("again"))
        for _ in range(3):
            assert str(await error_of(breaker)) == "busy"
        clock.now = 10
        error = await error_of(breaker)
        assert str(error) == ("Model 'scripted' failed 3 times in a row and is left alone: it is tried again in 20 s.")
        assert error.retry_after == 20
        assert len(model.requests) == 3, "no request was sent"
        clock.now = 31
        assert str(await error_of(breaker)) == "busy"
        assert "tried again in 30 s" in str(await error_of(breaker))
        clock.now = 62
        assert joined_text(await collect_events(breaker, model_request())) == "back"
        assert not breaker.is_open
        assert joined_text(await collect_events(breaker, model_request())) == "again"

    run_with_timeout(exchange())


def test_a_run_that_repeats_its_turn_counts_as_one_failure() -> None:
    async def exchange() -> None:
        _, breaker, _ = broken(*[fail(BUSY)] * 8, say("well"))
        again = LongRetrying(breaker, seconds=60, sleep=Pauses(), clock=Clock())
        events = await collect_events(again, model_request(run_id="resp_1", caller_id="key:a"))
        assert joined_text(events) == "well"
        assert not breaker.is_open

    run_with_timeout(exchange())


def test_runs_of_one_caller_that_fail_leave_the_model_to_the_others() -> None:
    async def exchange() -> None:
        model, breaker, _ = broken(*[fail(BUSY)] * 3, say("well"), *[fail(BUSY)] * 4)
        for run in "123":
            await error_of(breaker, run_id=run, caller_id="key:a")
        assert "left alone" in str(await error_of(breaker, run_id="4", caller_id="key:a"))
        well = await collect_events(breaker, model_request(run_id="5", caller_id="key:b"))
        assert joined_text(well) == "well"
        assert not breaker.is_open, "the model answers"
        for run in "678":
            await error_of(breaker, run_id=run, caller_id="key:a")
        assert str(await error_of(breaker, run_id="9", caller_id="key:b")) == "busy"
        sent = len(model.requests)
        assert "left alone" in str(await error_of(breaker, run_id="10", caller_id="key:c"))
        assert len(model.requests) == sent, "two callers have failed, so that it is the model"

    run_with_timeout(exchange())


def test_only_one_caller_probes_and_a_cancelled_probe_decides_nothing() -> None:
    async def exchange() -> None:
        stall = wait(asyncio.Event())
        _, breaker, clock = broken(*[fail(BUSY)] * 3, [stall, say("never")], say("back"))
        for _ in range(3):
            await error_of(breaker)
        clock.now = 31
        probe = asyncio.create_task(collect_events(breaker, model_request()))
        await stall.reached.wait()
        turned_away = await error_of(breaker)
        assert "by another caller" in str(turned_away)
        assert turned_away.retry_after == 0
        probe.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probe
        assert joined_text(await collect_events(breaker, model_request())) == "back"

    run_with_timeout(exchange())


@pytest.mark.parametrize("late", [say("late"), fail(BUSY), fail(WRONG)])
def test_a_request_from_before_the_breaker_opened_neither_closes_it_nor_allows_another_probe(late: Any) -> None:
    async def exchange() -> None:
        slow, trying = wait(asyncio.Event()), wait(asyncio.Event())
        model, breaker, clock = broken([slow, late], *[fail(BUSY)] * 3, [trying, fail(BUSY)], say("back"))
        early = asyncio.create_task(collect_events(breaker, model_request()))
        await slow.reached.wait()
        for _ in range(3):
            await error_of(breaker)
        clock.now = 31
        probe = asyncio.create_task(collect_events(breaker, model_request()))
        await trying.reached.wait()
        slow.until.set()
        await asyncio.wait({early})
        assert isinstance(early.exception(), ModelError) is (late != say("late"))
        assert "by another caller" in str(await error_of(breaker))
        assert len(model.requests) == 5, "only one request is the probe"
        clock.now = 40
        trying.until.set()
        await asyncio.wait({probe})
        assert "in 30 s" in str(await error_of(breaker)), "the pause begins with the failure of the probe"
        clock.now = 71
        assert joined_text(await collect_events(breaker, model_request())) == "back"

    run_with_timeout(exchange())


def test_requests_that_fail_late_do_not_make_the_pause_longer() -> None:
    async def exchange() -> None:
        slow = wait(asyncio.Event())
        _, breaker, clock = broken([slow, fail(BUSY)], *[fail(BUSY)] * 3, say("back"))
        early = asyncio.create_task(collect_events(breaker, model_request()))
        await slow.reached.wait()
        for _ in range(3):
            await error_of(breaker)
        clock.now = 29
        slow.until.set()
        await asyncio.wait({early})
        assert str(early.exception()) == "busy"
        clock.now = 31
        assert joined_text(await collect_events(breaker, model_request())) == "back"

    run_with_timeout(exchange())


def test_requests_are_accepted_as_soon_as_the_probe_succeeds() -> None:
    async def exchange() -> None:
        rest = wait(asyncio.Event())
        _, breaker, clock = broken(*[fail(BUSY)] * 3, [say("a long "), rest, say("answer")], say("meanwhile"))
        for _ in range(3):
            await error_of(breaker)
        clock.now = 31
        probe = asyncio.create_task(collect_events(breaker, model_request()))
        await rest.reached.wait()
        assert joined_text(await collect_events(breaker, model_request())) == "meanwhile"
        rest.until.set()
        assert joined_text(await probe) == "a long answer"

    run_with_timeout(exchange())


def test_refusals_and_successes_keep_the_breaker_closed() -> None:
    async def exchange() -> None:
        turns: list[Turn] = [fail(BUSY), fail(BUSY), fail(WRONG), fail(BUSY), fail(BUSY), say("ok"), fail(BUSY)]
        _, breaker, _ = broken(*turns)
        for turn in turns:
            if turn == say("ok"):
                await collect_events(breaker, model_request())
            else:
                await error_of(breaker)
        assert not breaker.is_open

    run_with_timeout(exchange())


def test_a_provider_that_answers_some_of_many_requests_keeps_the_breaker_closed() -> None:
    async def exchange() -> None:
        slow = wait(asyncio.Event())
        model, breaker, _ = broken(
            *[[slow, say("slow")]] * 2, *[[slow, fail(BUSY)]] * 3, *[fail(BUSY)] * 4, say("next")
        )
        tasks = [asyncio.create_task(collect_events(breaker, model_request())) for _ in range(5)]
        while len(model.requests) < len(tasks):
            await slow.reached.wait()
            await asyncio.sleep(0)
        for _ in range(4):
            assert str(await error_of(breaker)) == "busy"
        slow.until.set()
        await asyncio.wait(tasks)
        assert not breaker.is_open
        assert joined_text(await collect_events(breaker, model_request())) == "next"

    run_with_timeout(exchange())


def test_a_provider_that_refuses_for_too_many_requests_keeps_the_breaker_closed() -> None:
    async def exchange() -> None:
        refusal = ModelError("slow down", status=429, is_retryable=True)
        _, breaker, clock = broken(*[fail(BUSY)] * 3, *[fail(refusal)] * 5, say("ok"))
        for _ in range(3):
            await error_of(breaker)
        clock.now = 31
        for _ in range(5):
            assert str(await error_of(breaker)) == "slow down"
        assert joined_text(await collect_events(breaker, model_request())) == "ok"

    run_with_timeout(exchange())


def test_abandoning_a_wrapped_model_closes_its_connection() -> None:
    async def exchange() -> None:
        stall = wait(asyncio.Event())
        async with ScriptedModel([say("a"), stall]).serve("responses") as server:
            model = GuardedModel(model_at(server.url, "responses"))
            events = model.stream(model_request())
            assert await anext(events) == TextDelta(text="a")
            await events.aclose()
            await server.left.wait()
            await model.close()

    run_with_timeout(exchange())
