"""HTTP client for one MCP server: headers, credentials, redirects within the origin, and errors as MCPError.

Shared by the streamable HTTP and SSE transports. It owns an aiohttp client, which `close` closes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from holodeck.lib.call_errors import OUTCOME_UNKNOWN
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.limits import MAX_HTTP_ERROR_BYTES, MIB
from holodeck.lib.net import aiohttp_client
from holodeck.lib.net.tls import unreachable_reason
from holodeck.lib.net.urls import shown_origin
from holodeck.tools.mcp.protocol.jsonrpc import Message, decode
from holodeck.tools.mcp.protocol.versions import mapping
from holodeck.tools.mcp.transports.base import Delivery, TransportSetup

# Redirects of one request that are followed, all within the origin of the server.
MAX_REDIRECTS = 3
# Renewals of credentials for one request: for a token, a wider scope and a fresh nonce. More would be a loop.
_MAX_AUTH_ROUNDS = 3

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


class ServerHTTPClient:
    """Sends HTTP requests to one server."""

    def __init__(self, setup: TransportSetup) -> None:
        tool, ip_policy = setup.tool, setup.ip_policy
        self.url = tool.url or ""
        self.errors = setup.errors
        self._headers = tool.headers
        self._auth = setup.auth
        # With an IP policy no proxy is used: it would dial addresses that the policy does not see.
        self._proxy_route = (
            aiohttp_client.find_proxy_route(self.url) if ip_policy is None else aiohttp_client.ProxyRoute()
        )
        self._connect_timeout = tool.timeout
        self._client = aiohttp_client.create_http_client(connect_timeout=tool.timeout, ip_policy=ip_policy)

    async def close(self) -> None:
        await self._client.close()

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        delivery: Delivery | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the response, whatever its status. The caller releases it.

        After 401 or 403 the auth provider may renew the credentials, and the request is sent again.
        """
        rounds = 0
        while True:
            proof = await self._auth.headers(method, url) if self._auth is not None else {}
            self.errors.learn_token(proof)
            response = await self._send_within_origin(method, url, {**headers, **proof}, body, delivery or Delivery())
            if self._auth is None or response.status not in (_UNAUTHORIZED, _FORBIDDEN) or rounds == _MAX_AUTH_ROUNDS:
                return response
            rounds += 1
            if not await self._renew_credentials(method, url, response, sent=proof, attempt=rounds):
                return response

    async def read_failure(self, response: aiohttp.ClientResponse, phase: str) -> MCPError:
        """Build the error for a response with status 400 or more, or with a redirect to another origin."""
        body = await self._read_excerpt(response)
        status, reason = response.status, response.reason or ""
        details: dict[str, Any] = {
            "status": status,
            "body": self.errors.excerpt(body),
            "retry_after": response.headers.get("Retry-After"),
            "www_authenticate": ", ".join(response.headers.getall("WWW-Authenticate", [])) or None,
        }
        if status in aiohttp_client.REDIRECTS:
            location = response.headers.get("Location", "")
            target = shown_origin(urljoin(self.url, location))
            text = f"redirected to {target}, which is not followed. Use an address there if it is the right server."
            return self.errors.connection(phase, text, **details, location=target)
        text = f"HTTP {status} {reason}".strip() + _ADVICE.get(status, "")
        if status >= _FIRST_SERVER_ERROR:
            text += ": the server, or a proxy in front of it, failed."
        if status == _TOO_MANY and details["retry_after"]:
            text += f" It asks to wait {details['retry_after']} s."
        if details["body"]:
            text = f"{text.rstrip('.')}. It says: {details['body']}"
        return self.errors.connection("authorize" if status in (_UNAUTHORIZED, _FORBIDDEN) else phase, text, **details)

    async def read_rpc_error(self, response: aiohttp.ClientResponse) -> Message | None:
        """Return the JSON-RPC error in the body of a failed request, or None when there is none."""
        try:
            raw = await self._read_excerpt(response)
            message = self.errors.mask_message(decode(raw), raw)
        except ValueError:
            return None
        return message if isinstance(mapping(message).get("error"), dict) else None

    def connection_error(self, error: Exception, phase: str, delivery: Delivery | None = None) -> MCPConnectionError:
        """Build the error for a failure below HTTP: no connection, TLS, a proxy, or a connection that broke."""
        address = shown_origin(self.url)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            text = f"no connection to {address} within {self._connect_timeout:g} s."
            return self.errors.timeout("connect", text, url=address)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return self.errors.connection(
                "connect", f"the certificate of {address} is not trusted: {error.certificate_error}"
            )
        if isinstance(error, aiohttp.ClientHttpProxyError):
            proxy = _host_and_port(self._proxy_route.proxy)
            text = f"the proxy at {proxy} refused ({error.status} {error.message}). Check HTTPS_PROXY."
            return self.errors.connection("connect", text, url=address, status=error.status)
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            proxy = _host_and_port(self._proxy_route.proxy)
            text = f"the proxy at {proxy} cannot be reached: {unreachable_reason(error.os_error)}."
            return self.errors.connection("connect", f"{text} Check HTTPS_PROXY.", url=address)
        if isinstance(error, aiohttp.ClientConnectorError) and isinstance(
            error.os_error, aiohttp_client.RefusedAddressError
        ):
            return self.errors.connection("connect", f"it was not dialled: {error.os_error.strerror}.")
        if isinstance(error, aiohttp.ClientConnectorError):
            return self.errors.unreachable(self.url, error.os_error)
        if isinstance(error, aiohttp.ClientPayloadError):
            text = "the answer was cut off before its end."
        else:
            # The text of a ClientResponseError contains the whole URL, with any secret in it.
            reason = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
            text = f"the connection broke before the answer was complete ({reason or type(error).__name__})."
        if phase == "call" and (delivery is None or delivery.may_have_been_sent):
            return self.errors.connection(phase, f"{text} {OUTCOME_UNKNOWN}", outcome="unknown")
        return self.errors.connection(phase, text)

    async def _send_within_origin(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, delivery: Delivery
    ) -> aiohttp.ClientResponse:
        sent = {name: value.reveal() for name, value in self._headers.items()}
        sent |= {**headers, **self._proxy_route.headers}
        for _ in range(MAX_REDIRECTS + 1):
            delivery.may_have_been_sent = True
            try:
                response = await self._client.request(
                    method,
                    url,
                    data=_wrap_large_body(body),
                    headers=sent,
                    allow_redirects=False,
                    **self._proxy_route.options,
                )
            except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError):
                delivery.may_have_been_sent = False
                raise
            target = aiohttp_client.redirect_target(response.status, response.headers.get("Location"), url)
            if target is None:
                return response
            response.release()
            url = target
        return response

    async def _renew_credentials(
        self, method: str, url: str, response: aiohttp.ClientResponse, *, sent: Mapping[str, str], attempt: int
    ) -> bool:
        from holodeck.tools.mcp.auth.provider import AuthRefusal

        if self._auth is None:
            return False
        body = await self._read_excerpt(response)
        refusal = AuthRefusal(
            status=response.status,
            www_authenticate=", ".join(response.headers.getall("WWW-Authenticate", [])),
            url=url,
            method=method,
            headers=dict(response.headers),
            body=body,
            sent=sent,
            attempt=attempt,
        )
        if not await self._auth.refused(refusal):
            return False
        response.release()
        return True

    async def _read_excerpt(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the beginning of the body. It is read once and stored on the response for the next caller."""
        excerpt: bytes | None = getattr(response, "_holodeck_excerpt", None)
        if excerpt is None:
            try:
                excerpt = await aiohttp_client.read_excerpt(response, MAX_HTTP_ERROR_BYTES)
            except (aiohttp.ClientError, OSError):
                excerpt = b""
            response._holodeck_excerpt = excerpt  # type: ignore[attr-defined]
        return excerpt


def _host_and_port(url: str | None) -> str:
    return urlsplit(url or "").netloc


def _wrap_large_body(body: bytes | None) -> bytes | io.BytesIO | None:
    """Wrap a large body so that aiohttp writes it in chunks: written at once, it would block the event loop."""
    return io.BytesIO(body) if body is not None and len(body) >= MIB else body
