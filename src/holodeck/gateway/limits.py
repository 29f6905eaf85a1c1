"""How much a caller may ask for: at once, and in a minute. Over it the answer is no, with when to try again."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType

from holodeck.gateway.auth.callers import Caller
from holodeck.lib.limits import DEFAULT_SOCKETS
from holodeck.models.gateway import KeyLimits

# Seconds; a run takes from a few of them to minutes, and who asks too early waits again.
BACKGROUND_RETRY_AFTER = 5.0


_MINUTE = 60.0
_ACCOUNTS_CHECKED = 3  # at older accounts for each new one: two would do to forget faster than new ones come


class TooManyError(Exception):
    """The caller is over a limit. `parse_retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def background_limit_error(limit: int) -> TooManyError:
    text = (
        f"This key is at its limit of {limit} background responses that are queued or running. "
        "Wait until one of them has ended, or cancel one, and ask again."
    )
    return TooManyError(text, BACKGROUND_RETRY_AFTER)


class _MinuteWindow:
    """What was counted in the last minute."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, now: float, count: int) -> None:
        self._counts.append((now, count))
        self.total += count

    def expire(self, now: float) -> None:
        """Leave out what is older than a minute."""
        while self._counts and self._counts[0][0] <= now - _MINUTE:
            self.total -= self._counts.popleft()[1]

    def seconds_left(self, now: float) -> float:
        """Until the oldest is forgotten."""
        return self._counts[0][0] + _MINUTE - now


@dataclass(slots=True)
class _Account:
    in_flight: int = 0
    transfers: int = 0
    sockets: int = 0
    has_token_limit: bool = False
    has_own_limits: bool = False
    """Its caller has limits of its own in the file. There are only so many, and runs that go on need to find them."""
    requests: _MinuteWindow = field(default_factory=_MinuteWindow)
    tokens: _MinuteWindow = field(default_factory=_MinuteWindow)

    def is_empty(self) -> bool:
        """True when a new one would say the same."""
        if self.in_flight or self.transfers or self.sockets or self.requests.total or self.tokens.total:
            return False
        return not (self.has_own_limits and self.has_token_limit)


class CallerLimits:
    """Accounts of all callers, and of the gateway as a whole. In memory: each gateway counts for itself."""

    def __init__(
        self,
        default: KeyLimits,
        in_flight: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        sockets: int = DEFAULT_SOCKETS,
    ) -> None:
        self._default = default
        self._max_in_flight = in_flight
        self._max_sockets = sockets
        self._clock = clock
        self._in_flight = 0
        self._transfers = 0
        self._sockets = 0
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def __len__(self) -> int:
        """How many callers are remembered."""
        return len(self._accounts)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def sockets(self) -> int:
        return self._sockets

    def count_request(self, caller: Caller) -> _RequestCount:
        """Count a request while it lasts: `with rates.request(caller):`. Raises `TooManyError` instead of waiting."""
        return _RequestCount(self, caller)

    def start_request(self, caller: Caller) -> None:
        """A request has come."""
        limits = caller.limits or self._default
        now = self._clock()
        account = self._accounts.get(caller.id) or self._open_account(caller.id, now)
        self._check_limits(account, limits, now)
        self._in_flight += 1
        account.in_flight += 1
        account.has_token_limit = limits.tokens_per_minute is not None
        account.has_own_limits = caller.limits is not None
        if limits.requests_per_minute is not None:
            account.requests.add(now, 1)

    def end_request(self, caller: Caller) -> None:
        """It is over."""
        self.release(caller.id)

    def acquire(self, caller_id: str) -> None:
        """A run goes on after its request, with which it was let in; it counts until it is released."""
        self._in_flight += 1
        account = self._accounts.get(caller_id) or self._open_account(caller_id, self._clock())
        account.in_flight += 1

    def release(self, caller_id: str) -> None:
        account = self._accounts[caller_id]
        self._in_flight -= 1
        account.in_flight -= 1

    def add_tokens(self, caller_id: str, tokens: int) -> None:
        """Note what a finished run has used, also when it went on in the background."""
        account = self._accounts.get(caller_id)
        if account is None and tokens and self._default.tokens_per_minute is not None:
            account = self._open_account(caller_id, self._clock())  # its request is long over
            account.has_token_limit = True
        if account is not None and account.has_token_limit and tokens:
            account.tokens.add(self._clock(), tokens)

    def background_limit(self, caller: Caller) -> int:
        """How many of its background responses may be queued or running. Storage counts them, for all gateways."""
        return (caller.limits or self._default).background

    @contextmanager
    def count_transfer(self, caller: Caller) -> Iterator[None]:
        """Count what asks no model, but brings much or follows a stream: as many again as requests. Raises the same."""
        limits = caller.limits or self._default
        account = self._accounts.get(caller.id) or self._open_account(caller.id, self._clock())
        if self._transfers >= self._max_in_flight:
            raise TooManyError("The gateway is at its limit of uploads and followed streams at once.", 1.0)
        if account.transfers >= limits.in_flight:
            text = f"This key is at its limit of {limits.in_flight} uploads and followed streams at once."
            raise TooManyError(text, 1.0)
        self._transfers += 1
        account.transfers += 1
        try:
            yield
        finally:
            self._transfers -= 1
            account.transfers -= 1

    @contextmanager
    def count_socket(self, caller: Caller) -> Iterator[None]:
        """Count a WebSocket while it is open, whether or not it asks for anything. Raises `TooManyError`."""
        limits = caller.limits or self._default
        account = self._accounts.get(caller.id) or self._open_account(caller.id, self._clock())
        if self._sockets >= self._max_sockets:
            raise TooManyError("The gateway is at its limit of open WebSockets.", 1.0)
        if account.sockets >= limits.sockets:
            raise TooManyError(f"This key is at its limit of {limits.sockets} open WebSockets.", 1.0)
        self._sockets += 1
        account.sockets += 1
        try:
            yield
        finally:
            self._sockets -= 1
            account.sockets -= 1

    def _open_account(self, caller_id: str, now: float) -> _Account:
        """A new account. An identity provider may name a new caller each time, so for each of them a few older ones
        are looked at: more can go than come, and nobody waits until all of them have been.
        """
        for _ in range(min(_ACCOUNTS_CHECKED, len(self._accounts))):
            other, account = next(iter(self._accounts.items()))
            account.requests.expire(now)
            account.tokens.expire(now)
            if account.is_empty():
                del self._accounts[other]
            else:
                self._accounts.move_to_end(other)
        account = self._accounts[caller_id] = _Account()
        return account

    def _check_limits(self, account: _Account, limits: KeyLimits, now: float) -> None:
        if self._in_flight >= self._max_in_flight:
            raise TooManyError("The gateway is at its limit of requests at once.", 1.0)
        if account.in_flight >= limits.in_flight:
            raise TooManyError(f"This key is at its limit of {limits.in_flight} requests at once.", 1.0)
        account.requests.expire(now)
        per_minute = limits.requests_per_minute
        if per_minute is not None and account.requests.total >= per_minute:
            wait = account.requests.seconds_left(now)
            raise TooManyError(f"This key is at its limit of {per_minute} requests a minute.", wait)
        account.tokens.expire(now)
        tokens = limits.tokens_per_minute
        if tokens is not None and account.tokens.total >= tokens:
            wait = account.tokens.seconds_left(now)
            raise TooManyError(f"This key is at its limit of {tokens} tokens a minute.", wait)


class _RequestCount:
    """A request that is counted while it lasts."""

    __slots__ = ("_caller", "_caller_limits")

    def __init__(self, caller_limits: CallerLimits, caller: Caller) -> None:
        self._caller_limits = caller_limits
        self._caller = caller

    def __enter__(self) -> None:
        self._caller_limits.start_request(self._caller)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._caller_limits.end_request(self._caller)
