"""The time of day as one replaceable function, so that a test can make a token old without waiting."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since 1970. By the wall clock: a laptop that slept has an old token, whatever a monotonic clock says."""


def wall_clock() -> float:
    return time.time()
