"""How often a server may be started: promptly, then with pauses, and in a crash loop not at all for a while."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from holodeck.lib.limits import FIRST_BACKOFF, MAX_BACKOFF, MAX_STARTS, START_PAUSE, START_WINDOW

_DOUBLINGS = 10  # from the first pause to far more than the longest


@dataclass(frozen=True, kw_only=True)
class StartLimits:
    """The numbers, for those who need others."""

    starts: int = MAX_STARTS
    window: float = START_WINDOW
    pause: float = START_PAUSE


class RestartPolicy:
    """The starts of one server so far."""

    def __init__(self, limits: StartLimits) -> None:
        self._limits = limits
        self._times: deque[float] = deque()
        self._paused_until = 0.0
        self._failures = 0

    def seconds_until_allowed(self) -> float:
        """Seconds for which it may not be started; 0 when it may."""
        now = time.monotonic()
        if now < self._paused_until:
            return self._paused_until - now
        while self._times and now - self._times[0] > self._limits.window:
            self._times.popleft()
        if len(self._times) < self._limits.starts:
            return 0.0
        self._times.clear()  # after the pause it has all its chances again
        self._paused_until = now + self._limits.pause
        return self._limits.pause

    def backoff_seconds(self) -> float:
        """Seconds to wait before the next start."""
        return min(FIRST_BACKOFF * 2 ** min(self._failures - 1, _DOUBLINGS), MAX_BACKOFF) if self._failures else 0.0

    def record_start(self) -> None:
        self._times.append(time.monotonic())

    def undo_start(self) -> None:
        """The last start did not come to be, for a reason that is not the server's."""
        if self._times:
            self._times.pop()

    def record_failure(self) -> None:
        self._failures += 1

    def record_success(self) -> None:
        self._failures = 0
