"""Builds the auth provider of a server from its definition.

A definition that would send a secret to a URL that the MCP server names is refused with `MCPConfigError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import assert_never

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.errors import MCPConfigError, Problem
from holodeck.models.auth import BearerAuth, OAuthAuthorizationCode, OAuthClientCredentials
from holodeck.models.tool import MCPTool
from holodeck.models.url import url_problem
from holodeck.tools.mcp.auth.auth_http import AuthHTTPClient
from holodeck.tools.mcp.auth.authorization_code import AuthorizationCode
from holodeck.tools.mcp.auth.client_authentication import (
    ClientIdentity,
    PublicClient,
    SecretInForm,
    SecretInHeader,
    SignedAssertion,
)
from holodeck.tools.mcp.auth.client_credentials import AssertionFile, ClientCredentials, JwtBearer, TokenEndpoint
from holodeck.tools.mcp.auth.dpop import DPoPHTTP, ProofKey
from holodeck.tools.mcp.auth.loopback_redirect import open_loopback_redirect
from holodeck.tools.mcp.auth.oauth_flow import Login, LoginPrompt, ShowLoginPage
from holodeck.tools.mcp.auth.provider import AuthRefusal, MCPAuthProvider, NoAuth, StaticBearer, StaticHeaders
from holodeck.tools.mcp.auth.redirect import OpenRedirect
from holodeck.tools.mcp.auth.server_metadata import AuthorizationServer
from holodeck.tools.mcp.auth.token import Grant, TokenGrantAuth
from holodeck.tools.mcp.auth.token_store import TokenStore, open_token_store

_PIN = "Without it the MCP server could name the place that gets the secret."


def build_auth_provider(
    tool: MCPTool,
    *,
    base_dir: Path = Path(),
    show: ShowLoginPage | None = None,
    store: TokenStore | None = None,
    use_logins: bool = False,
    clock: Clock = wall_clock,
) -> MCPAuthProvider:
    """Build the provider of a server from its `auth`; its headers override the static `headers` of the definition.

    `show` opens a login page for a person; without it no login is started. With `use_logins` the stored login of this
    user, if any, is sent to a server whose definition has no `auth`: for commands of the user only, never for a server
    that another party has named. Raises `MCPConfigError`.
    """
    _require_valid_auth(tool)
    fixed = StaticHeaders(tool.headers) if tool.headers else NoAuth()
    match tool.auth:
        case None if use_logins and tool.url and "authorization" not in {name.lower() for name in tool.headers}:
            provider: MCPAuthProvider = StoredLoginAuth(build_login_provider(tool, show=None, store=store, clock=clock))
        case None:
            return fixed
        case BearerAuth(token=token):
            provider = StaticBearer(token)
        case OAuthClientCredentials() as auth:
            provider = _build_client_credentials(tool, auth, base_dir=base_dir, clock=clock)
        case OAuthAuthorizationCode():
            provider = build_login_provider(tool, show=show, store=store, clock=clock)
        case _:
            assert_never(tool.auth)
    return LayeredAuth(fixed, provider) if tool.headers else provider


def build_login_provider(
    tool: MCPTool,
    *,
    show: ShowLoginPage | None,
    open_redirect: OpenRedirect | None = None,
    store: TokenStore | None = None,
    clock: Clock = wall_clock,
) -> AuthorizationCode:
    """Build the provider for a login: `await build_login_provider(tool, show=...).login()`.

    The definition needs no `auth`: the metadata that the server publishes has the rest. `open_redirect`: where the
    browser comes back to; by default to a port of this machine. Raises `MCPConfigError`.
    """
    auth = tool.auth or OAuthAuthorizationCode()
    if not isinstance(auth, OAuthAuthorizationCode):
        raise MCPConfigError(problems=[_auth_problem(tool, f"auth of type '{auth.type}' needs no login")])
    if not tool.url:
        raise MCPConfigError(problems=[_auth_problem(tool, "only a server with a 'url' can be logged in to")])
    _require_valid_auth(tool)
    login = Login(
        server=tool.name,
        url=_to_http_url(tool.url),
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        client_metadata_url=auth.client_metadata_url,
        issuer=auth.issuer,
        scopes=tuple(auth.scopes),
        allow_insecure_hosts=tuple(tool.allow_insecure_hosts),
    )
    redirect = open_redirect or partial(open_loopback_redirect, server=tool.name, port=auth.redirect_port)
    return AuthorizationCode(
        login,
        http=AuthHTTPClient(
            tool.name, allow_insecure_hosts=tool.allow_insecure_hosts, server_url=login.url, issuer=auth.issuer
        ),
        store=store or open_token_store(),
        prompt=LoginPrompt(show=show, open_redirect=redirect) if show else None,
        proof=ProofKey(clock=clock) if auth.dpop else None,
        clock=clock,
    )


def find_auth_problems(tool: MCPTool) -> Iterator[Problem]:
    """Yield the reasons why the `auth` of this definition cannot be used. Reads no file and sends no request."""
    auth, pinned = tool.auth, {}
    if isinstance(auth, OAuthAuthorizationCode):
        pinned = {"issuer": auth.issuer}
        if auth.client_secret and not (auth.client_id and auth.issuer):
            yield _auth_problem(tool, "a 'client_secret' needs its 'client_id' and a pinned 'issuer'", _PIN)
    if isinstance(auth, OAuthClientCredentials):
        pinned = {"token_url": auth.token_url, "issuer": auth.issuer}
        if not auth.token_url and not auth.issuer:
            yield _auth_problem(tool, "OAuth client credentials need a pinned 'token_url' or 'issuer'", _PIN)
        if _is_signing(auth) and not auth.private_key_file:
            yield _auth_problem(tool, "'private_key_jwt' needs a 'private_key_file'")
        elif not _is_signing(auth) and not auth.client_secret and (auth.auth_method or not auth.assertion_file):
            needed = "a 'client_secret', a 'private_key_file' or an 'assertion_file'"
            yield _auth_problem(tool, f"OAuth client credentials need {needed}")
    for key, url in pinned.items():
        problem = url_problem(url, allow_insecure_hosts=tool.allow_insecure_hosts) if url else None
        if problem:
            yield _auth_problem(tool, problem.replace("'url'", f"'{key}'"))


class LayeredAuth:
    """Static headers, overridden by those of a provider. Refusals go to the provider."""

    def __init__(self, fixed: MCPAuthProvider, provider: MCPAuthProvider) -> None:
        self._fixed = fixed
        self.provider = provider

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        proof = await self.provider.headers(method, url)
        replaced = {name.lower() for name in proof}
        fixed = await self._fixed.headers(method, url)
        return {**{name: value for name, value in fixed.items() if name.lower() not in replaced}, **proof}

    async def refused(self, refusal: AuthRefusal) -> bool:
        return await self.provider.refused(refusal)


class StoredLoginAuth:
    """The stored login of this user, if there is one: sent and renewed. Without one, a refusal starts no login."""

    def __init__(self, login: AuthorizationCode) -> None:
        self.login = login

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        return await self.login.headers(method, url)

    async def refused(self, refusal: AuthRefusal) -> bool:
        if not self.login.is_logged_in:
            # The user may have logged in since.
            return await self.login.use_stored()
        return await self.login.refused(refusal)


def find_login(provider: MCPAuthProvider | None) -> AuthorizationCode | None:
    """Return the provider of the login of a person that this one sends, or would send; None if it sends none."""
    match provider:
        case AuthorizationCode():
            return provider
        case StoredLoginAuth(login=login):
            return login
        case LayeredAuth(provider=inner):
            return find_login(inner)
        case _:
            return None


def _build_client_credentials(
    tool: MCPTool, auth: OAuthClientCredentials, *, base_dir: Path, clock: Clock
) -> TokenGrantAuth:
    http = AuthHTTPClient(tool.name, allow_insecure_hosts=tool.allow_insecure_hosts)
    proof = DPoPHTTP(http, ProofKey(clock=clock)) if auth.dpop else None
    endpoint = TokenEndpoint(server=tool.name, http=proof or http, token_url=auth.token_url, issuer=auth.issuer)
    identity = _choose_identity(tool, auth, base_dir=base_dir, clock=clock)
    grant: Grant = ClientCredentials(endpoint, identity, scopes=auth.scopes, resource=auth.resource, clock=clock)
    if auth.assertion_file:
        source = AssertionFile(base_dir / auth.assertion_file, server=tool.name)
        grant = JwtBearer(endpoint, identity, source, scopes=auth.scopes, resource=auth.resource, clock=clock)
    return TokenGrantAuth(tool.name, grant, proof=proof, clock=clock)


def _choose_identity(
    tool: MCPTool, auth: OAuthClientCredentials, *, base_dir: Path, clock: Clock
) -> Callable[[AuthorizationServer], ClientIdentity]:
    """Choose how the client authenticates; without `auth_method` that depends on what the server accepts."""
    secret, key = auth.client_secret, auth.private_key_file
    if key and _is_signing(auth):
        signed = SignedAssertion(
            auth.client_id, base_dir / key, algorithm=auth.signing_algorithm, server=tool.name, clock=clock
        )
        return lambda _: signed
    if secret is None:
        # The assertion authenticates it: `find_auth_problems` has refused a definition without any credentials.
        public = PublicClient(auth.client_id)
        return lambda _: public
    in_header, in_form = SecretInHeader(auth.client_id, secret), SecretInForm(auth.client_id, secret)
    if auth.auth_method is not None:
        chosen: ClientIdentity = in_form if auth.auth_method == "client_secret_post" else in_header
        return lambda _: chosen
    return lambda server: in_form if _is_form_only(server) else in_header


def _is_signing(auth: OAuthClientCredentials) -> bool:
    return auth.auth_method == "private_key_jwt" or (auth.auth_method is None and auth.private_key_file is not None)


def _is_form_only(server: AuthorizationServer) -> bool:
    return "client_secret_post" in server.auth_methods and "client_secret_basic" not in server.auth_methods


def _require_valid_auth(tool: MCPTool) -> None:
    problems = list(find_auth_problems(tool))
    if problems:
        raise MCPConfigError(problems=problems)


def _auth_problem(tool: MCPTool, message: str, fix: str = "") -> Problem:
    return Problem(message=message, key=f"{tool.name}.auth", fix=fix, kind=MCPConfigError)


def _to_http_url(url: str) -> str:
    """Return the http(s) URL by which OAuth identifies a WebSocket server."""
    return f"http{url[2:]}" if url.startswith(("ws://", "wss://")) else url
