"""Stand-in models: the same request goes to the next model while the one before it cannot answer.

A `Fallback` owns its models, the first of which is the usual one. A turn is asked again as a whole, or not at all: once
a model has given any output, its error is final. A run stays with the model that answered its first turn, which the
loop says in `ModelRequest.answered_by`; so this module remembers no run, and a durable run goes on with its model in
another process.

A model that cannot answer rests: as long as it says in `Retry-After`, or else for `COOL_DOWN_SECONDS`. Meanwhile the
next ones are asked at once, except by runs that it has answered. An error status rests it only after a second run has
got one: the first may be due to what was asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus

from holodeck.lib import log
from holodeck.lib.errors import OVERLOADED, RATE_LIMITED, UNAVAILABLE, ModelError
from holodeck.models.items import Usage
from holodeck.models.llm import LLM
from holodeck.models.model_io import ModelAnswer, ModelRequest, StandInChosen, find_unsupported
from holodeck.providers.base import (
    Batches,
    BatchingModel,
    ModelProvider,
    build_unfinished_error,
    is_open,
    stream_in_batches,
)
from holodeck.providers.wrappers.retry import MODEL_MAX_PAUSE, RetryPolicy

# Seconds for which a model that cannot answer is not asked first, as long as a circuit breaker stays open.
COOL_DOWN_SECONDS = 30.0
# The longest `Retry-After` that is heard: a model is tried again once an hour in any case.
MAX_COOL_DOWN_SECONDS = 3_600.0
# Runs that get an error status from a model before it rests.
FAILED_RUNS_BEFORE_REST = 2
# Times that all models are asked, one after the other, before their error is reported. Each repeats once by itself.
FALLBACK_ROUNDS = 2


def may_stand_in(error: ModelError) -> bool:
    """Return whether another model may answer: this one is away, overloaded or limited, and did not refuse the request.

    A request that was not sent for want of resources of this machine (`OVERLOADED`) would fail there as well.
    """
    if error.code == OVERLOADED:
        return False
    status = error.status or 0
    is_away = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return error.is_retryable or is_away or error.code in (UNAVAILABLE, RATE_LIMITED)


class Member:
    """One of several models that may answer a request, with the time until which it rests."""

    def __init__(self, model: ModelProvider, llm: LLM, label: str = "") -> None:
        """`label`: the name by which responses say that it answered. Empty for the usual model."""
        self.model = model
        self.llm = llm
        self.label = label
        self.rests_until = 0.0
        self.in_flight = 0
        self.has_limits = False
        self.failed_runs: set[str] = set()
        """Those that got an error status since its latest output."""

    def build_request(self, request: ModelRequest) -> ModelRequest | None:
        """Return the request with the options of the model's file. None: it has an option that the model lacks."""
        extra = request.extra_body.keys() - set(self.llm.allow_extra_parameters)
        if self.label and (extra or find_unsupported(request, self.llm.api) is not None):
            return None
        return self.llm.complete_request(request)

    def begin(self, request: ModelRequest, now: float) -> None:
        """Count a request that is sent to one with limits. `end` is called with the same one."""

    def end(self, request: ModelRequest, usage: Usage | None) -> None:
        """Count the end of a request to one with limits. `usage`: None if it has no answer."""

    def record_failure(self, error: ModelError, request: ModelRequest, now: float) -> None:
        """Let it rest, unless only one run has got an error status."""
        has_status = error.status is not None and error.status != HTTPStatus.TOO_MANY_REQUESTS
        if has_status and error.retry_after is None:
            self.failed_runs.add(request.run_id)
            if len(self.failed_runs) < FAILED_RUNS_BEFORE_REST:
                return
        self.failed_runs.clear()
        seconds = COOL_DOWN_SECONDS if error.retry_after is None else error.retry_after
        self.rests_until = now + min(seconds, MAX_COOL_DOWN_SECONDS)


class Fallback(BatchingModel):
    """Asks the first of its models, and each next one while those before it cannot answer. Owns them."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = members
        self._retry = retry or RetryPolicy(attempts=FALLBACK_ROUNDS)
        self._clock = clock
        self.name = members[0].model.name

    @property
    def is_open(self) -> bool:
        """Whether the circuit breakers of all models refuse requests."""
        return all(is_open(member.model) for member in self._members)

    async def close(self) -> None:
        for member in self._members:
            await member.model.close()

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send the request to one model after the other, until one has output. Raises `ModelError`.

        If no model has any, all of them are asked again after a pause; then the error is raised that waits least.
        """
        started_at, attempt = self._clock(), 1
        while True:
            errors: list[ModelError] = []
            for member, sent in self._order(request):
                has_output, usage = False, None
                member.in_flight += 1
                if member.has_limits:
                    member.begin(request, self._clock())
                batches = stream_in_batches(member.model, sent)
                try:
                    async for batch in batches:
                        if not has_output:
                            has_output = True
                            member.rests_until = 0.0
                            member.failed_runs.clear()
                            self._record_answering(member, request)
                            if member.label:
                                yield [StandInChosen(name=member.label)]
                        last = batch[-1]
                        usage = last.usage if isinstance(last, ModelAnswer) else None
                        yield batch
                    if usage is not None:
                        return
                    raise build_unfinished_error(self.name)
                except ModelError as error:
                    if has_output:
                        error.answered_by = member.label
                    if has_output or not may_stand_in(error):
                        raise
                    member.record_failure(error, request, self._clock())
                    log.warning("model.cannot_answer", model=member.label or self.name, reason=str(error))
                    errors.append(error)
                finally:
                    member.in_flight -= 1
                    if member.has_limits:
                        member.end(request, usage)
                    await batches.aclose()
            await self._wait_for_next_round(errors, attempt, started_at)
            attempt += 1

    async def _wait_for_next_round(self, errors: Sequence[ModelError], attempt: int, started_at: float) -> None:
        """Pause before all models are asked again. Raises the error that waits least if they are not."""
        soonest = min(errors, key=lambda each: each.retry_after or 0.0)
        pause = self._retry.find_pause(soonest, attempt)
        # Models that were silent for long are not asked for as long again.
        if pause is None or self._clock() - started_at > MODEL_MAX_PAUSE:
            raise soonest
        await self._retry.sleep(pause)

    def _record_answering(self, member: Member, request: ModelRequest) -> None:
        """Note which of the models answers a request."""

    def _order(self, request: ModelRequest) -> Iterable[tuple[Member, ModelRequest]]:
        """Yield the models to ask, in order, with the request for each: that of the run, or those that do not rest.

        If all of them rest, it is the one that wakes first. The usual model takes every request. What is for a model
        that is not asked is not built.
        """
        # None of them has the name where the configuration has changed while a durable run was in no process.
        for member in self._members:
            if member.label == request.answered_by and (sent := member.build_request(request)) is not None:
                yield member, sent
                return
        now, is_any_awake = self._clock(), False
        for member in [each for each in self._members if each.rests_until <= now]:
            if (sent := member.build_request(request)) is not None:
                is_any_awake = True
                yield member, sent
        if is_any_awake:
            return
        for member in sorted(self._members, key=lambda each: each.rests_until):
            if (sent := member.build_request(request)) is not None:
                yield member, sent
                return
