"""Short retries of model requests. A request is never repeated once output has arrived, so no output is duplicated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches

# Attempts of one turn: enough for a short overload; a long one is reported.
MODEL_ATTEMPTS = 4
# Seconds before the second attempt, at most; doubled each time.
MODEL_FIRST_PAUSE = 0.5
# The longest pause that the provider did not ask for: a user waits for the answer.
MODEL_MAX_PAUSE = 8.0
# The longest `retry_after` in seconds that is waited for; a longer one is reported.
MODEL_MAX_RETRY_AFTER = 60.0


class Retrying(ModelWrapper):
    """Sends a request up to `attempts` times. `jitter` (0 to 1) spreads the pauses of many clients."""

    def __init__(
        self,
        inner: ModelProvider,
        *,
        attempts: int = MODEL_ATTEMPTS,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(inner)
        self._attempts = attempts
        self._sleep = sleep
        self._jitter = jitter

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send the request, and repeat it while there is no output and the error is retryable."""
        attempt = 1
        while True:
            has_begun = False
            batches = stream_in_batches(self._inner, request)
            try:
                async for batch in batches:
                    has_begun = True
                    yield batch
            except ModelError as error:
                pause = self._pause(error, attempt)
                if has_begun or pause is None:
                    raise
                log.warning("model.retry", model=self.name, attempt=attempt, pause=f"{pause:.1f}", reason=str(error))
            else:
                return
            finally:
                await batches.aclose()
            await self._sleep(pause)
            attempt += 1

    def _pause(self, error: ModelError, attempt: int) -> float | None:
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
