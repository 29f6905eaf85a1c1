"""Limits per caller and per gateway: requests, transfers, WebSockets and streams at once, requests and tokens a minute.

Nothing waits here: over a limit, `TooManyError` says when to retry. The counts are in memory, so each gateway process
has its own; only background responses are counted in storage, for all gateways together.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from types import TracebackType

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.auth.groups import SharedAccount
from holodeck.lib.limits import DEFAULT_MCP_STREAMS, DEFAULT_SOCKETS
from holodeck.models.callers import GroupLimits, KeyLimits
from holodeck.models.gateway import GatewayLimits

# Seconds until a caller over its limit of background responses retries: a run takes from a few seconds to minutes.
BACKGROUND_RETRY_AFTER = 5.0

_MINUTE = 60.0  # seconds
# Older accounts that are checked for each new one. With two or more, accounts are deleted faster than new ones come.
_ACCOUNTS_CHECKED = 3
_THIS_KEY = "This key"


class TooManyError(Exception):
    """The caller or the gateway is over a limit. `retry_after` is in seconds."""

    code = "rate_limit_exceeded"
    should_retry = True
    """Whether a client may try again by itself after that."""

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
    """A sum over the last minute."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, now: float, count: int) -> None:
        self._counts.append((now, count))
        self.total += count

    def expire(self, now: float) -> None:
        """Subtract what is older than a minute."""
        while self._counts and self._counts[0][0] <= now - _MINUTE:
            self.total -= self._counts.popleft()[1]

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the oldest count expires. Only for a window that is not empty."""
        return self._counts[0][0] + _MINUTE - now


@dataclass(slots=True, eq=False)
class _Account:
    in_flight: int = 0
    transfers: int = 0
    sockets: int = 0
    mcp_streams: int = 0
    token_limit: int | None = None
    """Tokens a minute, as of the caller's latest request."""
    has_own_limits: bool = False
    """The caller's key has limits of its own. With a token limit, such an account is never deleted: `add_tokens` finds
    that limit only here for a run that outlives its request. The keys in the file bound the number of such accounts."""
    shared: tuple[_Account, ...] = ()
    """The accounts that its requests at once also count in, as of the caller's latest request."""
    requests: _MinuteWindow = field(default_factory=_MinuteWindow)
    tokens: _MinuteWindow = field(default_factory=_MinuteWindow)

    def is_empty(self) -> bool:
        """Return whether a new account would be the same, so that this one can be deleted."""
        if self.in_flight or self.transfers or self.sockets or self.mcp_streams:
            return False
        if self.requests.total or self.tokens.total:
            return False
        return not (self.has_own_limits and self.token_limit is not None)


class CallerLimits:
    """Counts the requests, transfers, WebSockets and tokens of each caller, and of the gateway as a whole."""

    def __init__(
        self,
        default: KeyLimits,
        in_flight: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        sockets: int = DEFAULT_SOCKETS,
        mcp_streams: int = DEFAULT_MCP_STREAMS,
    ) -> None:
        self.default = default
        """The limits of callers that have none of their own."""
        self._max_in_flight = in_flight
        self._max_sockets = sockets
        self._max_mcp_streams = mcp_streams
        self._clock = clock
        self.in_flight = 0
        """Requests and runs at this moment."""
        self._transfers = 0
        self._sockets = 0
        self._mcp_streams = 0
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    @staticmethod
    def of(limits: GatewayLimits) -> CallerLimits:
        """Return the limits of a gateway's file, with nothing counted."""
        return CallerLimits(limits.key, limits.in_flight, sockets=limits.sockets, mcp_streams=limits.mcp_streams)

    def replace_limits(self, limits: GatewayLimits) -> None:
        """Check everything from now on against other limits. What is counted stays counted."""
        self.default = limits.key
        self._max_in_flight = limits.in_flight
        self._max_sockets = limits.sockets
        self._max_mcp_streams = limits.mcp_streams

    def __len__(self) -> int:
        """Return the number of accounts in memory."""
        return len(self._accounts)

    @property
    def sockets(self) -> int:
        return self._sockets

    def build_headers(self, caller: Caller) -> dict[str, str]:
        """Return what is left of the caller's limits by the minute, in the headers of OpenAI's API."""
        limits, account = caller.limits or self.default, self._accounts.get(caller.id) or _Account()
        now, headers = self._clock(), dict[str, str]()
        for name, limit, window in (
            ("requests", limits.requests_per_minute, account.requests),
            ("tokens", limits.tokens_per_minute, account.tokens),
        ):
            if limit is None:
                continue
            window.expire(now)
            wait = window.seconds_left(now) if window.total else 0.0
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, limit - window.total))
            headers[f"x-ratelimit-reset-{name}"] = f"{ceil(wait)}s"
        return headers

    def count_request(self, caller: Caller) -> _RequestCount:
        """Count a request during a `with` block, which raises `TooManyError` at its start."""
        return _RequestCount(self, caller)

    def start_request(self, caller: Caller) -> None:
        """Count a request until `end_request`. Raises `TooManyError`."""
        limits = caller.limits or self.default
        now = self._clock()
        account = self._accounts.get(caller.id) or self._open_account(caller.id, now)
        if self.in_flight >= self._max_in_flight:
            raise TooManyError("The gateway is at its limit of requests at once.", 1.0)
        if account.in_flight >= limits.in_flight:
            raise TooManyError(f"This key is at its limit of {limits.in_flight} requests at once.", 1.0)
        if limits.requests_per_minute is not None or limits.tokens_per_minute is not None:
            _check_rates(account, limits, now)
        if caller.shared or account.shared:
            self._count_shared(account, caller, now)
        self.in_flight += 1
        account.in_flight += 1
        account.token_limit = limits.tokens_per_minute
        account.has_own_limits = caller.limits is not None
        if limits.requests_per_minute is not None:
            account.requests.add(now, 1)

    def end_request(self, caller: Caller) -> None:
        self.release(caller.id)

    def _count_shared(self, account: _Account, caller: Caller, now: float) -> None:
        """Count a request in the accounts that its caller shares. Raises `TooManyError`."""
        shared = tuple(self._accounts.get(each.id) or self._open_shared(each.id) for each in caller.shared)
        if shared != account.shared:
            # The caller has another group than before: what it has open moves there with it.
            for other in account.shared:
                other.in_flight -= account.in_flight
            for other in shared:
                other.in_flight += account.in_flight
            account.shared = shared
        found = [
            (each, counted, each.limits or self.default) for each, counted in zip(caller.shared, shared, strict=True)
        ]
        for each, counted, limits in found:
            if limits.in_flight is not None and counted.in_flight >= limits.in_flight:
                raise TooManyError(f"{each.shown_as} is at its limit of {limits.in_flight} requests at once.", 1.0)
            _check_rates(counted, limits, now, each.shown_as)
        for each, counted, limits in found:
            counted.in_flight += 1
            counted.token_limit = limits.tokens_per_minute
            counted.has_own_limits = each.limits is not None
            if limits.requests_per_minute is not None:
                counted.requests.add(now, 1)

    def acquire(self, caller_id: str) -> None:
        """Count a run that goes on after its request until `release`. No limit is checked: its request was counted."""
        self.in_flight += 1
        account = self._accounts.get(caller_id) or self._open_account(caller_id, self._clock())
        account.in_flight += 1
        for each in account.shared:
            each.in_flight += 1

    def release(self, caller_id: str) -> None:
        account = self._accounts[caller_id]
        self.in_flight -= 1
        account.in_flight -= 1
        for each in account.shared:
            each.in_flight -= 1

    def add_tokens(self, caller_id: str, tokens: int) -> None:
        """Count the tokens of a turn that has ended, also of a run that went on after its request."""
        account = self._accounts.get(caller_id)
        if account is None and tokens and self.default.tokens_per_minute is not None:
            # The request of a background run may have ended long ago, and its account been deleted.
            account = self._open_account(caller_id, self._clock())
            account.token_limit = self.default.tokens_per_minute
        if account is not None and account.token_limit is not None and tokens:
            account.tokens.add(self._clock(), tokens)

    def add_shared_tokens(self, shared: SharedAccount, tokens: int) -> None:
        """Count the tokens of a turn in an account that its caller shares."""
        limit = (shared.limits or self.default).tokens_per_minute
        if limit is not None and tokens:
            account = self._accounts.get(shared.id) or self._open_shared(shared.id)
            account.token_limit, account.has_own_limits = limit, shared.limits is not None
            account.tokens.add(self._clock(), tokens)

    def _open_shared(self, account_id: str) -> _Account:
        """Create an account that callers share. There are no more than the operator or the keys in the store have."""
        account = self._accounts[account_id] = _Account()
        return account

    def find_shared_token_limit(self, shared: SharedAccount) -> int | None:
        return (shared.limits or self.default).tokens_per_minute

    def find_token_limit(self, caller_id: str) -> int | None:
        """Return the tokens a minute that a caller may use, as of its latest request. None: any number."""
        account = self._accounts.get(caller_id)
        return self.default.tokens_per_minute if account is None else account.token_limit

    def require_tokens_left(self, caller_id: str, shown_as: str = _THIS_KEY) -> int:
        """Return the tokens that a caller has used in the last minute. Raises `TooManyError` if that is its limit."""
        account = self._accounts.get(caller_id)
        return 0 if account is None else _require_tokens_left(account, account.token_limit, self._clock(), shown_as)

    def background_limit(self, caller: Caller) -> int:
        """Return the number of background responses that a caller may have queued or running. Storage counts them."""
        return (caller.limits or self.default).background

    @contextmanager
    def count_transfer(self, caller: Caller) -> Iterator[None]:
        """Count an upload or a followed stream of an uncounted route during a `with` block. Raises `TooManyError`.

        The limits are those of requests, counted apart from them.
        """
        limits = caller.limits or self.default
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
        """Count an open WebSocket during a `with` block, idle or not. Raises `TooManyError`."""
        limits = caller.limits or self.default
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

    @contextmanager
    def count_mcp_stream(self, caller: Caller) -> Iterator[None]:
        """Count an event stream on which an MCP client listens, during a `with` block. Raises `TooManyError`."""
        limits = caller.limits or self.default
        account = self._accounts.get(caller.id) or self._open_account(caller.id, self._clock())
        if self._mcp_streams >= self._max_mcp_streams:
            raise TooManyError("The gateway is at its limit of streams of MCP clients.", 1.0)
        if account.mcp_streams >= limits.mcp_streams:
            raise TooManyError(f"This key is at its limit of {limits.mcp_streams} streams of MCP clients.", 1.0)
        self._mcp_streams += 1
        account.mcp_streams += 1
        try:
            yield
        finally:
            self._mcp_streams -= 1
            account.mcp_streams -= 1

    def _open_account(self, caller_id: str, now: float) -> _Account:
        """Create an account, and delete empty ones among a few older accounts.

        An identity provider may name a new caller each time. Checking a few accounts for each new one bounds the number
        of accounts without a pass over all of them.
        """
        for _ in range(min(_ACCOUNTS_CHECKED, len(self._accounts))):
            other_id, account = next(iter(self._accounts.items()))
            account.requests.expire(now)
            account.tokens.expire(now)
            if account.is_empty():
                del self._accounts[other_id]
            else:
                self._accounts.move_to_end(other_id)
        account = self._accounts[caller_id] = _Account()
        return account


def _check_rates(account: _Account, limits: KeyLimits | GroupLimits, now: float, shown_as: str = _THIS_KEY) -> None:
    per_minute = limits.requests_per_minute
    if per_minute is not None:
        account.requests.expire(now)
        if account.requests.total >= per_minute:
            wait = account.requests.seconds_left(now)
            raise TooManyError(f"{shown_as} is at its limit of {per_minute} requests a minute.", wait)
    if limits.tokens_per_minute is not None:
        _require_tokens_left(account, limits.tokens_per_minute, now, shown_as)


def _require_tokens_left(account: _Account, limit: int | None, now: float, shown_as: str) -> int:
    account.tokens.expire(now)
    if limit is not None and account.tokens.total >= limit:
        wait = account.tokens.seconds_left(now)
        raise TooManyError(f"{shown_as} is at its limit of {limit} tokens a minute.", wait)
    return account.tokens.total


class _RequestCount:
    __slots__ = ("_caller", "_caller_limits")

    def __init__(self, caller_limits: CallerLimits, caller: Caller) -> None:
        self._caller_limits = caller_limits
        self._caller = caller

    def __enter__(self) -> None:
        self._caller_limits.start_request(self._caller)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._caller_limits.release(self._caller.id)
