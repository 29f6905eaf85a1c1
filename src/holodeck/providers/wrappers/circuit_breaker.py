"""A circuit breaker: a provider that keeps failing gets no requests for a while.

States: closed (requests pass), open (requests fail at once with `ModelError`), and open with a probe (after the pause,
one request passes; its first output closes the circuit, its failure opens it for another pause).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

from holodeck.lib import log
from holodeck.lib.errors import OVERLOADED, RATE_LIMITED, UNAVAILABLE, ModelError
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches

# Consecutive failures that open the circuit.
MODEL_BREAKER_FAILURES = 5
# Seconds that it stays open before a probe.
MODEL_BREAKER_PAUSE = 30.0


class CircuitBreaker(ModelWrapper):
    """Opens after `failures` consecutive retryable failures, for `pause` seconds.

    A wrong key, an invalid request or a 429 does not count: a provider that refuses is reachable. A provider that
    answers some of its requests stays closed: of concurrent requests those that fail end first, so at least as many
    have to fail in a row as were in flight together.
    """

    def __init__(
        self,
        inner: ModelProvider,
        *,
        failures: int = MODEL_BREAKER_FAILURES,
        pause: float = MODEL_BREAKER_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(inner)
        self._limit = failures
        self._pause = pause
        self._clock = clock
        self._failures = 0
        self._in_flight = 0
        # The most requests in flight at once, since the last success.
        self._max_in_flight = 0
        self._is_open = False
        self._opened_at = 0.0
        self._is_probing = False
        # Increased whenever the circuit opens or closes: results of requests of an earlier generation are ignored.
        self._generation = 0

    @property
    def is_open(self) -> bool:
        """Whether requests are refused, except for one probe."""
        return self._is_open

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send the request, or raise `ModelError` while the circuit is open."""
        is_probe = self._admit()
        generation = self._generation
        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        batches = stream_in_batches(self._inner, request)
        try:
            async for batch in batches:
                # The model answers: other requests need not wait for the end of the answer.
                if is_probe:
                    is_probe = False
                    self._close_circuit()
                    generation = self._generation
                yield batch
        except ModelError as error:
            if generation == self._generation:
                self._record_failure(error)
            raise
        else:
            if generation == self._generation:
                self._close_circuit()
        finally:
            self._in_flight -= 1
            if is_probe:
                self._is_probing = False
            await batches.aclose()

    def _admit(self) -> bool:
        """Admit a request and return whether it is the probe; raise `ModelError` if it is refused."""
        if not self._is_open:
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
        if error.code == OVERLOADED:
            # The request was not sent: this machine is overloaded, not the provider.
            return
        if not error.is_retryable or error.status == HTTPStatus.TOO_MANY_REQUESTS or error.code == RATE_LIMITED:
            # The provider refused the request, so it is reachable.
            self._close_circuit()
            return
        self._failures += 1
        if self._is_open or self._failures >= max(self._limit, self._max_in_flight):
            self._is_open = True
            self._generation += 1
            self._opened_at = self._clock()
            log.warning("model.left_alone", model=self.name, failures=self._failures, pause=self._pause)

    def _close_circuit(self) -> None:
        if self._is_open:
            self._generation += 1
            self._is_probing = False
        self._is_open = False
        self._failures = 0
        self._max_in_flight = self._in_flight
