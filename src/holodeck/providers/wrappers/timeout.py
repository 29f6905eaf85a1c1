"""A model that falls silent is an error with a name, not a wait without end."""

from __future__ import annotations

import asyncio

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import MODEL_FIRST_EVENT_TIMEOUT, MODEL_IDLE_TIMEOUT
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, BatchingModel, ModelProvider, stream_in_batches


class Timeouts(BatchingModel):
    """A model that must begin to answer within `first` seconds, and then not pause for more than `idle`.

    The time that the reader takes between two batches does not count.
    """

    def __init__(
        self,
        inner: ModelProvider,
        *,
        first: float = MODEL_FIRST_EVENT_TIMEOUT,
        idle: float = MODEL_IDLE_TIMEOUT,
    ) -> None:
        self._inner = inner
        self._first = first
        self._idle = idle
        self._spare_timers: list[_IdleTimer] = []

    @property
    def name(self) -> str:
        return self._inner.name

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Ask, and watch the silence."""
        limit, what = self._first, "did not begin to answer within"
        silence = self._acquire_timer()
        batches = stream_in_batches(self._inner, request)
        try:
            while True:
                silence.start(limit)
                try:
                    batch = await anext(batches)
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError as error:
                    if not silence.has_expired():
                        raise
                    raise self._error(what, limit) from error
                finally:
                    silence.stop()
                yield batch
                limit, what = self._idle, "fell silent in the middle of its answer for"
        finally:
            self._spare_timers.append(silence)
            await batches.aclose()

    async def close(self) -> None:
        while self._spare_timers:
            self._spare_timers.pop().close()
        await self._inner.close()

    def _acquire_timer(self) -> _IdleTimer:
        """One that nobody uses, its timer still set: setting one costs more than all that is done with it."""
        loop = asyncio.get_running_loop()
        while self._spare_timers:
            silence = self._spare_timers.pop()
            if silence.loop is loop:
                return silence
        return _IdleTimer(loop)

    def _error(self, what: str, limit: float) -> ModelError:
        message = f"Model '{self.name}' {what} {limit:g} s. Ask again, or check the provider's status."
        return ModelError(message, is_retryable=True)


class _IdleTimer:
    """One timer for all waits of a stream, and of the next ones, set anew only when it rings too early.

    `asyncio.timeout` around each wait does the same, and costs more than all the rest of an event.
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
        """Wait from now on."""
        self._task = asyncio.current_task(self.loop)  # without it, Python 3.11 asks the kernel who we are
        self._cancel_count = self._task.cancelling() if self._task else 0
        self._deadline = self.loop.time() + limit
        self._has_fired = False
        if self._timer is not None and self._timer_at > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._set_timer()

    def stop(self) -> None:
        """The wait is over, one way or the other."""
        self._task = None

    def close(self) -> None:
        """Nobody waits any more, on whatever loop it was."""
        if self._timer is not None and not self.loop.is_closed():
            self._timer.cancel()

    def has_expired(self) -> bool:
        """Whether a cancellation was ours, and only ours: then it goes no further."""
        return self._has_fired and self._task is not None and self._task.uncancel() <= self._cancel_count

    def _set_timer(self) -> None:
        self._timer_at = self._deadline
        self._timer = self.loop.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._task is None:  # it is the reader who takes time
            return
        if self.loop.time() < self._deadline:
            self._set_timer()
            return
        self._has_fired = True
        self._task.cancel()
