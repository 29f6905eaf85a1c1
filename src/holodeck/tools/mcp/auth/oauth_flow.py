"""The OAuth authorization code grant for one MCP server.

`LoginFlow.log_in` takes the steps of the MCP authorization specification in order: resource metadata, authorization
server metadata, a client (configured, named by the URL of its metadata, or registered), the login page in a browser,
the code exchange with PKCE. `LoginFlow.refresh` exchanges the refresh token. Both work on one `LoginRecord`, plain data
that the caller stores when the flow has succeeded; its keys are `tokens`, `issued_at`, `client`, `server_metadata`,
`resource_metadata` and `auth_server_url`. All requests go through `AuthHTTP`. Every failure is an `MCPConnectionError`
that contains no secret.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from holodeck.lib.clock import Clock
from holodeck.lib.errors import MCPError
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.url import is_loopback, url_problem
from holodeck.tools.mcp.auth.auth_http import AuthHTTP, AuthResponse, display_url
from holodeck.tools.mcp.auth.client_authentication import ClientIdentity, PublicClient, SecretInForm, SecretInHeader
from holodeck.tools.mcp.auth.provider import AuthRefusal, auth_error, challenge_parameter
from holodeck.tools.mcp.auth.redirect import OpenRedirect, Redirect
from holodeck.tools.mcp.auth.server_metadata import (
    AuthorizationServer,
    ProtectedResource,
    check_server_metadata,
    find_resource_metadata,
    find_server_metadata,
)
from holodeck.tools.mcp.auth.token import ISSUED, read_token
from holodeck.tools.mcp.auth.token_store import LoginRecord

ShowLoginPage = Callable[[str], Awaitable[None]]
"""Takes the URL of the login page to the person: opens a browser, prints it, or sends it to a page."""

_FORBIDDEN = 403
_OFFLINE = "offline_access"
_SECRET_METHODS = ("client_secret_basic", "client_secret_post")
# Random bytes of a PKCE verifier: 86 characters in base64; RFC 7636 allows 43 to 128.
_VERIFIER_BYTES = 64


@record
class LoginPrompt:
    """The way a person logs in: what shows the login page, and where the browser comes back to."""

    show: ShowLoginPage
    open_redirect: OpenRedirect


@record
class Login:
    """The server to log in to, and the client to log in as."""

    server: str
    url: str
    client_id: str | None = None
    client_secret: Secret | None = None
    client_metadata_url: str | None = None
    issuer: str | None = None
    """Pins the authorization server: a different one named by the MCP server is refused."""
    scopes: tuple[str, ...] = ()
    allow_insecure_hosts: tuple[str, ...] = ()


class LoginFlow:
    """One login or refresh. `record` is the stored state; the flow writes its results into it."""

    def __init__(
        self,
        login: Login,
        record: LoginRecord,
        *,
        http: AuthHTTP,
        clock: Clock,
        redirect: Redirect | None = None,
        show: ShowLoginPage | None = None,
    ) -> None:
        self._login = login
        self._record = record
        self._http = http
        self._clock = clock
        self._redirect = redirect
        self._show = show

    async def refresh(self) -> bool:
        """Exchange the refresh token. False when there is none, or its authorization server refuses it."""
        server, client, tokens = self._stored_server(), self._find_client(), self._record.get("tokens") or {}
        token = tokens.get("refresh_token")
        if server is None or client is None or not isinstance(token, str) or not self._is_pinned(server.issuer):
            return False
        form = {"grant_type": "refresh_token", "refresh_token": token}
        answer, _ = await self._request_token(server, client, form)
        content = answer.json()
        if answer.status not in ISSUED or content is None or not isinstance(content.get("access_token"), str):
            return False
        # RFC 6749 section 6: fields that the answer omits are unchanged.
        self._store_tokens({"refresh_token": token, "scope": tokens.get("scope"), **content})
        return True

    async def log_in(self, refusal: AuthRefusal) -> None:
        """Run a login in a browser. `refusal` is the MCP server's answer: 401, or 403 when it requires more scopes."""
        if self._show is None or self._redirect is None:
            raise login_needed_error(self._login.server, "There is no browser here.")
        is_wider = refusal.status == _FORBIDDEN
        server = self._stored_server() if is_wider else None
        if server is None:
            server = await self._discover(refusal)
        scope = self._choose_scope(refusal, server, is_wider=is_wider)
        client = self._find_client_for(self._redirect.uri)
        if client is None:
            client = await self._register(server, scope, self._redirect.uri)
        verifier = secrets.token_urlsafe(_VERIFIER_BYTES)
        code = await self._request_login(server, client, scope, verifier, redirect=self._redirect, show=self._show)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect.uri,
            "code_verifier": verifier,
        }
        answer, identity = await self._request_token(server, client, form)
        # Called for its checks: raises when the answer has no usable token.
        read_token(
            answer,
            server=self._login.server,
            endpoint=server.token_endpoint,
            now=self._clock(),
            secrets=(*identity.secrets(), Secret(code), Secret(verifier)),
        )
        self._store_tokens({"scope": scope, **(answer.json() or {})})

    async def _discover(self, refusal: AuthRefusal) -> AuthorizationServer:
        """Find the authorization server of the MCP server, and delete the stored client of a different one."""
        name, url = self._login.server, self._login.url
        named = challenge_parameter(refusal.www_authenticate, "resource_metadata")
        published = await find_resource_metadata(named, url, server=name, http=self._http)
        resource = ProtectedResource.parse(published) if published is not None else None
        # Without resource metadata the MCP server is its own authorization server (protocol 2025-03-26).
        issuer = self._choose_issuer(resource.authorization_servers) if resource else self._login.issuer
        expected = issuer or _origin(url)
        self._delete_foreign_client(expected)
        self._record["resource_metadata"] = published
        self._record["auth_server_url"] = issuer
        tried: list[str] = []
        content = await find_server_metadata(expected, http=self._http, tried=tried)
        if content is not None:
            issuers = (expected,) if issuer else (expected, f"{expected}/")
            server = check_server_metadata(content, issuers=issuers, server=name)
        elif issuer is not None:
            text = f"the authorization server {display_url(issuer)} publishes no metadata: {', '.join(tried)}."
            raise auth_error(name, text)
        else:
            content = {
                "issuer": expected,
                "authorization_endpoint": f"{expected}/authorize",
                "token_endpoint": f"{expected}/token",
                "registration_endpoint": f"{expected}/register",
            }
            server = check_server_metadata(content, issuers=(expected,), server=name)
        self._record["server_metadata"] = content
        return server

    def _choose_issuer(self, offered: tuple[str, ...]) -> str:
        pinned = self._login.issuer
        if pinned is None:
            return offered[0]
        if pinned not in offered:
            named = _printable(", ".join(display_url(each) for each in offered))
            text = f"it names the authorization server {named}, but {pinned} is pinned."
            raise auth_error(self._login.server, text)
        return pinned

    def _delete_foreign_client(self, issuer: str) -> None:
        """Delete a registration at another issuer, with its tokens: it is sent only to the server that issued it."""
        client = self._record.get("client") or {}
        made_by = client.get("issuer")
        if made_by is None or client.get("client_id") == self._login.client_metadata_url:
            return
        if made_by.rstrip("/") != issuer.rstrip("/"):
            for key in ("client", "tokens", "server_metadata"):
                self._record.pop(key, None)

    def _stored_server(self) -> AuthorizationServer | None:
        return AuthorizationServer.parse(self._record.get("server_metadata") or {})

    def _is_pinned(self, issuer: str) -> bool:
        return self._login.issuer in (None, issuer)

    def _stored_resource(self) -> ProtectedResource | None:
        return ProtectedResource.parse(self._record.get("resource_metadata") or {})

    def _choose_scope(self, refusal: AuthRefusal, server: AuthorizationServer, *, is_wider: bool) -> str | None:
        """Choose the scopes: those of the challenge and the definition, else all published ones, else none."""
        resource = self._stored_resource()
        wanted = (*challenge_parameter(refusal.www_authenticate, "scope").split(), *self._login.scopes)
        published = (resource.scopes if resource else None) or server.scopes or ()
        scopes = list(wanted or published)
        if is_wider:
            granted = str((self._record.get("tokens") or {}).get("scope") or "").split()
            scopes = [*self._login.scopes, *granted, *scopes]
        if scopes and _OFFLINE in (server.scopes or ()):
            scopes.append(_OFFLINE)
        return " ".join(dict.fromkeys(scopes)) or None

    def _find_client(self) -> dict[str, Any] | None:
        """Return the configured client, or the registered one, or None."""
        if self._login.client_id:
            secret = self._login.client_secret
            return {"client_id": self._login.client_id, "client_secret": secret.reveal() if secret else None}
        return self._record.get("client")

    def _find_client_for(self, redirect_uri: str) -> dict[str, Any] | None:
        """Return the client for a login. A registered one is used only with a redirect URI that it has registered."""
        client = self._find_client()
        if client is None or self._login.client_id or redirect_uri in (client.get("redirect_uris") or ()):
            return client
        return None

    async def _register(self, server: AuthorizationServer, scope: str | None, redirect_uri: str) -> dict[str, Any]:
        client: dict[str, Any]
        if self._login.client_metadata_url and server.can_use_metadata_urls:
            client = {"client_id": self._login.client_metadata_url, "token_endpoint_auth_method": "none"}
        else:
            client = await self._post_registration(server, scope, redirect_uri)
        client |= {"redirect_uris": [redirect_uri], "issuer": server.issuer}
        self._record["client"] = client
        return client

    async def _post_registration(
        self, server: AuthorizationServer, scope: str | None, redirect_uri: str
    ) -> dict[str, Any]:
        """Register at the authorization server (RFC 7591) and check that the registration is usable."""
        endpoint = server.registration_endpoint
        if endpoint is None:
            text = f"the authorization server {display_url(server.issuer)} registers no clients. Give 'client_id'."
            raise auth_error(self._login.server, text)
        metadata = {
            "client_name": "HoloDeck",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": "native" if is_loopback(urlsplit(redirect_uri).hostname or "") else "web",
            **({"scope": scope} if scope else {}),
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        answer = await self._http("POST", endpoint, headers=headers, body=orjson.dumps(metadata))
        content = answer.json() if answer.status in ISSUED else None
        client_id = content.get("client_id") if content else None
        if content is None or not isinstance(client_id, str) or not client_id:
            text = f"{display_url(endpoint)} did not register us ({answer.status}). Give a 'client_id' that it knows."
            raise auth_error(self._login.server, text)
        method, secret = content.get("token_endpoint_auth_method"), content.get("client_secret") or None
        if method not in (None, "none", *_SECRET_METHODS) or (method in _SECRET_METHODS and secret is None):
            text = f"{display_url(endpoint)} registered us with '{_printable(str(method))}', which cannot be used here."
            raise auth_error(self._login.server, text)
        return {"client_id": client_id, "client_secret": secret, "token_endpoint_auth_method": method}

    # The person.

    async def _request_login(
        self,
        server: AuthorizationServer,
        client: dict[str, Any],
        scope: str | None,
        verifier: str,
        *,
        redirect: Redirect,
        show: ShowLoginPage,
    ) -> str:
        """Show the login page, wait for the redirect, and return its authorization code."""
        state = secrets.token_urlsafe()
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": redirect.uri,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            **self._resource_parameter(),
            **({"scope": scope} if scope else {}),
            # OpenID Connect requires renewed consent for offline access.
            **({"prompt": "consent"} if _OFFLINE in (scope or "").split() else {}),
        }
        page = self._require_login_page(server)
        redirect.expect_state(state)
        await show(f"{page}{'&' if urlsplit(page).query else '?'}{urlencode(query)}")
        arrival = await redirect.wait_result()
        if arrival.error:
            reason = _printable(": ".join(text for text in (arrival.error, arrival.description) if text))
            raise auth_error(self._login.server, f"the authorization server gave no permission ({reason}).")
        if arrival.iss != server.issuer and (arrival.iss is not None or server.has_iss_parameter):
            text = f"the answer of the login does not come from the issuer {display_url(server.issuer)}."
            raise auth_error(self._login.server, text)
        if not arrival.code:
            raise auth_error(self._login.server, "the authorization server sent no code.")
        return arrival.code

    def _require_login_page(self, server: AuthorizationServer) -> str:
        page = server.authorization_endpoint
        if page is None:
            raise auth_error(self._login.server, f"{display_url(server.issuer)} has no login page for people.")
        problem = url_problem(page, allow_insecure_hosts=self._login.allow_insecure_hosts)
        if problem:
            why = problem.replace("'url'", "it")
            raise auth_error(self._login.server, f"the login page {display_url(page)} is refused: {why}.")
        if server.challenge_methods is not None and "S256" not in server.challenge_methods:
            raise auth_error(self._login.server, f"{display_url(server.issuer)} does not know PKCE with S256.")
        return page

    async def _request_token(
        self, server: AuthorizationServer, client: dict[str, Any], form: dict[str, str]
    ) -> tuple[AuthResponse, ClientIdentity]:
        identity = _build_identity(client, server)
        content = {**form, "client_id": client["client_id"], **self._resource_parameter()}
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        await identity.sign(content, headers, audience=server.issuer)
        body = urlencode(content).encode()
        return await self._http("POST", server.token_endpoint, headers=headers, body=body), identity

    def _resource_parameter(self) -> dict[str, str]:
        """Limit the token to this MCP server (RFC 8707). Servers of protocol 2025-03-26 do not know the parameter."""
        resource = self._stored_resource()
        return {"resource": resource.resource} if resource else {}

    def _store_tokens(self, content: dict[str, Any]) -> None:
        fields = ("access_token", "token_type", "expires_in", "scope", "refresh_token")
        self._record["tokens"] = {key: content[key] for key in fields if content.get(key) is not None}
        self._record["issued_at"] = self._clock()


def login_needed_error(server: str, advice: str) -> MCPError:
    """Build the error of a server without a login. `advice`: how to log in; it may name the `{server}`."""
    return auth_error(server, f"it wants a person to log in. {advice.format(server=server)}", login=True)


def _build_identity(client: dict[str, Any], server: AuthorizationServer) -> ClientIdentity:
    """Build the client authentication. Without a registered method, one that the server accepts is chosen."""
    client_id, secret = client["client_id"], client.get("client_secret")
    method = client.get("token_endpoint_auth_method")
    if not secret or method == "none":
        return PublicClient(client_id)
    if method is None and "client_secret_basic" not in server.auth_methods:
        method = next(iter(_secret_methods(server.auth_methods)), None)
    kind = SecretInForm if method == "client_secret_post" else SecretInHeader
    return kind(client_id, Secret(secret))


def _secret_methods(accepted: Iterable[str]) -> Iterable[str]:
    return (method for method in accepted if method in _SECRET_METHODS)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[: 4 * MAX_SHOWN_CHARS]
