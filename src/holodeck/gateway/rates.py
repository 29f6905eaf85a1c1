"""How much a caller may ask for: at once, and in a minute. Over it the answer is no, with when to try again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from holodeck.gateway.callers import Caller
from holodeck.models.gateway import KeyLimits

_MINUTE = 60.0


class TooManyError(Exception):
    """The caller is over a limit. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass
class _Account:
    in_flight: int = 0
    counts_tokens: bool = False
    requests: deque[float] = field(default_factory=deque)
    tokens: deque[tuple[float, int]] = field(default_factory=deque)


class Rates:
    """Accounts of all callers, and of the gateway as a whole. In memory: each gateway counts for itself."""

    def __init__(self, default: KeyLimits, in_flight: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = default
        self._limit = in_flight
        self._clock = clock
        self._total = 0
        self._accounts: dict[str, _Account] = {}

    @property
    def in_flight(self) -> int:
        return self._total

    def request(self, caller: Caller) -> _Counted:
        """Count a request while it lasts: `with rates.request(caller):`. Raises `TooManyError` instead of waiting."""
        return _Counted(self, caller)

    def begin(self, caller: Caller) -> None:
        """A request has come."""
        limits = caller.limits or self._default
        account = self._accounts.get(caller.id)
        if account is None:
            account = self._accounts[caller.id] = _Account()
        now = self._clock()
        self._check(account, limits, now)
        self._total += 1
        account.in_flight += 1
        account.counts_tokens = limits.tokens_per_minute is not None
        if limits.requests_per_minute is not None:
            account.requests.append(now)

    def end(self, caller: Caller) -> None:
        """It is over."""
        self.release(caller.id)

    def hold(self, caller_id: str) -> None:
        """A run goes on after its request, with which it was let in; it counts until it is released."""
        self._total += 1
        self._accounts.setdefault(caller_id, _Account()).in_flight += 1

    def release(self, caller_id: str) -> None:
        account = self._accounts[caller_id]
        self._total -= 1
        account.in_flight -= 1
        if not account.in_flight and not account.requests and not account.counts_tokens:
            del self._accounts[caller_id]

    def spent(self, caller_id: str, tokens: int) -> None:
        """Note what a finished run has used, also when it went on in the background."""
        account = self._accounts.get(caller_id)
        if account is not None and account.counts_tokens and tokens:
            account.tokens.append((self._clock(), tokens))

    def _check(self, account: _Account, limits: KeyLimits, now: float) -> None:
        if self._total >= self._limit:
            raise TooManyError("The gateway is at its limit of requests at once.", 1.0)
        if account.in_flight >= limits.in_flight:
            raise TooManyError(f"This key is at its limit of {limits.in_flight} requests at once.", 1.0)
        while account.requests and account.requests[0] <= now - _MINUTE:
            account.requests.popleft()
        per_minute = limits.requests_per_minute
        if per_minute is not None and len(account.requests) >= per_minute:
            wait = account.requests[0] + _MINUTE - now
            raise TooManyError(f"This key is at its limit of {per_minute} requests a minute.", wait)
        while account.tokens and account.tokens[0][0] <= now - _MINUTE:
            account.tokens.popleft()
        tokens = limits.tokens_per_minute
        if tokens is not None and sum(count for _, count in account.tokens) >= tokens:
            wait = account.tokens[0][0] + _MINUTE - now
            raise TooManyError(f"This key is at its limit of {tokens} tokens a minute.", wait)


class _Counted:
    """A request that is counted while it lasts."""

    __slots__ = ("_caller", "_rates")

    def __init__(self, rates: Rates, caller: Caller) -> None:
        self._rates = rates
        self._caller = caller

    def __enter__(self) -> None:
        self._rates.begin(self._caller)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._rates.end(self._caller)
