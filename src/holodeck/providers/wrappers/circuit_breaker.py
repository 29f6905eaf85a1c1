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

# Consecutive failures that open the circuit.
MODEL_BREAKER_FAILURES = 5
# Seconds that it stays open before a probe.
MODEL_BREAKER_PAUSE = 30.0


class Admission:
    """One request that the circuit breaker has admitted."""

    __slots__ = ("generation", "has_output", "is_probe")

    def __init__(self, generation: int, *, is_probe: bool) -> None:
        self.generation = generation
        self.is_probe = is_probe
        """True until the probe has output, which closes the circuit."""
        self.has_output = False


class CircuitBreaker:
    """Opens after `failures` consecutive retryable failures, for `pause` seconds.

    A wrong key, an invalid request or a 429 does not count: a provider that refuses is reachable. A provider that
    answers some of its requests stays closed: of concurrent requests those that fail end first, so at least as many
    have to fail in a row as were in flight together.
    """

    def __init__(
        self,
        *,
        failures: int = MODEL_BREAKER_FAILURES,
        pause: float = MODEL_BREAKER_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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

    def admit(self, model: str) -> Admission:
        """Admit a request, or raise `ModelError` while the circuit is open. The caller calls `release` at its end."""
        is_probe = self._is_open
        if is_probe:
            remaining = self._opened_at + self._pause - self._clock()
            if remaining > 0 or self._is_probing:
                raise self._build_refusal(model, remaining)
            self._is_probing = True
        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        return Admission(self._generation, is_probe=is_probe)

    def release(self, admission: Admission) -> None:
        """Record the end of a request, whatever its outcome."""
        self._in_flight -= 1
        if admission.is_probe:
            self._is_probing = False

    def record_output(self, admission: Admission) -> None:
        """Record the first output of a request. The model answers: other requests need not wait for the rest."""
        admission.has_output = True
        if admission.is_probe:
            admission.is_probe = False
            self._close_circuit()
            admission.generation = self._generation

    def record_success(self, admission: Admission) -> None:
        if admission.generation == self._generation:
            self._close_circuit()

    def record_failure(self, admission: Admission, error: ModelError, model: str) -> None:
        # OVERLOADED: the request was not sent. This machine is overloaded, not the provider.
        if admission.generation != self._generation or error.code == OVERLOADED:
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
            log.warning("model.left_alone", model=model, failures=self._failures, pause=self._pause)

    def _build_refusal(self, model: str, remaining: float) -> ModelError:
        when = f"in {remaining:.0f} s" if remaining > 0 else "at this moment by another caller"
        return ModelError(
            f"Model '{model}' failed {self._failures} times in a row and is left alone: it is tried again {when}.",
            retry_after=max(remaining, 0.0),
            is_retryable=True,
            code=UNAVAILABLE,
        )

    def _close_circuit(self) -> None:
        if self._is_open:
            self._generation += 1
            self._is_probing = False
        self._is_open = False
        self._failures = 0
        self._max_in_flight = self._in_flight
