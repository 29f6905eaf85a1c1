"""Ask again when a provider is busy or gone, but never once it has begun to answer: nothing is said twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from holodeck.lib import log
from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, BatchingModel, ModelProvider, stream_in_batches

# One and three more: a short overload passes, a long one is reported.
MODEL_ATTEMPTS = 4
# Before the second attempt; doubled each time.
MODEL_FIRST_PAUSE = 0.5
# Of our own choosing: a person is waiting.
MODEL_MAX_PAUSE = 8.0
# A provider that wants a longer pause is reported instead of waited for.
MODEL_MAX_RETRY_AFTER = 60.0


class Retrying(BatchingModel):
    """A model that is asked up to `attempts` times. `jitter` spreads the pauses of many clients: 0 to 1."""

    def __init__(
        self,
        inner: ModelProvider,
        *,
        attempts: int = MODEL_ATTEMPTS,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self._attempts = attempts
        self._sleep = sleep
        self._jitter = jitter

    @property
    def name(self) -> str:
        return self._inner.name

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Ask, and ask again while nothing was answered and it may help."""
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

    async def close(self) -> None:
        await self._inner.close()

    def _pause(self, error: ModelError, attempt: int) -> float | None:
        """Seconds before the next attempt; None when there is none."""
        if not error.is_retryable or attempt >= self._attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= MODEL_MAX_RETRY_AFTER else None
        longest = min(MODEL_FIRST_PAUSE * 2.0 ** (attempt - 1), MODEL_MAX_PAUSE)
        return longest * (1 + self._jitter()) / 2
