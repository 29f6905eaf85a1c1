"""A provider that keeps failing is left alone for a while: callers hear so at once, and one of them tries it again."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

from holodeck.lib import log
from holodeck.lib.errors import OVERLOADED, RATE_LIMITED, UNAVAILABLE, ModelError
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, BatchingModel, ModelProvider, stream_in_batches

# In a row: then the provider is left alone ...
MODEL_BREAKER_FAILURES = 5
# ... for this long.
MODEL_BREAKER_PAUSE = 30.0


class CircuitBreaker(BatchingModel):
    """Opens after `failures` in a row that asking again might have mended.

    A wrong key or question is none of these, nor is a 429: a provider that refuses is there. A provider that answers a
    part of its requests is not left alone: of many that are under way at once those that fail end first, so as many
    have to fail in a row as were under way together.
    """

    def __init__(
        self,
        inner: ModelProvider,
        *,
        failures: int = MODEL_BREAKER_FAILURES,
        pause: float = MODEL_BREAKER_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._limit = failures
        self._pause = pause
        self._clock = clock
        self._failures = 0
        self._in_flight = 0
        self._max_in_flight = 0
        """At once, since the last sign of life."""
        self.is_open = False
        """Whether callers are turned away, but for one that tries whether it works again."""
        self._opened_at = 0.0
        self._is_probing = False
        self._generation = 0
        """Another one begins whenever it opens or closes: what was asked in an earlier one says nothing about this."""

    @property
    def name(self) -> str:
        return self._inner.name

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Ask, unless the provider is being left alone."""
        is_probe = self._admit()
        era = self._generation
        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        batches = stream_in_batches(self._inner, request)
        try:
            async for batch in batches:
                if is_probe:  # it answers: the others need not wait for the end of that
                    is_probe = False
                    self._close_circuit()
                    era = self._generation
                yield batch
        except ModelError as error:
            if era == self._generation:
                self._record_failure(error)
            raise
        else:
            if era == self._generation:
                self._close_circuit()
        finally:
            self._in_flight -= 1
            if is_probe:
                self._is_probing = False
            await batches.aclose()

    async def close(self) -> None:
        await self._inner.close()

    def _admit(self) -> bool:
        """Let a caller in, as the probe when it is one, or tell it how long the pause still is."""
        if not self.is_open:
            return False
        remaining = self._opened_at + self._pause - self._clock()
        if remaining <= 0 and not self._is_probing:
            self._is_probing = True
            return True
        when = f"in {remaining:.0f} s" if remaining > 0 else "at this moment by another caller"
        raise ModelError(
            f"Model '{self.name}' failed {self._failures} times in a row and is left alone: it is tried again {when}.",
            retry_after=max(remaining, 0.0),
            is_retryable=True,
            code=UNAVAILABLE,
        )

    def _record_failure(self, error: ModelError) -> None:
        if error.code == OVERLOADED:  # it was not asked
            return
        if not error.is_retryable or error.status == HTTPStatus.TOO_MANY_REQUESTS or error.code == RATE_LIMITED:
            # It answered, if only to refuse: the provider is there.
            self._close_circuit()
            return
        self._failures += 1
        if self.is_open or self._failures >= max(self._limit, self._max_in_flight):
            self.is_open = True
            self._generation += 1
            self._opened_at = self._clock()
            log.warning("model.left_alone", model=self.name, failures=self._failures, pause=self._pause)

    def _close_circuit(self) -> None:
        if self.is_open:
            self._generation += 1
            self._is_probing = False
        self.is_open = False
        self._failures = 0
        self._max_in_flight = self._in_flight
