"""Tokens that need no person: kept, renewed before they expire by one request, and once when a server refuses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.errors import MCPError
from holodeck.tools.mcp.auth.dpop import DPoPHTTP
from holodeck.tools.mcp.auth.provider import AuthRefusal, auth_error
from holodeck.tools.mcp.auth.renewal import SharedRenewal
from holodeck.tools.mcp.auth.token import Token

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
