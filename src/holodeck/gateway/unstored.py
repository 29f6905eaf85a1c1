"""Turns that paused in responses which nobody stores: in memory for a while, so that they outlive their connection."""

from __future__ import annotations

import time
from collections.abc import Callable

from holodeck.gateway.waiting import Waiting
from holodeck.lib.limits import MAX_UNSTORED_BYTES, UNSTORED_SECONDS


class Unstored:
    """What waits in such responses, of all callers. The oldest is forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, most: int = MAX_UNSTORED_BYTES) -> None:
        self._clock = clock
        self._most = most
        self._size = 0
        self._kept: dict[tuple[str, str], tuple[Waiting, int, float]] = {}

    def keep(self, owner: str, response_id: str, waiting: Waiting) -> None:
        size, now = len(waiting.encode()), self._clock()
        self._kept[owner, response_id] = (waiting, size, now)
        self._size += size
        while self._kept:
            oldest = next(iter(self._kept))
            _, size, since = self._kept[oldest]
            if self._size <= self._most and since > now - UNSTORED_SECONDS:
                return
            del self._kept[oldest]
            self._size -= size

    def get(self, owner: str, response_id: str) -> Waiting | None:
        kept = self._kept.get((owner, response_id))
        return None if kept is None else kept[0]
