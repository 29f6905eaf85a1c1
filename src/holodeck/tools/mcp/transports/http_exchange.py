"""One HTTP exchange with a server: its headers and credentials, redirects within its origin, and failures in words."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.limits import MAX_HTTP_ERROR_BYTES, MIB
from holodeck.lib.net import aiohttp_client
from holodeck.lib.net.ip_policy import IPPolicy
from holodeck.lib.net.tls import unreachable_reason
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.errors import OUTCOME_UNKNOWN, ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import Message, decode
from holodeck.tools.mcp.protocol.versions import mapping
from holodeck.tools.mcp.transports.base import Delivery

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.provider import MCPAuthProvider

MAX_REDIRECTS = 3


_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_TOO_MANY = 429
_FIRST_SERVER_ERROR = 500
_MAX_AUTH_ROUNDS = 3  # a token, a wider scope, a fresh nonce: more is a loop


class ServerHTTPClient:
    """The HTTP side of one server."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, Secret],
        connect_timeout: float,
        errors: ErrorFactory,
        auth: MCPAuthProvider | None = None,
        ip_policy: IPPolicy | None = None,
    ) -> None:
        """`ip_policy`: which addresses may be dialled. A proxy would dial for us, unseen: then there is none."""
        self.url = url
        self.errors = errors
        self._headers = headers
        self._auth = auth
        self._proxy_route = aiohttp_client.find_proxy_route(url) if ip_policy is None else aiohttp_client.ProxyRoute()
        self._connect_timeout = connect_timeout
        self._client = aiohttp_client.create_http_client(connect_timeout=connect_timeout, ip_policy=ip_policy)

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
        """Send a request and return the response, whatever its status; the caller releases it."""
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
        """What a status of 400 and more, or a redirect elsewhere, means for a person."""
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
            text += ": the server or something before it is in trouble."
        if status == _TOO_MANY and details["retry_after"]:
            text += f" It asks to wait {details['retry_after']} s."
        if details["body"]:
            text = f"{text.rstrip('.')}. It says: {details['body']}"
        return self.errors.connection("authorize" if status in (_UNAUTHORIZED, _FORBIDDEN) else phase, text, **details)

    def connection_error(self, error: Exception, phase: str, delivery: Delivery | None = None) -> MCPConnectionError:
        """What a failure below HTTP means."""
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
            # As text this one has the whole URL in it.
            said = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
            text = f"the connection broke before the answer was complete ({said or type(error).__name__})."
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
        """The beginning of the body; read once, kept for the second reader."""
        kept: bytes | None = getattr(response, "_holodeck_excerpt", None)
        if kept is None:
            try:
                kept = await aiohttp_client.read_excerpt(response, MAX_HTTP_ERROR_BYTES)
            except (aiohttp.ClientError, OSError):
                kept = b""
            response._holodeck_excerpt = kept  # type: ignore[attr-defined]
        return kept

    async def read_rpc_error(self, response: aiohttp.ClientResponse) -> Message | None:
        """The JSON-RPC error that the body of a failed request carries, if it does."""
        try:
            raw = await self._read_excerpt(response)
            message = self.errors.mask_message(decode(raw), raw)
        except ValueError:
            return None
        return message if isinstance(mapping(message).get("error"), dict) else None


_ADVICE = {
    _UNAUTHORIZED: ": it wants credentials. Set 'auth' or 'headers', or run 'holodeck mcp login'.",
    _FORBIDDEN: ": these credentials may not do that.",
    _NOT_FOUND: ": there is no MCP server at this address. Check 'url'.",
    405: ": this address does not take MCP messages. Check 'url' and 'transport'.",
    _TOO_MANY: ": too many requests.",
}


def _host_and_port(url: str | None) -> str:
    """Host and port."""
    return urlsplit(url or "").netloc


def _wrap_large_body(body: bytes | None) -> bytes | io.BytesIO | None:
    """A large body is written piece by piece; in one piece it would hold up the loop, and aiohttp warns of that."""
    return io.BytesIO(body) if body is not None and len(body) >= MIB else body
