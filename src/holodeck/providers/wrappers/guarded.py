"""A model with its safeguards: a circuit breaker around timeouts around short retries, in one generator.

One generator instead of a wrapper for each: every event of a stream passes through it. The retries are in `retry.py`.

A provider that keeps failing gets no requests for a while. The circuit is closed (requests pass), open (requests fail
at once with `ModelError`), or open with a probe (after the pause, one request passes; its first output closes the
circuit, its failure opens it for another pause). Runs are counted, not requests: one that repeats its turn for minutes
has failed once. While only one caller has failed, the circuit is open for that caller alone, since the cause may be
what it asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context
from http import HTTPStatus

from holodeck.lib import log
from holodeck.lib.errors import OVERLOADED, RATE_LIMITED, UNAVAILABLE, ModelError
from holodeck.lib.limits import MODEL_FIRST_EVENT_TIMEOUT, MODEL_IDLE_TIMEOUT
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper
from holodeck.providers.wrappers.retry import RetryPolicy, report_retry

# Timers that are kept for later requests. Those of a thousand streams would keep the memory around them in use.
MAX_SPARE_TIMERS = 64


class Timeouts:
    """Limits the wait of a request for its first output (`first` seconds), and for each further one (`idle`).

    The time that the reader takes between two batches does not count. Owns the timers of the waits.
    """

    def __init__(self, *, first: float = MODEL_FIRST_EVENT_TIMEOUT, idle: float = MODEL_IDLE_TIMEOUT) -> None:
        self.first = first
        self.idle = idle
        self._spare_timers: list[IdleTimer] = []

    def acquire_timer(self) -> IdleTimer:
        """Return a spare timer of this event loop, or a new one. A spare is still scheduled, which saves that cost."""
        loop = asyncio.get_running_loop()
        while self._spare_timers:
            timer = self._spare_timers.pop()
            if timer.loop is loop:
                return timer
        return IdleTimer(loop)

    def release_timer(self, timer: IdleTimer) -> None:
        if len(self._spare_timers) < MAX_SPARE_TIMERS:
            self._spare_timers.append(timer)
        else:
            timer.close()

    def build_error(self, model: str, *, is_first: bool) -> ModelError:
        """Build the error of a wait that took too long. `is_first`: it was the wait for the first output."""
        what = "did not begin to answer within" if is_first else "fell silent in the middle of its answer for"
        limit = self.first if is_first else self.idle
        message = f"Model '{model}' {what} {limit:g} s. Ask again, or check the provider's status."
        public_text = f"The model {what} {limit:g} s. Try again."
        return ModelError(message, is_retryable=True, code=UNAVAILABLE, public_text=public_text)

    def close(self) -> None:
        while self._spare_timers:
            self._spare_timers.pop().close()


class IdleTimer:
    """One timer for all waits of a stream and of later ones, rescheduled only when it fires before the deadline.

    It cancels the waiting task, like `asyncio.timeout`, which would cost more than the rest of an event.
    """

    __slots__ = ("_cancel_count", "_deadline", "_has_fired", "_task", "_timer", "_timer_at", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._task: asyncio.Task[object] | None = None
        self._cancel_count = 0
        self._deadline = self._timer_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_fired = False

    def start(self, limit: float) -> None:
        """Start a wait of the current task, of at most `limit` seconds."""
        # With the loop as an argument: without it, Python 3.11 makes a system call.
        self._task = asyncio.current_task(self.loop)
        self._cancel_count = self._task.cancelling() if self._task else 0
        self._deadline = self.loop.time() + limit
        self._has_fired = False
        if self._timer is not None and self._timer_at > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._set_timer()

    def stop(self) -> None:
        """End the wait. The timer stays scheduled."""
        self._task = None

    def close(self) -> None:
        """Cancel the timer. Safe after its event loop was closed."""
        if self._timer is not None and not self.loop.is_closed():
            self._timer.cancel()

    def has_expired(self) -> bool:
        """Return whether this timer, and nothing else, cancelled the task; the cancellation is then withdrawn."""
        return self._has_fired and self._task is not None and self._task.uncancel() <= self._cancel_count

    def _set_timer(self) -> None:
        self._timer_at = self._deadline
        # In a context of its own: a spare timer would keep that of a run, with everything in it.
        self._timer = self.loop.call_at(self._deadline, self._on_timer, context=Context())

    def _on_timer(self) -> None:
        self._timer = None
        if self._task is None:
            # No wait is active: the reader takes its time.
            return
        if self.loop.time() < self._deadline:
            self._set_timer()
            return
        self._has_fired = True
        self._task.cancel()


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
