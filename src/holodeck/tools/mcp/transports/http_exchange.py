"""HTTP client for one MCP server: its headers and credentials, and errors as MCPError.

Shared by the streamable HTTP and SSE transports. It owns an `HTTP1Pool`, which `open` creates and `close` closes, and
which follows redirects within the origin and stores cookies.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urljoin

from holodeck.lib.call_errors import OUTCOME_UNKNOWN
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.limits import MAX_HTTP_ERROR_BYTES
from holodeck.lib.net.http1 import BodyCutError, HTTP1Response
from holodeck.lib.net.http1_pool import ConnectFailedError, HTTP1Pool, InvalidHeaderError, InvalidURLError
from holodeck.lib.net.http1_proxy import ProxyError
from holodeck.lib.net.ip_policy import RefusedAddressError
from holodeck.lib.net.proxies import find_proxy
from holodeck.lib.net.tls import unreachable_reason
from holodeck.lib.net.urls import REDIRECTS, shown_origin
from holodeck.lib.system.fd_shortage import is_file_shortage
from holodeck.tools.mcp.protocol.jsonrpc import Message, decode
from holodeck.tools.mcp.protocol.versions import mapping
from holodeck.tools.mcp.transports.base import Delivery, TransportSetup

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.provider import MCPAuthProvider

# Redirects of one request that are followed, all within the origin of the server.
MAX_REDIRECTS = 3
# Renewals of credentials for one request: for a token, a wider scope and a fresh nonce. More would be a loop.
_MAX_AUTH_ROUNDS = 3

_CLIENT_HEADERS = {"Accept-Encoding": "gzip, deflate", "User-Agent": "holodeck"}
# Headers that the client or the protocol writes; those of the definition are not sent.
_OWN_HEADERS = frozenset({"accept", "content-length", "content-type", "last-event-id", "transfer-encoding"})

_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_TOO_MANY = 429
_FIRST_SERVER_ERROR = 500
_ADVICE = {
    _UNAUTHORIZED: ": it wants credentials. Set 'auth' or 'headers', or run 'holodeck mcp login'.",
    _FORBIDDEN: ": these credentials may not do that.",
    _NOT_FOUND: ": there is no MCP server at this address. Check 'url'.",
    405: ": this address does not take MCP messages. Check 'url' and 'transport'.",
    _TOO_MANY: ": too many requests.",
}


class SendRequest(Protocol):
    """Sends a request and returns the response, whatever its status. The caller reads or closes it.

    Raises MCPError, and OSError for a failure below HTTP, which `connection_error` explains.
    """

    def __call__(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        url: str | None = None,
        report: Delivery | None = None,
    ) -> Awaitable[HTTP1Response]: ...


class ServerHTTPClient:
    """Sends HTTP requests to one server, from `open` to `close`."""

    send: SendRequest
    """The `send` of the pool; with an auth provider, one that adds its credentials."""

    def __init__(self, setup: TransportSetup) -> None:
        self.url = setup.tool.url or ""
        self.errors = setup.errors
        self._headers = setup.tool.headers
        self._auth = setup.auth
        self._ip_policy = setup.ip_policy
        self._connect_timeout = setup.tool.timeout
        self._pool: HTTP1Pool | None = None

    def open(self) -> None:
        """Create the pool. Nothing is dialled. Raises MCPError for a URL or a header that cannot be used."""
        try:
            pool = self._pool = self._create_pool()
        except OSError as error:
            raise self.connection_error(error, "connect") from error
        self.send = pool.send if self._auth is None else partial(self._send_with_credentials, pool, self._auth)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def read_failure(self, response: HTTP1Response, phase: str) -> MCPError:
        """Build the error for a response with status 400 or more, or with a redirect to another origin."""
        body = await self._read_excerpt(response)
        status, phrase = response.status, response.phrase
        details: dict[str, Any] = {
            "status": status,
            "body": self.errors.excerpt(body),
            "retry_after": response.headers.get("retry-after"),
            "www_authenticate": response.headers.get("www-authenticate"),
        }
        if status in REDIRECTS:
            location = response.headers.get("location", "")
            target = shown_origin(urljoin(self.url, location))
            text = f"redirected to {target}, which is not followed. Use an address there if it is the right server."
            return self.errors.connection(phase, text, **details, location=target)
        text = f"HTTP {status} {phrase}".strip() + _ADVICE.get(status, "")
        if status >= _FIRST_SERVER_ERROR:
            text += ": the server, or a proxy in front of it, failed."
        if status == _TOO_MANY and details["retry_after"]:
            text += f" It asks to wait {details['retry_after']} s."
        if details["body"]:
            text = f"{text.rstrip('.')}. It says: {details['body']}"
        return self.errors.connection("authorize" if status in (_UNAUTHORIZED, _FORBIDDEN) else phase, text, **details)

    async def read_rpc_error(self, response: HTTP1Response) -> Message | None:
        """Return the JSON-RPC error in the body of a failed request, or None when there is none."""
        try:
            raw = await self._read_excerpt(response)
            message = self.errors.mask_message(decode(raw), raw)
        except ValueError:
            return None
        return message if isinstance(mapping(message).get("error"), dict) else None

    def connection_error(self, error: OSError, phase: str, delivery: Delivery | None = None) -> MCPConnectionError:
        """Build the error for a failure below HTTP: no connection, TLS, a proxy, a connection that broke."""
        match error:
            case ConnectFailedError():
                return self._connect_error(error.reason)
            case InvalidURLError():
                return self.errors.connection("connect", "its 'url' is not a URL that can be dialled.")
            case InvalidHeaderError():
                text = "a header has a line break or another character that no header can have, and was not sent."
                return self.errors.connection("connect", f"{text} Check 'headers' and 'auth'.")
            case BodyCutError():
                text = "the answer was cut off before its end."
            case _:
                text = f"the connection broke before the answer was complete ({error or type(error).__name__})."
        if phase == "call" and (delivery is None or delivery.may_have_been_sent):
            return self.errors.connection(phase, f"{text} {OUTCOME_UNKNOWN}", outcome="unknown")
        return self.errors.connection(phase, text)

    def _connect_error(self, reason: OSError) -> MCPConnectionError:
        address = shown_origin(self.url)
        match reason:
            case TimeoutError():
                text = f"no connection to {address} within {self._connect_timeout:g} s."
                return self.errors.timeout("connect", text, url=address)
            case ssl.SSLCertVerificationError():
                return self.errors.connection("connect", f"the certificate of {address} is not trusted: {reason}")
            case ProxyError(authority=""):
                text = "the proxy in the environment is no HTTP proxy. Check HTTPS_PROXY."
                return self.errors.connection("connect", text, url=address)
            case ProxyError(status=0, reason=OSError() as cause) if not is_file_shortage(cause):
                text = f"the proxy at {reason.authority} cannot be reached: {unreachable_reason(cause)}."
                return self.errors.connection("connect", f"{text} Check HTTPS_PROXY.", url=address)
            case ProxyError(reason=None):
                text = f"the proxy at {reason.authority} refused ({reason.status} {reason.phrase}). Check HTTPS_PROXY."
                return self.errors.connection("connect", text, url=address, status=reason.status)
            case RefusedAddressError():
                return self.errors.connection("connect", f"it was not dialled: {reason.strerror}.")
        return self.errors.unreachable(self.url, reason)

    def _configured_headers(self) -> dict[str, str]:
        """Return the headers of the definition, without those that the client or the protocol writes."""
        return {
            name: value.reveal()
            for name, value in self._headers.items()
            if name.lower() not in _OWN_HEADERS and not name.lower().startswith("mcp-")
        }

    def _create_pool(self) -> HTTP1Pool:
        # Without credentials to renew, the headers of the definition are the same for every request.
        constant = merge_headers(_CLIENT_HEADERS, self._configured_headers() if self._auth is None else {})
        # With an IP policy no proxy is used: it would dial addresses that the policy does not see.
        proxy = find_proxy(self.url) if self._ip_policy is None else None
        return HTTP1Pool(
            self.url,
            connect_timeout=self._connect_timeout,
            headers=constant,
            proxy=proxy,
            ip_policy=self._ip_policy,
            max_redirects=MAX_REDIRECTS,
            stores_cookies=all(name.lower() != "cookie" for name in self._headers),
        )

    async def _send_with_credentials(
        self,
        pool: HTTP1Pool,
        auth: MCPAuthProvider,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        url: str | None = None,
        report: Delivery | None = None,
    ) -> HTTP1Response:
        """Send a request with credentials. After 401 or 403 they may be renewed, and the request is sent again."""
        url = url or self.url
        rounds = 0
        while True:
            proof = await auth.headers(method, url)
            self.errors.learn_token(proof)
            sent = merge_headers(self._configured_headers(), headers, proof)
            response = await pool.send(method, sent, body, url=url, report=report)
            if response.status not in (_UNAUTHORIZED, _FORBIDDEN) or rounds == _MAX_AUTH_ROUNDS:
                return response
            rounds += 1
            if not await self._renew_credentials(auth, method, url, response, sent=proof, attempt=rounds):
                return response

    async def _renew_credentials(
        self,
        auth: MCPAuthProvider,
        method: str,
        url: str,
        response: HTTP1Response,
        *,
        sent: Mapping[str, str],
        attempt: int,
    ) -> bool:
        from holodeck.tools.mcp.auth.provider import AuthRefusal

        refusal = AuthRefusal(
            status=response.status,
            www_authenticate=response.headers.get("www-authenticate", ""),
            url=url,
            method=method,
            headers=response.headers,
            body=await self._read_excerpt(response),
            sent=sent,
            attempt=attempt,
        )
        return await auth.refused(refusal)

    @staticmethod
    async def _read_excerpt(response: HTTP1Response) -> bytes:
        """Return the beginning of the body, or nothing if the connection breaks."""
        try:
            return await response.read_excerpt(MAX_HTTP_ERROR_BYTES)
        except OSError:
            return b""


def merge_headers(*mappings: Mapping[str, str]) -> dict[str, str]:
    """Return all headers; of two with the same name, in any case, the last one."""
    merged: dict[str, tuple[str, str]] = {}
    for mapping_ in mappings:
        merged |= {name.lower(): (name, value) for name, value in mapping_.items()}
    return dict(merged.values())
