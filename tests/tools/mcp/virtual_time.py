"""An event loop whose clock jumps ahead when every task waits, so that half an hour takes a moment."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from patience import patience

P = ParamSpec("P")
GRACE = 0.01  # for bytes on their way through the kernel, before the clock may jump
REAL_LIMIT = 30.0


class _ClockJumpingSelector(selectors.DefaultSelector):
    """Instead of sleeping, moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(min(timeout, GRACE))
        if not ready and timeout > GRACE:
            self.skipped_seconds += timeout - GRACE
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _ClockJumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return super().time() + self._jumping.skipped_seconds


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test whose server lives in the same loop; the limit is in real seconds."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        began = time.monotonic()
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))
        assert time.monotonic() - began < patience(REAL_LIMIT)

    return run
