"""A disconnect cancels the work for its client and hides neither errors nor other cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from async_tests import async_test

from holodeck.gateway.server.disconnect import CancelOnDisconnect


class Caller:
    """A connection whose client can disconnect."""

    is_disconnected = False
    has_sent_all = True
    _on_disconnect: Callable[[], None] | None = None

    def set_disconnect_callback(self, callback: Callable[[], None] | None) -> None:
        self._on_disconnect = callback

    def cork(self) -> None:
        """Do nothing: this connection has no buffer."""

    def cut_connection(self) -> None:
        """Do nothing: this connection has no socket."""

    def leave(self) -> None:
        self.is_disconnected = True
        if self._on_disconnect is not None:
            self._on_disconnect()


async def nothing() -> MutableMapping[str, Any]:
    raise AssertionError("nothing is received from a client that says itself when it leaves")


async def served(caller: Caller, begun: asyncio.Event) -> bool:
    with CancelOnDisconnect(nothing, caller) as attended:
        begun.set()
        await asyncio.Event().wait()
    return attended.is_disconnected


@async_test
async def test_a_request_whose_client_disconnected_before_it_started_is_not_run() -> None:
    caller = Caller()
    caller.leave()
    assert await served(caller, asyncio.Event())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@async_test
async def test_a_task_cancelled_after_its_client_disconnects_raises_cancelled_error() -> None:
    caller, begun = Caller(), asyncio.Event()
    serving = asyncio.create_task(served(caller, begun))
    await begun.wait()
    caller.leave()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


@async_test
async def test_an_error_raised_while_a_cancelled_request_cleans_up_is_reported() -> None:
    caller = Caller()

    async def failing() -> None:
        with CancelOnDisconnect(nothing, caller):
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("on the way out")

    asyncio.get_running_loop().call_soon(caller.leave)
    with pytest.raises(ValueError, match="on the way out"):
        await failing()


@async_test
async def test_a_disconnect_after_the_work_has_ended_cancels_nothing() -> None:
    caller = Caller()
    with CancelOnDisconnect(nothing, caller) as attended:
        await asyncio.sleep(0)
    caller.leave()
    await asyncio.sleep(0)
    assert not attended.is_disconnected
