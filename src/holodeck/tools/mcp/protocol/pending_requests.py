"""The requests of one session that have no answer yet, with their deadlines on one timer.

A deadline is a number that progress moves, not a timer of its own: the timer of the session is set for the earliest
one, and set again when it goes off. At its deadline the task of a request is cancelled; the session then raises the
error of a timeout, unless the task was cancelled by another as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holodeck.tools.mcp.protocol.jsonrpc import RequestId
from holodeck.tools.mcp.protocol.peer import Peer

# Seconds after which a request ends although it keeps reporting progress.
MAX_EXTENDED_CALL = 1_800.0
# Seconds by which a timer may go off too early: some event loops count in milliseconds.
_TIMER_TOLERANCE = 0.001

OnProgress = Callable[[float | None, float | None, str | None], None]
"""Called with progress and total (None where they are not known) and message (if any)."""


class PendingRequest:
    """A request without an answer so far, in the task that waits for it. `step`: its timeout; `latest`: its last end.

    `is_call`: the server may ask something while it works on it. `peer`: the client that it is made for.
    `has_unasked_question`: the server asked something, perhaps for this call, that could not be put to the client.
    """

    __slots__ = (
        "_cancelled_before",
        "_task",
        "deadline",
        "has_unasked_question",
        "is_call",
        "is_expired",
        "latest",
        "on_progress",
        "peer",
        "step",
    )

    def __init__(
        self,
        task: asyncio.Task[Any],
        now: float,
        step: float,
        on_progress: OnProgress | None,
        peer: Peer | None,
        is_call: bool,
    ) -> None:
        self._task = task
        self._cancelled_before = task.cancelling()
        self.step = step
        self.deadline = now + step
        self.latest = self.deadline if step > MAX_EXTENDED_CALL else now + MAX_EXTENDED_CALL
        self.on_progress = on_progress
        self.peer = peer
        self.is_call = is_call
        self.is_expired = False
        self.has_unasked_question = False

    def extend(self, now: float) -> None:
        """Restart the timeout, up to `latest`."""
        self.deadline = min(now + self.step, self.latest)

    def expire(self) -> None:
        """End the wait of the task, which finds `is_expired`."""
        self.is_expired = True
        self._task.cancel()

    def is_only_expired(self) -> bool:
        """Return False for a task that was cancelled by another as well."""
        return self._task.cancelling() <= self._cancelled_before + 1

    def end_expiry(self) -> None:
        """Take back the cancellation by `expire`."""
        self._task.uncancel()


class PendingRequests(dict[RequestId, PendingRequest]):
    """The pending requests of one session, by id."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(
        self, request_id: RequestId, seconds: float, on_progress: OnProgress | None, peer: Peer | None, is_call: bool
    ) -> PendingRequest:
        """Add a request of the current task, which removes it."""
        task = asyncio.current_task(self._loop)
        if task is None:
            raise RuntimeError("a request with a deadline is made by a task")
        pending = self[request_id] = PendingRequest(task, self._loop.time(), seconds, on_progress, peer, is_call)
        if self._timer is None or pending.deadline < self._timer_at:
            self._set_timer(pending.deadline)
        return pending

    def remove(self, request_id: RequestId) -> None:
        """Remove a request whose wait has ended."""
        pending = self.pop(request_id)
        if pending.is_expired:
            pending.end_expiry()

    def expire_all(self) -> None:
        """End the waits of all requests that have no answer in the next pass of the loop either. No more follow."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A task whose answer has come is woken first.
        self._loop.call_soon(self._expire, float("inf"))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Suspend the deadlines of the requests pending now, and restart them after the block."""
        paused = list(self.values())
        for pending in paused:
            pending.deadline = pending.latest
        try:
            yield
        finally:
            now = self._loop.time()
            for pending in self.values():
                if pending in paused:
                    pending.extend(now)
            if self:
                self._set_timer(min(pending.deadline for pending in self.values()))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._on_timer), at

    def _on_timer(self) -> None:
        self._timer = None
        self._expire(self._loop.time() + _TIMER_TOLERANCE)
        waiting = [pending.deadline for pending in self.values() if not pending.is_expired]
        if waiting:
            self._set_timer(min(waiting))

    def _expire(self, until: float) -> None:
        for pending in self.values():
            if pending.deadline <= until and not pending.is_expired:
                pending.expire()
