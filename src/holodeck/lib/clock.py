"""The wall clock, as a value that a component takes, so that a test can set the time."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns seconds since 1970. Wall-clock time, because a monotonic clock may stop while a laptop sleeps, and a token
expires all the same."""


def wall_clock() -> float:
    return time.time()
