"""The login of a person at an identity provider: OpenID Connect's authorization code with PKCE.

`begin` gives the address of the login page, and an attempt, which the gateway puts into the browser, sealed. `finish`
takes the attempt and what the identity provider says through the browser, exchanges the code, checks the ID token, and
returns the claims of the person. The caller has compared the state and used it up.

An answer of another issuer than the one that was asked is refused: by the parameter `iss` (RFC 9207) before the code is
sent anywhere, and by the ID token.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from holodeck.gateway.auth.jwt import JWTProvider
from holodeck.lib import log
from holodeck.lib.errors import HoloDeckError, MCPError
from holodeck.lib.record import record
from holodeck.models.callers import PersonLogin
from holodeck.models.url import url_problem
from holodeck.tools.mcp.auth.auth_http import AuthHTTPClient
from holodeck.tools.mcp.auth.client_authentication import ClientIdentity, PublicClient, SecretInForm, SecretInHeader
from holodeck.tools.mcp.auth.redirect import RedirectResult
from holodeck.tools.mcp.auth.server_metadata import OK, AuthorizationServer, discover_server

# Seconds for a person to log in at the identity provider.
ATTEMPT_SECONDS = 600.0
# Seconds after which the addresses of the identity provider are read again.
_METADATA_SECONDS = 600.0
# Random bytes of a state, a nonce and a PKCE verifier: 86 characters in base64; RFC 7636 allows 43 to 128.
_RANDOM_BYTES = 64
# Names the identity provider in the log.
_SHOWN_AS = "identity provider"


class LoginError(HoloDeckError):
    """A login has failed. Its text is for the person, and has nothing of what the identity provider has said."""

    def __init__(self, text: str, *, status: int = 403) -> None:
        super().__init__(text)
        self.status = status


@record
class LoginAttempt:
    """A login at the identity provider, as the gateway has to know it when the browser comes back."""

    state: str
    nonce: str
    verifier: str
    issuer: str
    redirect_uri: str
    expires_at: float
    next: str
    """Where the person goes afterwards, below the address of the gateway."""


class IssuerLogin:
    """Logs persons in at the identity provider of the configuration."""

    def __init__(self) -> None:
        self._server: AuthorizationServer | None = None
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def begin(self, provider: JWTProvider, redirect_uri: str, next_place: str) -> tuple[str, LoginAttempt]:
        """Return the address of the login page, and the attempt. Raises `LoginError`."""
        settings, server = _require_login(provider), await self._find_server(provider)
        attempt = LoginAttempt(
            state=secrets.token_urlsafe(_RANDOM_BYTES),
            nonce=secrets.token_urlsafe(_RANDOM_BYTES),
            verifier=secrets.token_urlsafe(_RANDOM_BYTES),
            issuer=provider.config.issuer,
            redirect_uri=redirect_uri,
            expires_at=time.time() + ATTEMPT_SECONDS,
            next=next_place,
        )
        digest = hashlib.sha256(attempt.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *settings.scopes))),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        page = str(server.authorization_endpoint)
        return f"{page}{'&' if '?' in page else '?'}{urlencode(query)}", attempt

    async def finish(self, provider: JWTProvider, attempt: LoginAttempt, result: RedirectResult) -> Mapping[str, Any]:
        """Exchange the code, and return the claims of the person. Raises `LoginError`."""
        settings, server = _require_login(provider), await self._find_server(provider)
        if attempt.issuer != provider.config.issuer:
            raise LoginError("The identity provider of this gateway was replaced meanwhile. Log in again.", status=400)
        is_named = result.iss is not None or server.has_iss_parameter
        if is_named and result.iss != attempt.issuer:
            log.warning("gateway.login_mixed_up", issuer=attempt.issuer)
            raise LoginError("This answer is of another identity provider than the one that was asked.", status=400)
        if not result.is_granted:
            raise LoginError("The identity provider has not let you in.")
        tokens = await _exchange_code(settings, server, attempt, result.code)
        id_claims = await provider.verify(str(tokens.get("id_token", "")), settings.client_id)
        if id_claims is None or not _is_for(id_claims, settings.client_id, attempt.nonce):
            log.warning("gateway.login_failed", issuer=attempt.issuer, reason="its ID token is not for this login")
            raise LoginError("The identity provider has answered with a token that is not for this login.", status=400)
        # Groups and scopes may be in one of both tokens. An access token that is not for this gateway says nothing.
        access_claims = await provider.verify(str(tokens.get("access_token", "")), provider.config.audience)
        if access_claims is None or access_claims.get("sub") != id_claims.get("sub"):
            return id_claims
        return {
            **id_claims,
            **{name: access_claims[name] for name in provider.deciding_claims if name in access_claims},
        }

    async def _find_server(self, provider: JWTProvider) -> AuthorizationServer:
        """Return the metadata of the identity provider, read lately."""
        async with self._lock:
            issuer, server = provider.config.issuer, self._server
            if server is None or server.issuer != issuer or time.monotonic() - self._read_at > _METADATA_SECONDS:
                server = self._server = await _read_server(issuer)
                self._read_at = time.monotonic()
            return server


async def _read_server(issuer: str) -> AuthorizationServer:
    try:
        server = await discover_server(issuer, server=_SHOWN_AS, http=AuthHTTPClient(_SHOWN_AS))
    except MCPError as error:
        log.warning("gateway.login_failed", issuer=issuer, reason=error)
        raise LoginError("The identity provider does not answer. Try again in a moment.", status=503) from None
    page, methods = server.authorization_endpoint, server.challenge_methods
    reason = "its metadata name no page for logins" if page is None else url_problem(page)
    if reason is None and methods is not None and "S256" not in methods:
        reason = "it has no PKCE with S256"
    if reason is not None:
        log.error("gateway.login_failed", issuer=issuer, reason=reason)
        raise LoginError("The identity provider of this gateway cannot be used for a login.", status=503)
    return server


async def _exchange_code(
    settings: PersonLogin, server: AuthorizationServer, attempt: LoginAttempt, code: str
) -> Mapping[str, Any]:
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    await _choose_identity(settings, server).sign(form, headers, audience=server.token_endpoint)
    try:
        answer = await AuthHTTPClient(_SHOWN_AS)(
            "POST", server.token_endpoint, headers=headers, body=urlencode(form).encode()
        )
    except MCPError as error:
        log.warning("gateway.login_failed", issuer=server.issuer, reason=error)
        raise LoginError("The identity provider does not answer. Log in again.", status=503) from None
    tokens = answer.json()
    if answer.status != OK or tokens is None:
        # Its own words may have the code or the secret in them; the name of an OAuth error has not.
        name = str((tokens or {}).get("error", ""))[:64]
        log.warning("gateway.login_failed", issuer=server.issuer, status=answer.status, reason=name)
        raise LoginError("The identity provider has refused to say who you are. Log in again.", status=400)
    return tokens


def _choose_identity(settings: PersonLogin, server: AuthorizationServer) -> ClientIdentity:
    if settings.client_secret is None:
        return PublicClient(settings.client_id)
    if "client_secret_basic" in server.auth_methods:
        return SecretInHeader(settings.client_id, settings.client_secret)
    return SecretInForm(settings.client_id, settings.client_secret)


def _is_for(claims: Mapping[str, Any], client_id: str, nonce: str) -> bool:
    """Return whether an ID token whose audience has the client was issued to it, for the login with this nonce."""
    audience, party = claims.get("aud"), claims.get("azp")
    has_others = isinstance(audience, list) and len(audience) > 1
    is_ours = party == client_id if party is not None or has_others else True
    return is_ours and secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode())


def _require_login(provider: JWTProvider) -> PersonLogin:
    if provider.config.login is None:
        raise LoginError("This gateway has no login any more.", status=404)
    return provider.config.login
