"""Timeouts of model requests: until the first output, and between two outputs."""

from __future__ import annotations

import asyncio
from contextvars import Context

from holodeck.lib.errors import UNAVAILABLE, ModelError
from holodeck.lib.limits import MODEL_FIRST_EVENT_TIMEOUT, MODEL_IDLE_TIMEOUT

# Timers that are kept for later requests. Those of a thousand streams would keep the memory around them in use.
MAX_SPARE_TIMERS = 64


class Timeouts:
    """Limits the wait of a request for its first output (`first` seconds), and for each further one (`idle`).

    The time that the reader takes between two batches does not count. Owns the timers of the waits.
    """

    def __init__(self, *, first: float = MODEL_FIRST_EVENT_TIMEOUT, idle: float = MODEL_IDLE_TIMEOUT) -> None:
        self.first = first
        self.idle = idle
        self._spare_timers: list[IdleTimer] = []

    def acquire_timer(self) -> IdleTimer:
        """Return a spare timer of this event loop, or a new one. A spare is still scheduled, which saves that cost."""
        loop = asyncio.get_running_loop()
        while self._spare_timers:
            timer = self._spare_timers.pop()
            if timer.loop is loop:
                return timer
        return IdleTimer(loop)

    def release_timer(self, timer: IdleTimer) -> None:
        if len(self._spare_timers) < MAX_SPARE_TIMERS:
            self._spare_timers.append(timer)
        else:
            timer.close()

    def build_error(self, model: str, *, is_first: bool) -> ModelError:
        """Build the error of a wait that took too long. `is_first`: it was the wait for the first output."""
        what = "did not begin to answer within" if is_first else "fell silent in the middle of its answer for"
        limit = self.first if is_first else self.idle
        message = f"Model '{model}' {what} {limit:g} s. Ask again, or check the provider's status."
        public_text = f"The model {what} {limit:g} s. Try again."
        return ModelError(message, is_retryable=True, code=UNAVAILABLE, public_text=public_text)

    def close(self) -> None:
        while self._spare_timers:
            self._spare_timers.pop().close()


class IdleTimer:
    """One timer for all waits of a stream and of later ones, rescheduled only when it fires before the deadline.

    It cancels the waiting task, like `asyncio.timeout`, which would cost more than the rest of an event.
    """

    __slots__ = ("_cancel_count", "_deadline", "_has_fired", "_task", "_timer", "_timer_at", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._task: asyncio.Task[object] | None = None
        self._cancel_count = 0
        self._deadline = self._timer_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_fired = False

    def start(self, limit: float) -> None:
        """Start a wait of the current task, of at most `limit` seconds."""
        # With the loop as an argument: without it, Python 3.11 makes a system call.
        self._task = asyncio.current_task(self.loop)
        self._cancel_count = self._task.cancelling() if self._task else 0
        self._deadline = self.loop.time() + limit
        self._has_fired = False
        if self._timer is not None and self._timer_at > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._set_timer()

    def stop(self) -> None:
        """End the wait. The timer stays scheduled."""
        self._task = None

    def close(self) -> None:
        """Cancel the timer. Safe after its event loop was closed."""
        if self._timer is not None and not self.loop.is_closed():
            self._timer.cancel()

    def has_expired(self) -> bool:
        """Return whether this timer, and nothing else, cancelled the task; the cancellation is then withdrawn."""
        return self._has_fired and self._task is not None and self._task.uncancel() <= self._cancel_count

    def _set_timer(self) -> None:
        self._timer_at = self._deadline
        # In a context of its own: a spare timer would keep that of a run, with everything in it.
        self._timer = self.loop.call_at(self._deadline, self._on_timer, context=Context())

    def _on_timer(self) -> None:
        self._timer = None
        if self._task is None:
            # No wait is active: the reader takes its time.
            return
        if self.loop.time() < self._deadline:
            self._set_timer()
            return
        self._has_fired = True
        self._task.cancel()
