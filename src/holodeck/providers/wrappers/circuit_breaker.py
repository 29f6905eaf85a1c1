"""A circuit breaker: a provider that keeps failing gets no requests for a while.

States: closed (requests pass), open (requests fail at once with `ModelError`), and open with a probe (after the pause,
one request passes; its first output closes the circuit, its failure opens it for another pause).

Runs are counted, not requests: one that repeats its turn for minutes has failed once. While only one caller has failed,
the circuit is open for that caller alone, since the cause may be what it asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

from holodeck.lib import log
from holodeck.lib.errors import OVERLOADED, RATE_LIMITED, UNAVAILABLE, ModelError
from holodeck.models.model_io import ModelRequest

# Runs that fail one after the other, before they open the circuit.
MODEL_BREAKER_FAILURES = 5
# Seconds that it stays open before a probe.
MODEL_BREAKER_PAUSE = 30.0


class Admission:
    """One request that the circuit breaker has admitted."""

    __slots__ = ("caller_id", "generation", "has_output", "is_probe", "run_id")

    def __init__(self, generation: int, request: ModelRequest, *, is_probe: bool) -> None:
        self.generation = generation
        self.run_id = request.run_id
        self.caller_id = request.caller_id
        self.is_probe = is_probe
        """True until the probe has output, which closes the circuit."""
        self.has_output = False


class CircuitBreaker:
    """Opens after `failures` consecutive runs that failed with a retryable error, for `pause` seconds.

    Requests without a run count each. Requests without a caller open the circuit for all callers.
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
        self._failed_runs: set[str] = set()
        # The one whose runs have failed. Empty: there are several, or it is not known.
        self._failed_caller = ""
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
        """Whether requests of some callers are refused, except for one probe."""
        return self._is_open

    def admit(self, model: str, request: ModelRequest) -> Admission:
        """Admit a request, or raise `ModelError` while the circuit is open. `release` is called at its end."""
        is_probe = self._is_open and self._failed_caller in ("", request.caller_id)
        if is_probe:
            remaining = self._opened_at + self._pause - self._clock()
            if remaining > 0 or self._is_probing:
                raise self._build_refusal(model, remaining)
            self._is_probing = True
        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        return Admission(self._generation, request, is_probe=is_probe)

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
        if admission.run_id and admission.run_id in self._failed_runs:
            return
        self._count_failure(admission)
        if self._is_open or self._failures >= max(self._limit, self._max_in_flight):
            self._is_open = True
            self._generation += 1
            self._opened_at = self._clock()
            # From now on each probe counts, also a second one of the same run.
            self._failed_runs.clear()
            log.warning("model.left_alone", model=model, failures=self._failures, pause=self._pause)

    def _count_failure(self, admission: Admission) -> None:
        if admission.run_id:
            self._failed_runs.add(admission.run_id)
        if not self._failures:
            self._failed_caller = admission.caller_id
        elif self._failed_caller != admission.caller_id:
            self._failed_caller = ""
        self._failures += 1

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
        self._failed_runs.clear()
        self._max_in_flight = self._in_flight
