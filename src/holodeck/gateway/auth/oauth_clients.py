"""The MCP clients that may log in at this gateway, found by their ids.

A client is named in the gateway's file; or its id is the URL of a document, which the gateway fetches, from public
addresses only; or it has registered itself. What a client has said of itself then is in its id, sealed, so that
registrations take no room in the store, and any gateway with the same seal keys knows them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import urlsplit

import orjson

from holodeck.gateway.http.request_files import HostPolicy
from holodeck.gateway.sealing import BrokenSealError, SealKeys
from holodeck.lib import log
from holodeck.lib.errors import BadRequestError
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import KIB
from holodeck.lib.net.http1 import BodyTooLargeError
from holodeck.lib.net.http1_pool import send_once
from holodeck.lib.record import record
from holodeck.models.mcp_clients import MCPLogin
from holodeck.models.url import BadURLError, is_loopback, parse_endpoint
from holodeck.tools.mcp.auth.server_metadata import OK

# Begins the ids of clients that have registered themselves.
REGISTERED_PREFIX = "reg-"
# What a client says of itself: an id with all of it has to fit into a URL.
MAX_REDIRECT_URIS = 10
MAX_REDIRECT_CHARS = 300
_MAX_NAME_CHARS = 100
_MAX_REGISTRATION_BYTES = 1 * KIB
_MAX_DOCUMENT_BYTES = 16 * KIB
_DOCUMENT_SECONDS = 5.0
# Seconds for which a document is remembered, and how many are.
_DOCUMENT_AGE = 300.0
_MAX_DOCUMENTS = 256
_CLIENT_PURPOSE = "mcp client"
# Schemes of programs, such as `cursor:`. A browser would run or show these itself.
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_BROWSER_SCHEMES = frozenset(
    ("javascript", "data", "vbscript", "file", "blob", "about", "filesystem", "view-source", "ws", "wss", "ftp")
)


class OAuthError(Exception):
    """An error of OAuth, with its name (RFC 6749)."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(description)
        self.name = name


def refuse_client(name: str, description: str) -> NoReturn:
    raise OAuthError(name, description)


@record
class OAuthClient:
    """A client without a secret."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    known_by: str
    """Says to a person how the gateway knows the client."""


class OAuthClients:
    """Finds clients by their ids."""

    def __init__(self, seal_keys: SealKeys) -> None:
        self._seal = seal_keys.for_caller("")
        self._documents: dict[str, tuple[float, OAuthClient]] = {}

    async def find(self, client_id: str, settings: MCPLogin) -> OAuthClient:
        """Return a client. Raises `OAuthError` for one that is not known, or does not describe itself."""
        for entry in settings.clients:
            if entry.id == client_id:
                uris = tuple(entry.redirect_uris)
                return OAuthClient(
                    id=client_id, name=entry.name or client_id, redirect_uris=uris, known_by="The operator knows it."
                )
        if client_id.startswith(REGISTERED_PREFIX) and settings.registration:
            return self._open(client_id)
        if client_id.startswith(("https://", "http://")) and settings.documents.allow:
            return await self._find_document(client_id, settings)
        refuse_client("invalid_client", "This client is not known here.")

    def register(self, said: Mapping[str, Any]) -> OAuthClient:
        """Return a client that registers itself (RFC 7591). Raises `OAuthError`."""
        name = said.get("client_name")
        kept = {
            "name": name[:_MAX_NAME_CHARS] if isinstance(name, str) else "",
            "redirect_uris": _read_redirect_uris(said),
        }
        content = orjson.dumps(kept)
        if len(content) > _MAX_REGISTRATION_BYTES:
            refuse_client("invalid_client_metadata", f"Its name and URIs have over {_MAX_REGISTRATION_BYTES} bytes.")
        sealed = self._seal.seal(_CLIENT_PURPOSE, content).rstrip("=")
        return self._open(REGISTERED_PREFIX + sealed)

    def _open(self, client_id: str) -> OAuthClient:
        sealed = client_id.removeprefix(REGISTERED_PREFIX)
        try:
            kept = parse_json(self._seal.open(_CLIENT_PURPOSE, sealed + "=" * (-len(sealed) % 4)))
        except BrokenSealError:
            raise OAuthError("invalid_client", "This client is not registered here. Register it again.") from None
        return OAuthClient(
            id=client_id,
            name=kept["name"] or "A program without a name",
            redirect_uris=tuple(kept["redirect_uris"]),
            known_by="It has given itself this name, which proves nothing.",
        )

    async def _find_document(self, url: str, settings: MCPLogin) -> OAuthClient:
        fetched_at, client = self._documents.get(url, (0.0, None))
        if client is None or time.monotonic() - fetched_at > _DOCUMENT_AGE:
            client = _read_document(url, await _fetch_document(url, settings))
            if len(self._documents) >= _MAX_DOCUMENTS:
                self._documents.clear()
            self._documents[url] = time.monotonic(), client
        return client


def check_redirect_uri(client: OAuthClient, uri: str) -> None:
    """Raise `OAuthError` for a redirect URI that is not one of the client's. The port on loopback is free."""
    if uri not in client.redirect_uris and _without_port(uri) not in map(_without_port, client.redirect_uris):
        refuse_client("invalid_request", "This address to come back to is not one of the client's.")


def _without_port(uri: str) -> str:
    """Return a URI on loopback over http without its port (RFC 8252). Any other one as it is."""
    try:
        parts = urlsplit(uri)
        is_local = parts.scheme == "http" and is_loopback(parse_endpoint(uri).host)
    except (ValueError, BadURLError):
        return uri
    return parts._replace(netloc=parts.netloc.removesuffix(f":{parts.port}")).geturl() if is_local else uri


def _read_redirect_uris(said: Mapping[str, Any]) -> Sequence[str]:
    uris = said.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= MAX_REDIRECT_URIS:
        refuse_client("invalid_redirect_uri", f"A client has 1 to {MAX_REDIRECT_URIS} 'redirect_uris'.")
    for uri in uris:
        if not isinstance(uri, str) or len(uri) > MAX_REDIRECT_CHARS or not _is_redirect_uri(uri):
            text = "A redirect URI is https://, http:// on the person's machine, or of a program's own scheme."
            refuse_client("invalid_redirect_uri", text)
    return uris


def _is_redirect_uri(uri: str) -> bool:
    scheme, separator, rest = uri.partition(":")
    if not separator or not rest or "#" in uri or not uri.isascii() or not uri.isprintable() or " " in uri:
        return False
    if scheme in ("http", "https"):
        try:
            endpoint = parse_endpoint(uri)
        except BadURLError:
            return False
        return scheme == "https" or endpoint.is_loopback
    return _SCHEME.fullmatch(scheme) is not None and scheme not in _BROWSER_SCHEMES


def _read_document(url: str, said: Any) -> OAuthClient:
    if not isinstance(said, dict) or said.get("client_id") != url:
        refuse_client("invalid_client", "The document of this client is not about it.")
    if said.get("token_endpoint_auth_method", "none") != "none":
        refuse_client("invalid_client", "This client wants to prove itself in a way that is not known here.")
    name, host = said.get("client_name"), urlsplit(url).netloc
    return OAuthClient(
        id=url,
        name=name[:_MAX_NAME_CHARS] if isinstance(name, str) and name else host,
        redirect_uris=tuple(_read_redirect_uris(said)),
        known_by=f"It is described by {host}.",
    )


async def _fetch_document(url: str, settings: MCPLogin) -> Any:
    """Return the JSON at a URL. No redirect is followed, and no private address is dialled."""
    policy = HostPolicy(settings.documents)
    try:
        policy.check(url, "client_id")
        policy.check_public(url, "client_id")
        ip_policy = policy.ip_policy_for(parse_endpoint(url).host)
        async with (
            asyncio.timeout(_DOCUMENT_SECONDS),
            send_once("GET", url, connect_timeout=_DOCUMENT_SECONDS, ip_policy=ip_policy) as response,
        ):
            if response.status != OK:
                refuse_client("invalid_client", "The document of this client is not there.")
            return parse_json(await response.read_all(_MAX_DOCUMENT_BYTES))
    except (BadRequestError, BadURLError):
        raise OAuthError("invalid_client", "This gateway does not fetch the document of this client.") from None
    except (OSError, TimeoutError, BodyTooLargeError, ValueError) as error:
        log.info("gateway.client_document_failed", reason=type(error).__name__)
        raise OAuthError("invalid_client", "The document of this client cannot be read.") from None
