"""A model with its safeguards: a circuit breaker around timeouts around short retries, in one generator.

One generator instead of a wrapper for each: every event of a stream passes through it. The policies are in
`circuit_breaker.py`, `timeout.py` and `retry.py`.
"""

from __future__ import annotations

import asyncio

from holodeck.lib import log
from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper
from holodeck.providers.wrappers.circuit_breaker import CircuitBreaker
from holodeck.providers.wrappers.retry import RetryPolicy, report_retry
from holodeck.providers.wrappers.timeout import Timeouts


class GuardedModel(ModelWrapper):
    """Refuses requests while the circuit is open, retries those that fail at once, and ends those that fall silent.

    The timeouts are around the retries: a model that was silent for minutes is not retried for as long again. A request
    counts as one for the circuit breaker, however often it was sent.
    """

    def __init__(
        self,
        inner: ModelProvider,
        *,
        breaker: CircuitBreaker | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        super().__init__(inner)
        self._breaker = breaker or CircuitBreaker()
        self._timeouts = timeouts or Timeouts()
        self._retry = retry or RetryPolicy()

    @property
    def is_open(self) -> bool:
        return self._breaker.is_open

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send the request, and repeat it while there is no output and the error is retryable. Raises `ModelError`."""
        admission = self._breaker.admit(self.name, request)
        timer = self._timeouts.acquire_timer()
        limit, attempt = self._timeouts.first, 1
        batches = self._stream_inner(request)
        try:
            while True:
                timer.start(limit)
                try:
                    while True:
                        try:
                            batch = await anext(batches)
                            break
                        except ModelError as error:
                            pause = None if admission.has_output else self._retry.find_pause(error, attempt)
                            if pause is None:
                                raise
                            self._log_retry(attempt, pause, error)
                            report_retry(error, pause)
                        await batches.aclose()
                        await self._retry.sleep(pause)
                        attempt += 1
                        batches = self._stream_inner(request)
                except StopAsyncIteration:
                    break
                except asyncio.CancelledError as error:
                    if not timer.has_expired():
                        raise
                    raise self._timeouts.build_error(self.name, is_first=not admission.has_output) from error
                finally:
                    timer.stop()
                if not admission.has_output:
                    self._breaker.record_output(admission)
                    limit = self._timeouts.idle
                yield batch
            self._breaker.record_success(admission)
        except ModelError as error:
            self._breaker.record_failure(admission, error, self.name)
            raise
        finally:
            self._breaker.release(admission)
            self._timeouts.release_timer(timer)
            await batches.aclose()

    async def close(self) -> None:
        self._timeouts.close()
        await super().close()

    def _log_retry(self, attempt: int, pause: float, error: ModelError) -> None:
        log.warning("model.retry", model=self.name, attempt=attempt, pause=f"{pause:.1f}", reason=str(error))
