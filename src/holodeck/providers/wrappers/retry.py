"""Retries of model requests: short ones, and long ones for background responses, minutes instead of seconds.

Short ones never repeat a request once output has arrived, so no output is duplicated. `listen_to_retries` sets what is
told of each retry in the current task, by whichever wrapper makes it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.errors import ModelError
from holodeck.models.model_io import AnswerVoided, ModelAnswer, ModelEvent, ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, build_unfinished_error, stream_in_batches

# Attempts of one turn: enough for a short overload; a long one is reported.
MODEL_ATTEMPTS = 4
# Seconds before the second attempt, at most; doubled each time.
MODEL_FIRST_PAUSE = 0.5
# The longest pause that the provider did not ask for: a user waits for the answer.
MODEL_MAX_PAUSE = 8.0
# The longest `retry_after` in seconds that is waited for; a longer one is reported.
MODEL_MAX_RETRY_AFTER = 60.0
# Seconds before the first repetition, at most; doubled each time.
MODEL_WAIT_FIRST_PAUSE = 1.0
# The longest pause: a model that works again is noticed within this time.
MODEL_WAIT_MAX_PAUSE = 15.0

RetryListener = Callable[[ModelError, float], None]
"""Called with the error of a request and the seconds until it is repeated, before that pause."""
_listener: ContextVar[RetryListener | None] = ContextVar("retry listener", default=None)


def listen_to_retries(listener: RetryListener) -> None:
    """Call `listener` for the retries of the current task, and of tasks that it starts from now on."""
    _listener.set(listener)


def report_retry(error: ModelError, pause: float) -> None:
    """Tell the listener of the current task, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(error, pause)


class RetryPolicy:
    """Allows up to `attempts` of one request. `jitter` (0 to 1) spreads the pauses of many clients.

    A provider that wants a longer pause than `max_retry_after` is not asked again.
    """

    def __init__(
        self,
        *,
        attempts: int = MODEL_ATTEMPTS,
        max_retry_after: float = MODEL_MAX_RETRY_AFTER,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.sleep = sleep
        self._attempts = attempts
        self._max_retry_after = max_retry_after
        self._jitter = jitter

    def find_pause(self, error: ModelError, attempt: int) -> float | None:
        """Return the seconds before the next attempt, or None if there is none."""
        if not error.is_retryable or attempt >= self._attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self._max_retry_after else None
        return backoff_pause(
            attempt,
            first=MODEL_FIRST_PAUSE / 2,
            longest=MODEL_MAX_PAUSE / 2,
            spread=2.0,
            random_number=self._jitter(),
        )


class LongRetrying(ModelWrapper):
    """Repeats a turn that failed with a retryable error.

    One whose answer has begun is repeated only with `can_restart`: an `AnswerVoided` then tells the reader that what it
    has is void. A stream that ends without an answer counts as such a failure.

    It wraps the retries and the circuit breaker, so that it also waits while the circuit is open. `seconds` bounds the
    time from the first failure of a turn; then its last error is raised. Cancelling the task ends the wait at once.
    `jitter` (0 to 1) spreads the requests of many responses that wait for the same model.
    """

    def __init__(
        self,
        inner: ModelProvider,
        *,
        seconds: float,
        can_restart: bool = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(inner)
        self._seconds = seconds
        self._can_restart = can_restart
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send the request, and repeat it while it may be, the error is retryable, and there is time."""
        failures, deadline = 0, 0.0
        while True:
            last: ModelEvent | None = None
            batches = stream_in_batches(self._inner, request)
            try:
                async for batch in batches:
                    last = batch[-1]
                    yield batch
                if not isinstance(last, ModelAnswer):
                    raise build_unfinished_error(self.name)
            except ModelError as error:
                deadline = deadline if failures else self._clock() + self._seconds
                pause = self._pause(error, failures)
                may_repeat = last is None or (self._can_restart and not isinstance(last, ModelAnswer))
                if not may_repeat or not error.is_retryable or self._clock() + pause > deadline:
                    raise
                failures += 1
                log.warning("model.wait", model=self.name, pause=f"{pause:.1f}", failures=failures, reason=str(error))
                report_retry(error, pause)
                if error.answered_by is not None:
                    # What it has sent was read: no other model answers in its place.
                    request = replace(request, answered_by=error.answered_by)
            else:
                return
            finally:
                await batches.aclose()
            if last is not None:
                yield [AnswerVoided()]
            await self._sleep(pause)

    def _pause(self, error: ModelError, failures: int) -> float:
        """Return the seconds before the next attempt: the provider's `retry_after`, and the backoff in addition."""
        return (error.retry_after or 0.0) + backoff_pause(
            failures + 1,
            first=MODEL_WAIT_FIRST_PAUSE / 2,
            longest=MODEL_WAIT_MAX_PAUSE / 2,
            spread=2.0,
            random_number=self._jitter(),
        )
