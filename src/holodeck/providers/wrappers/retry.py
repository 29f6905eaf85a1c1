"""Short retries of model requests. A request is never repeated once output has arrived, so no output is duplicated.

`listen_to_retries` sets what is told of each retry in the current task, by whichever wrapper makes it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from holodeck.lib.backoff import backoff_pause
from holodeck.lib.errors import ModelError

# Attempts of one turn: enough for a short overload; a long one is reported.
MODEL_ATTEMPTS = 4
# Seconds before the second attempt, at most; doubled each time.
MODEL_FIRST_PAUSE = 0.5
# The longest pause that the provider did not ask for: a user waits for the answer.
MODEL_MAX_PAUSE = 8.0
# The longest `retry_after` in seconds that is waited for; a longer one is reported.
MODEL_MAX_RETRY_AFTER = 60.0

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
    """Allows up to `attempts` of one request. `jitter` (0 to 1) spreads the pauses of many clients."""

    def __init__(
        self,
        *,
        attempts: int = MODEL_ATTEMPTS,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.sleep = sleep
        self._attempts = attempts
        self._jitter = jitter

    def find_pause(self, error: ModelError, attempt: int) -> float | None:
        """Return the seconds before the next attempt, or None if there is none."""
        if not error.is_retryable or attempt >= self._attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= MODEL_MAX_RETRY_AFTER else None
        return backoff_pause(
            attempt,
            first=MODEL_FIRST_PAUSE / 2,
            longest=MODEL_MAX_PAUSE / 2,
            spread=2.0,
            random_number=self._jitter(),
        )
