"""A loop whose clock a test moves on, so that what takes minutes is seen at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from patience import patience

P = ParamSpec("P")
REAL_SECONDS = 30.0


class MovableClockLoop(asyncio.SelectorEventLoop):
    """Whatever waits for a time in this loop has waited `ahead` seconds longer."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


async def advance_clock(seconds: float) -> None:
    """Let time pass, and the loop look at its clock before it hears of anything else."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MovableClockLoop)
    loop.ahead += seconds
    await asyncio.sleep(0)


def with_movable_clock(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in such a loop, within a limit in real seconds."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def within() -> None:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            alarm = threading.Timer(
                patience(REAL_SECONDS), loop.call_soon_threadsafe, [task.cancel, "it took too long"]
            )
            alarm.start()
            try:
                await test(*args, **kwargs)
            finally:
                alarm.cancel()

        with asyncio.Runner(loop_factory=MovableClockLoop) as runner:
            runner.run(within())

    return run
