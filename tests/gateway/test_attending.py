"""Work for a client that has left is given up, and nothing else is: neither errors nor what others cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from aio import aio

from holodeck.gateway.attending import Attended


class Caller:
    """Somebody at the other end of a connection."""

    is_gone = False
    has_sent_all = True
    _on_leaving: Callable[[], None] | None = None

    def attend(self, on_leaving: Callable[[], None] | None) -> None:
        self._on_leaving = on_leaving

    def hold(self) -> None:
        """Nothing is held here."""

    def cut(self) -> None:
        """Nothing is cut here."""

    def leave(self) -> None:
        self.is_gone = True
        if self._on_leaving is not None:
            self._on_leaving()


async def nothing() -> MutableMapping[str, Any]:
    raise AssertionError("nothing is received from a client that says itself when it leaves")


async def served(caller: Caller, begun: asyncio.Event) -> bool:
    with Attended(nothing, caller) as attended:
        begun.set()
        await asyncio.Event().wait()
    return attended.is_gone


@aio
async def test_who_left_before_anything_began_is_not_worked_for() -> None:
    caller = Caller()
    caller.leave()
    assert await served(caller, asyncio.Event())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@aio
async def test_a_task_that_is_cancelled_when_its_client_leaves_is_cancelled() -> None:
    caller, begun = Caller(), asyncio.Event()
    serving = asyncio.create_task(served(caller, begun))
    await begun.wait()
    caller.leave()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


@aio
async def test_an_error_on_the_way_out_is_heard() -> None:
    caller = Caller()

    async def failing() -> None:
        with Attended(nothing, caller):
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("on the way out")

    asyncio.get_running_loop().call_soon(caller.leave)
    with pytest.raises(ValueError, match="on the way out"):
        await failing()


@aio
async def test_who_leaves_afterwards_stops_nothing() -> None:
    caller = Caller()
    with Attended(nothing, caller) as attended:
        await asyncio.sleep(0)
    caller.leave()
    await asyncio.sleep(0)
    assert not attended.is_gone
