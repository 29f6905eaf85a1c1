"""Turns that paused in responses which nobody stores: in memory for a while, so that they outlive their connection."""

from __future__ import annotations

import time
from collections.abc import Callable

from holodeck.gateway.continuation.waiting import PendingCalls
from holodeck.lib.limits import MAX_PENDING_CALL_BYTES, PENDING_CALL_SECONDS


class PendingCallCache:
    """What waits in such responses, of all callers. The oldest is forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_bytes: int = MAX_PENDING_CALL_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: dict[tuple[str, str], tuple[PendingCalls, int, float]] = {}

    def store(self, caller_id: str, response_id: str, pending: PendingCalls) -> None:
        size, now = len(pending.encode()), self._clock()
        self._entries[caller_id, response_id] = (pending, size, now)
        self._size += size
        while self._entries:
            oldest = next(iter(self._entries))
            _, size, since = self._entries[oldest]
            if self._size <= self._max_bytes and since > now - PENDING_CALL_SECONDS:
                return
            del self._entries[oldest]
            self._size -= size

    def find(self, caller_id: str, response_id: str) -> PendingCalls | None:
        kept = self._entries.get((caller_id, response_id))
        return None if kept is None else kept[0]
