"""Several deployments of one model: regions or keys, between which requests are spread.

A conversation stays with the deployment that answered it, for the sake of its prompt cache; all else goes to the one
with the fewest requests in flight for its weight. One that cannot answer rests, as in `fallback.py`, and the request
goes to the next before any output. Limits of the provider are kept here, so that it need not refuse: a deployment
without room is passed over, and if none has any, the request fails as limited with the seconds until one has.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from holodeck.lib.errors import RATE_LIMITED, ModelError
from holodeck.models.items import Usage
from holodeck.models.llm import LLM, Deployment
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import ModelProvider
from holodeck.providers.wrappers.fallback import Fallback, Member

# Seconds of the limits of providers.
_WINDOW = 60.0
# In place of the amount of an entry that no longer counts.
_EXPIRED = -1.0
# Conversations and runs whose deployment is remembered: those of some hours of a busy gateway.
MAX_THREADS = 20_000


class MinuteLimit:
    """An amount that may be used within any minute."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._used: deque[list[float]] = deque()
        self._total = 0.0

    def find_wait(self, amount: float, now: float) -> float:
        """Return the seconds until there is room for an amount; 0 if there is."""
        while self._used and self._used[0][0] <= now - _WINDOW:
            expired = self._used.popleft()
            self._total -= expired[1]
            expired[1] = _EXPIRED
        # An amount above the limit would never have room: it has, once nothing else is used.
        if self._limit is None or not self._used or self._total + amount <= self._limit:
            return 0.0
        return self._used[0][0] + _WINDOW - now

    def use(self, amount: float, now: float) -> list[float]:
        """Count an amount, and return its entry for `correct`."""
        entry = [now, amount]
        if self._limit is not None:
            self._used.append(entry)
            self._total += amount
        return entry

    def correct(self, entry: list[float], amount: float) -> None:
        """Replace an estimated amount by what was used."""
        if self._limit is not None and entry[1] != _EXPIRED:
            self._total += amount - entry[1]
            entry[1] = amount


class DeploymentMember(Member):
    """A deployment with its weight and its limits."""

    def __init__(self, model: ModelProvider, llm: LLM, settings: Deployment) -> None:
        super().__init__(model, llm)
        self.weight = settings.weight
        self._requests = MinuteLimit(settings.requests_per_minute)
        self._tokens = MinuteLimit(settings.tokens_per_minute)
        self.has_limits = settings.requests_per_minute is not None or settings.tokens_per_minute is not None
        # Tokens of the latest answer: a turn is expected to take as many.
        self._expected_tokens = 0.0
        self._open_turns: dict[int, list[float]] = {}

    def find_wait(self, now: float) -> float:
        """Return the seconds until its limits have room for a request."""
        return max(self._requests.find_wait(1, now), self._tokens.find_wait(self._expected_tokens, now))

    def begin(self, request: ModelRequest, now: float) -> None:
        self._requests.use(1, now)
        self._open_turns[id(request)] = self._tokens.use(self._expected_tokens, now)

    def end(self, request: ModelRequest, usage: Usage | None) -> None:
        entry = self._open_turns.pop(id(request), None)
        if usage is not None:
            self._expected_tokens = float(usage.total_tokens)
        if entry is not None:
            self._tokens.correct(entry, 0.0 if usage is None else float(usage.total_tokens))


class Deployments(Fallback):
    """Spreads requests between the deployments of one model. Owns them."""

    def __init__(self, members: Sequence[DeploymentMember], *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(members, clock=clock)
        self._deployments = members
        self._threads: OrderedDict[str, DeploymentMember] = OrderedDict()

    def _order(self, request: ModelRequest) -> Sequence[tuple[Member, ModelRequest]]:
        """Return the deployments with room, that of the conversation first, then by their load.

        Raises `ModelError` if none has room.
        """
        now = self._clock()
        known = self._threads.get(request.run_id) or self._threads.get(_thread_of(request))
        roomy = [member for member in self._deployments if not member.has_limits or not member.find_wait(now)]
        if not roomy:
            wait = min(member.find_wait(now) for member in self._deployments)
            raise ModelError(
                f"All deployments of model '{self.name}' are at their limits for a minute.",
                code=RATE_LIMITED,
                is_retryable=True,
                retry_after=wait,
            )
        awake = [member for member in roomy if member.rests_until <= now]
        awake = awake or [min(roomy, key=lambda member: member.rests_until)]
        awake.sort(key=lambda member: (member is not known, (member.in_flight + 1) / member.weight))
        return [(member, request) for member in awake]

    def _record_answering(self, member: Member, request: ModelRequest) -> None:
        if not isinstance(member, DeploymentMember):
            return
        for thread in (request.run_id, _thread_of(request)):
            if thread:
                self._threads[thread] = member
                self._threads.move_to_end(thread)
        while len(self._threads) > MAX_THREADS:
            self._threads.popitem(last=False)


def _thread_of(request: ModelRequest) -> str:
    return request.prompt_cache_key or request.thread
