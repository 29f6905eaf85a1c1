"""Short retries of model requests. A request is never repeated once output has arrived, so no output is duplicated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

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
