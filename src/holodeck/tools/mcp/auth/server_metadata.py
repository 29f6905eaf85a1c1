"""Metadata of protected resources (RFC 9728) and authorization servers (RFC 8414): discovery, parsing, validation.

A document is accepted only for the URL that it was looked up for: its issuer must be the requested issuer, and its
resource must be the MCP server or a parent of it. Everything else raises `MCPConnectionError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from holodeck.lib.record import record
from holodeck.tools.mcp.auth.auth_http import AuthHTTP, display_url
from holodeck.tools.mcp.auth.provider import auth_error
from holodeck.tools.mcp.protocol.versions import MODERN_VERSIONS

OK = 200
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
# The default of RFC 8414.
_DEFAULT_AUTH_METHODS = ("client_secret_basic",)
_HEADERS = {"Accept": "application/json", "MCP-Protocol-Version": MODERN_VERSIONS[-1]}


@record
class AuthorizationServer:
    """The parts of an authorization server's metadata (RFC 8414) that clients use."""

    issuer: str
    token_endpoint: str
    auth_methods: tuple[str, ...] = _DEFAULT_AUTH_METHODS
    """How clients may authenticate at the token endpoint."""
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes: tuple[str, ...] | None = None
    challenge_methods: tuple[str, ...] | None = None
    """PKCE methods. None: not published."""
    can_use_metadata_urls: bool = False
    """True when a client may use the URL of its own metadata as its id, without a registration."""
    has_iss_parameter: bool = False
    """True when the server sends its issuer with every authorization code (RFC 9207)."""

    @classmethod
    def parse(cls, content: dict[str, Any]) -> AuthorizationServer | None:
        """Return None for a document without an issuer or a token endpoint."""
        issuer, token_endpoint = _text_field(content, "issuer"), _text_field(content, "token_endpoint")
        if issuer is None or token_endpoint is None:
            return None
        return cls(
            issuer=issuer,
            token_endpoint=token_endpoint,
            auth_methods=_text_list_field(content, "token_endpoint_auth_methods_supported") or _DEFAULT_AUTH_METHODS,
            authorization_endpoint=_text_field(content, "authorization_endpoint"),
            registration_endpoint=_text_field(content, "registration_endpoint"),
            scopes=_text_list_field(content, "scopes_supported"),
            challenge_methods=_text_list_field(content, "code_challenge_methods_supported"),
            can_use_metadata_urls=content.get("client_id_metadata_document_supported") is True,
            has_iss_parameter=content.get("authorization_response_iss_parameter_supported") is True,
        )


@record
class ProtectedResource:
    """The parts of an MCP server's metadata (RFC 9728) that clients use."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, content: dict[str, Any]) -> ProtectedResource | None:
        """Return None for a document without a resource or an authorization server."""
        resource, servers = _text_field(content, "resource"), _text_list_field(content, "authorization_servers")
        if resource is None or not servers:
            return None
        return cls(
            resource=resource, authorization_servers=servers, scopes=_text_list_field(content, "scopes_supported")
        )


async def discover_server(issuer: str, *, server: str, http: AuthHTTP) -> AuthorizationServer:
    """Read and check the metadata at the well-known URLs of this issuer. No other host is contacted."""
    tried: list[str] = []
    content = await find_server_metadata(issuer, http=http, tried=tried)
    if content is None:
        raise auth_error(
            server,
            f"the issuer {display_url(issuer)} publishes no metadata: {', '.join(tried)}."
            " Check 'issuer', or give 'token_url'.",
        )
    return check_server_metadata(content, issuers=(issuer,), server=server)


async def find_server_metadata(issuer: str, *, http: AuthHTTP, tried: list[str]) -> dict[str, Any] | None:
    """Return the first JSON object at the well-known URLs of an issuer. URLs without one are appended to `tried`."""
    for url in well_known_urls(issuer):
        answer = await http("GET", url, headers=_HEADERS)
        content = answer.json() if answer.status == OK else None
        if content is not None:
            return content
        tried.append(f"{display_url(url)} ({answer.status})")
    return None


async def find_resource_metadata(challenge_url: str, url: str, *, server: str, http: AuthHTTP) -> dict[str, Any] | None:
    """Return the metadata of the MCP server at `url`, or None when it publishes none.

    `challenge_url`: the URL of the metadata in the server's challenge, or empty. Raises when a URL answers 429 or 5xx
    and no other one has the metadata: whether there is any is then unknown.
    """
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    failed = ""
    for candidate in dict.fromkeys(filter(None, (challenge_url, f"{root}{parts.path.rstrip('/')}", root))):
        answer = await http("GET", candidate, headers=_HEADERS)
        content = answer.json() if answer.status == OK else None
        found = ProtectedResource.parse(content) if content is not None else None
        if content is not None and found is not None:
            if not _is_same_or_below(found.resource, url):
                other = display_url(found.resource)
                text = f"the metadata at {display_url(candidate)} are of {other}, not of {display_url(url)}."
                raise auth_error(server, text)
            return content
        if answer.status >= _SERVER_ERROR or answer.status == _TOO_MANY_REQUESTS:
            failed = f"{display_url(candidate)} answered {answer.status}"
    if failed:
        raise auth_error(server, f"its authorization server cannot be found: {failed}. Try again later.")
    return None


def check_server_metadata(content: dict[str, Any], *, issuers: Iterable[str], server: str) -> AuthorizationServer:
    """Parse the metadata. Raises unless its issuer is one of `issuers`, the spellings of the requested one."""
    accepted = tuple(issuers)
    named = _text_field(content, "issuer")
    if named not in accepted:
        raise auth_error(
            server,
            f"the metadata are of the issuer '{display_url(named) if named else '(none)'}', not of '{accepted[0]}'."
            " If both are the same server, write 'issuer' exactly as the metadata does.",
        )
    found = AuthorizationServer.parse(content)
    if found is None:
        raise auth_error(server, f"the metadata of the issuer '{accepted[0]}' name no token endpoint.")
    return found


def well_known_urls(issuer: str) -> tuple[str, ...]:
    """Return the metadata URLs of an issuer: RFC 8414 inserts the well-known part before the path, OIDC appends it."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return (f"{origin}/.well-known/oauth-authorization-server", f"{origin}/.well-known/openid-configuration")
    return (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    )


def _is_same_or_below(resource: str, url: str) -> bool:
    """Return whether `url` is the resource or below it, on the same origin."""
    outer, inner = urlsplit(resource.lower()), urlsplit(url.lower())
    if (outer.scheme, outer.netloc) != (inner.scheme, inner.netloc):
        return False
    outer_path, inner_path = urlsplit(resource).path, urlsplit(url).path
    return f"{inner_path.rstrip('/')}/".startswith(f"{outer_path.rstrip('/')}/")


def _text_field(content: dict[str, Any], key: str) -> str | None:
    value = content.get(key)
    return value if isinstance(value, str) and value else None


def _text_list_field(content: dict[str, Any], key: str) -> tuple[str, ...] | None:
    value = content.get(key)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else None
