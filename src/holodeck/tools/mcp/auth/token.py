"""Access tokens: their lifetime, the response of a token endpoint, and the provider that renews them with a grant.

`SharedRenewal` runs one renewal at a time and gives its outcome to all concurrent callers. A renewal is not cancelled
with its callers; it is bounded by the timeouts of its own requests.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.errors import MCPError
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.record import record
from holodeck.lib.redaction import MASK
from holodeck.lib.secret import Secret
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.auth.auth_http import AuthResponse, display_url
from holodeck.tools.mcp.auth.dpop import DPoPHTTP
from holodeck.tools.mcp.auth.provider import AuthRefusal, auth_error

# Seconds before its expiry that a token is renewed: longer than a request takes and than two clocks differ.
TOKEN_LEEWAY = 60.0
# The leeway is at most this share of the lifetime; otherwise a short-lived token would never be fresh.
TOKEN_LEEWAY_SHARE = 0.25
# The statuses of a token response that contains a token.
ISSUED = (200, 201)
UNAUTHORIZED = 401

P = ParamSpec("P")
T = TypeVar("T")


@record
class Token:
    """An access token and its lifetime."""

    value: Secret
    expires_at: float | None = None
    """Wall-clock time. None: valid until a server refuses it."""
    renew_at: float | None = None
    """`expires_at` minus the leeway."""
    scope: str | None = None

    def is_fresh(self, now: float) -> bool:
        return self.renew_at is None or now < self.renew_at

    def is_valid(self, now: float) -> bool:
        return self.expires_at is None or now < self.expires_at

    @property
    def authorization(self) -> str:
        return f"Bearer {self.value.reveal()}"


def build_token(value: str, *, issued_at: float, lifetime: float | None, scope: str | None = None) -> Token:
    if lifetime is None:
        return Token(value=Secret(value), scope=scope)
    expires_at = issued_at + lifetime
    leeway = min(TOKEN_LEEWAY, lifetime * TOKEN_LEEWAY_SHARE)
    return Token(value=Secret(value), expires_at=expires_at, renew_at=expires_at - leeway, scope=scope)


def read_token(
    answer: AuthResponse,
    *,
    server: str,
    endpoint: str,
    now: float,
    secrets: Iterable[Secret] = (),
    kind: str = "bearer",
) -> Token:
    """Return the token of a token response. Raises MCPConnectionError; `secrets` are masked in the endpoint's text."""
    where = f"the token endpoint {display_url(endpoint)}"
    content = answer.json()
    if answer.status not in ISSUED:
        raise auth_error(
            server, f"{where} answered {answer.status}{_read_reason(content, secrets)}.", status=answer.status
        )
    if content is None:
        raise auth_error(server, f"{where} answered {answer.status} with something that is not a JSON object.")
    value = content.get("access_token")
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise auth_error(server, f"{where} answered {answer.status} without a usable 'access_token'.")
    if str(content.get("token_type", kind)).lower() != kind:
        raise auth_error(server, f"{where} issued a token that is not of the kind '{kind}', which cannot be used.")
    scope = content.get("scope")
    return build_token(
        value,
        issued_at=now,
        lifetime=read_lifetime(content.get("expires_in")),
        scope=scope if isinstance(scope, str) else None,
    )


def read_lifetime(value: Any) -> float | None:
    """Parse `expires_in`: seconds, as a number or, from some servers, as text. None when it is no positive number."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 and not isinstance(value, bool) else None


def _read_reason(content: dict[str, Any] | None, secrets: Iterable[Secret]) -> str:
    if content is None:
        return ""
    text = ": ".join(content[key] for key in ("error", "error_description") if isinstance(content.get(key), str))
    # An endpoint may quote parts of the request.
    for secret in secrets:
        if secret:
            text = text.replace(secret.reveal(), MASK)
    clean = "".join(char if char.isprintable() else " " for char in text)[: 4 * MAX_SHOWN_CHARS]
    return f" ({clean.rstrip('.')})" if clean else ""


class SharedRenewal(Generic[P, T]):
    """Runs `renew` once for all concurrent callers; a call after its end starts it again."""

    def __init__(self, renew: Callable[P, Coroutine[Any, Any, T]]) -> None:
        self._renew = renew
        self._running: asyncio.Task[T] | None = None
        self._tasks = TaskSet()

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        running = self._running
        # A task of a closed event loop will never be done.
        if running is None or running.done() or running.get_loop() is not asyncio.get_running_loop():
            running = self._tasks.start(self._renew(*args, **kwargs), name="mcp-auth-renewal")
            running.add_done_callback(_retrieve_exception)
            self._running = running
        # A cancelled caller does not cancel the renewal of the others.
        return await asyncio.shield(running)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Mark the exception as retrieved: every caller may have been cancelled, and asyncio would log it at exit."""
    if not task.cancelled():
        task.exception()


class Grant(Protocol):
    """An OAuth grant: obtains tokens from an authorization server."""

    async def obtain(self) -> Token: ...


class TokenGrantAuth:
    """Provider that renews its token with a grant. It takes no lock: a fresh token is read without waiting."""

    def __init__(self, server: str, grant: Grant, *, proof: DPoPHTTP | None = None, clock: Clock = wall_clock) -> None:
        """`proof`: the HTTP client of the grant, if its tokens may be bound to a key (DPoP)."""
        self._server = server
        self._proof = proof
        self._grant = grant
        self._clock = clock
        self._token: Token | None = None
        self._shared_renewal = SharedRenewal(self._obtain_token)

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        token = self._token
        if token is None or not token.is_fresh(self._clock()):
            token = await self._renew_unless_valid(token)
        if self._proof is None:
            return {"Authorization": token.authorization}
        return self._proof.build_headers(token.value.reveal(), method, url)

    async def refused(self, refusal: AuthRefusal) -> bool:
        if self._proof is not None and self._proof.store_nonce(refusal):
            return True
        # 403: the client is authenticated but not permitted; a new token of the same grant has the same rights.
        if refusal.status != UNAUTHORIZED:
            return False
        token = self._token
        sent = refusal.sent.get("Authorization", "").partition(" ")[2]
        # Another call has renewed the token in the meantime.
        if token is not None and sent != token.value.reveal():
            return True
        if refusal.attempt > 1:
            raise auth_error(
                self._server,
                "it refused a token that was just issued (401)."
                " Check that 'scopes' and 'resource' of its auth are what it expects.",
                status=refusal.status,
                url=refusal.url,
            )
        await self._shared_renewal()
        return True

    async def _renew_unless_valid(self, old: Token | None) -> Token:
        try:
            return await self._shared_renewal()
        except MCPError:
            # The leeway has begun, but the old token is still accepted.
            if old is not None and old.is_valid(self._clock()):
                return old
            raise

    async def _obtain_token(self) -> Token:
        self._token = token = await self._grant.obtain()
        return token
