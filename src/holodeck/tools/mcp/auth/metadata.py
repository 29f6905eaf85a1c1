"""What an authorization server says of itself, believed only from the issuer that was named, about that issuer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from holodeck.tools.mcp.auth.door import Door, shown
from holodeck.tools.mcp.auth.provider import auth_error

OK = 200


@dataclass(frozen=True, kw_only=True)
class AuthorizationServer:
    """The parts of the metadata (RFC 8414) that a machine needs."""

    issuer: str
    token_endpoint: str
    auth_methods: tuple[str, ...] = ("client_secret_basic",)
    """How clients may authenticate at the token endpoint; the default is the standard's."""


async def discover(issuer: str, *, server: str, door: Door) -> AuthorizationServer:
    """Ask the well-known places of this issuer, and no other host."""
    tried: list[str] = []
    for url in well_known(issuer):
        answer = await door("GET", url, headers={"Accept": "application/json"})
        content = answer.json() if answer.status == OK else None
        if content is None:
            tried.append(f"{shown(url)} ({answer.status})")
            continue
        return _checked(content, issuer=issuer, server=server, url=url)
    raise auth_error(
        server,
        f"the issuer {shown(issuer)} publishes no metadata: {', '.join(tried)}. Check 'issuer', or give 'token_url'.",
    )


def well_known(issuer: str) -> tuple[str, ...]:
    """RFC 8414 inserts the well-known part before the path, OpenID Connect appends it."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return (f"{origin}/.well-known/oauth-authorization-server", f"{origin}/.well-known/openid-configuration")
    return (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    )


def _checked(content: dict[str, Any], *, issuer: str, server: str, url: str) -> AuthorizationServer:
    named = content.get("issuer")
    if named != issuer:
        raise auth_error(
            server,
            f"the metadata at {shown(url)} is of the issuer '{_text(named)}', not of '{issuer}'."
            " If both are the same server, write 'issuer' exactly as the metadata does.",
        )
    endpoint = content.get("token_endpoint")
    if not isinstance(endpoint, str) or not endpoint:
        raise auth_error(server, f"the metadata at {shown(url)} names no token endpoint.")
    methods = content.get("token_endpoint_auth_methods_supported")
    known = tuple(method for method in methods if isinstance(method, str)) if isinstance(methods, list) else ()
    return AuthorizationServer(issuer=issuer, token_endpoint=endpoint, **({"auth_methods": known} if known else {}))


def _text(value: Any) -> str:
    return shown(value) if isinstance(value, str) else "(none)"
