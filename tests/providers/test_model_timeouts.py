"""Timeouts of a model that falls silent, on a loop whose clock a test moves: they end no other request."""

from __future__ import annotations

import asyncio

import pytest
from providers.model_exchange import collect_events, model_request
from providers.raw_server import Peer, ask_text, both_loops, http_answer, run_on_loop, serve_raw

from holodeck.lib.errors import ModelError
from holodeck.models.llm import LLM
from holodeck.models.model_io import TextDelta
from holodeck.providers.factory import build_model_provider
from holodeck.providers.wrappers.guarded import GuardedModel, Timeouts
from holodeck.testing.model.script import say, wait
from holodeck.testing.model.scripted import ScriptedModel

LONG = 1_000_000.0


class Hurried(asyncio.SelectorEventLoop):
    """A loop whose clock a test moves."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def later(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Hurried)
    loop.ahead += seconds


async def some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_cancellation_at_the_moment_of_a_timeout_is_still_a_cancellation() -> None:
    async def exchange() -> None:
        stall = wait(asyncio.Event())
        model = GuardedModel(ScriptedModel([stall]), timeouts=Timeouts(first=1, idle=1))
        asking = asyncio.create_task(collect_events(model, model_request()))
        await stall.reached.wait()
        loop = asyncio.get_running_loop()
        loop.call_at(loop.time() + 2, asking.cancel)
        later(3)  # both have happened, the timeout first
        with pytest.raises(asyncio.CancelledError):
            await asking
        await model.close()

    run_on_loop(exchange, Hurried, limit=LONG)


def test_a_timeout_leaves_the_cancellation_count_of_the_task_unchanged() -> None:
    async def exchange() -> None:
        task = asyncio.current_task()
        assert task is not None
        for before in range(2):  # times that it was cancelled, and went on all the same
            stall = wait(asyncio.Event())
            model = GuardedModel(ScriptedModel([stall]), timeouts=Timeouts(first=0.01, idle=1))
            with pytest.raises(ModelError, match="did not begin to answer"):
                await collect_events(model, model_request())
            assert task.cancelling() == before
            await model.close()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
        task.uncancel()
        task.uncancel()

    run_on_loop(exchange, Hurried, limit=LONG)


def test_a_pause_counts_from_its_own_beginning() -> None:
    async def exchange() -> None:
        stall = wait(asyncio.Event())
        model = GuardedModel(ScriptedModel([say("a"), stall, say("b")]), timeouts=Timeouts(first=10, idle=50))
        asking = asyncio.create_task(collect_events(model, model_request()))
        await stall.reached.wait()
        await some_turns()
        later(40)  # more than it had for its beginning
        await some_turns()
        stall.until.set()
        events = await asking
        assert [each.text for each in events if isinstance(each, TextDelta)] == ["a", "b"]
        await model.close()

    run_on_loop(exchange, Hurried, limit=LONG)


def test_a_reader_may_take_longer_than_any_model() -> None:
    async def exchange() -> None:
        model = GuardedModel(ScriptedModel(say("abc"), chunk=1), timeouts=Timeouts(first=1, idle=1))
        seen = 0
        async for _ in model.stream(model_request()):
            later(10)
            await some_turns()
            seen += 1
        assert seen == 4
        await model.close()

    run_on_loop(exchange, Hurried, limit=LONG)


@both_loops
async def test_closing_a_model_closes_its_connections_whatever_is_around_it() -> None:
    disconnected = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(http_answer("hello"))
        await peer.wait_closed()
        disconnected.set()

    async with serve_raw(handler) as server:
        model = build_model_provider(LLM(provider="openai", name="m", endpoint=server.url), {})
        assert await ask_text(model) == "hello"
        await model.close()
        await disconnected.wait()
