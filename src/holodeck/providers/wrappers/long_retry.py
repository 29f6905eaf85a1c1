"""Ask a model again for as long as its caller can wait, which for a response in the background is minutes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from holodeck.lib import log
from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, BatchingModel, ModelProvider, stream_in_batches

# Before a background response asks again, after the attempts above; doubled each time.
MODEL_WAIT_FIRST_PAUSE = 1.0
# A model that is back is noticed within this; nobody sits there and waits.
MODEL_WAIT_MAX_PAUSE = 15.0


class LongRetrying(BatchingModel):
    """Repeats a turn that failed before the model said anything, while asking again may help.

    Stands around retries and breaker: the error of an open breaker is waited out, too. Each turn may be waited for
    `seconds` from its first failure on; then its last error is raised. Cancelling the task ends the wait at once.
    `jitter` (0 to 1) spreads the requests of many responses that wait for the same model.
    """

    def __init__(
        self,
        inner: ModelProvider,
        *,
        seconds: float,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self._seconds = seconds
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter

    @property
    def name(self) -> str:
        return self._inner.name

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Ask, and ask again while nothing was answered, it may help, and there is time."""
        failures, deadline = 0, 0.0
        while True:
            has_begun = False
            batches = stream_in_batches(self._inner, request)
            try:
                async for batch in batches:
                    has_begun = True
                    yield batch
            except ModelError as error:
                deadline = deadline if failures else self._clock() + self._seconds
                pause = self._pause(error, failures)
                if has_begun or not error.is_retryable or self._clock() + pause > deadline:
                    raise
                failures += 1
                log.warning("model.wait", model=self.name, pause=f"{pause:.1f}", failures=failures, reason=str(error))
            else:
                return
            finally:
                await batches.aclose()
            await self._sleep(pause)

    async def close(self) -> None:
        await self._inner.close()

    def _pause(self, error: ModelError, failures: int) -> float:
        """Seconds before the next attempt: as the provider wishes, and some more of our own choosing."""
        # Not 2.0 ** failures alone: a wait of hours has enough of them to overflow.
        longest = min(MODEL_WAIT_FIRST_PAUSE * 2.0 ** min(failures, 30), MODEL_WAIT_MAX_PAUSE)
        return (error.retry_after or 0.0) + longest * (1 + self._jitter()) / 2
