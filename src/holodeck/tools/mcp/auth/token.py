"""An access token that knows when it grows old, and what a token endpoint's answer means."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from holodeck.lib.errors import MCPError
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.redaction import MASK
from holodeck.lib.secret import Secret
from holodeck.lib.types import Clock, wall_clock
from holodeck.tools.mcp.auth.auth_http import AuthResponse, display_url
from holodeck.tools.mcp.auth.dpop import DPoPHTTP
from holodeck.tools.mcp.auth.provider import AuthRefusal, auth_error

# Seconds before its expiry a token is renewed: longer than a request and two clocks' difference.
TOKEN_LEEWAY = 60.0
# ... but at most this part of a short token's life, or it would never be fresh.
TOKEN_LEEWAY_SHARE = 0.25


ISSUED = (200, 201)


@dataclass(frozen=True, kw_only=True)
class Token:
    """What a server accepts as proof, for a while."""

    value: Secret
    expires_at: float | None = None
    """By the wall clock. None: until a server refuses it."""
    renew_at: float | None = None
    """A little before `expires_at`."""
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
    """The token in an answer, or an error that says what the endpoint did. `secrets` are cut out of its words."""
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
    """Seconds, from a number or (as some servers send it) its text. What makes no sense is no promise."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 and not isinstance(value, bool) else None


def _read_reason(content: dict[str, Any] | None, secrets: Iterable[Secret]) -> str:
    if content is None:
        return ""
    words = [content[key] for key in ("error", "error_description") if isinstance(content.get(key), str)]
    text = ": ".join(words)
    # An endpoint may quote what it was sent.
    for secret in secrets:
        if secret:
            text = text.replace(secret.reveal(), MASK)
    clean = "".join(char if char.isprintable() else " " for char in text)[: 4 * MAX_SHOWN_CHARS]
    return f" ({clean.rstrip('.')})" if clean else ""


P = ParamSpec("P")
T = TypeVar("T")


class SharedRenewal(Generic[P, T]):
    """Callers that come while a renewal runs get its outcome; the next caller after it starts another."""

    def __init__(self, renew: Callable[P, Coroutine[Any, Any, T]]) -> None:
        self._renew = renew
        self._running: asyncio.Task[T] | None = None

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        running = self._running
        # A task of an event loop that is gone will never be done.
        if running is None or running.done() or running.get_loop() is not asyncio.get_running_loop():
            running = asyncio.create_task(self._renew(*args, **kwargs), name="mcp-auth-renewal")
            running.add_done_callback(_retrieve_exception)
            self._running = running
        # The shield lets a caller go while the task works on for the others; the work itself is bounded in time.
        return await asyncio.shield(running)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """When every caller has gone, nobody else looks at the error."""
    if not task.cancelled():
        task.exception()


UNAUTHORIZED = 401


class Grant(Protocol):
    """A way to get a token from an authorization server."""

    async def obtain(self) -> Token: ...


class TokenGrantAuth:
    """The provider around a grant. Holds no lock: a fresh token is read, and only a renewal is waited for."""

    def __init__(self, server: str, grant: Grant, *, proof: DPoPHTTP | None = None, clock: Clock = wall_clock) -> None:
        """`proof`: the door that the grant asks through, where its tokens may be bound to a key."""
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
        if refusal.status != UNAUTHORIZED:
            return False  # known, but not allowed to: another token of the same grant would say the same
        token = self._token
        sent = refusal.sent.get("Authorization", "").partition(" ")[2]
        if token is not None and sent != token.value.reveal():
            return True  # another call has renewed it meanwhile
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
            if old is not None and old.is_valid(self._clock()):
                return old  # not for long, but the call need not fail for it
            raise

    async def _obtain_token(self) -> Token:
        self._token = token = await self._grant.obtain()
        return token
