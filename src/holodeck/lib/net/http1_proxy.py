"""The HTTP proxy of a pool: its address and login, and the tunnel through it to a server with TLS."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import field
from urllib.parse import urlsplit

from holodeck.lib.net.http1 import MAX_HTTP_HEAD_BYTES, ResponseLostError, UnreadableResponseError
from holodeck.lib.net.proxies import proxy_login_headers
from holodeck.lib.record import record

_PORTS = {"http": 80, "https": 443}
_END_OF_HEAD = b"\r\n\r\n"


class ProxyError(OSError):
    """The proxy cannot be used. Its text and its attributes have no login.

    - `authority`: host and port of the proxy; empty when the environment names no HTTP proxy.
    - `status` and `phrase`: its refusal; otherwise `reason` says why it cannot be reached.
    """

    def __init__(
        self, authority: str = "", *, status: int = 0, phrase: str = "", reason: OSError | None = None
    ) -> None:
        super().__init__(f"proxy {authority or 'without an address'}: {status or reason or 'unusable'}")
        self.authority = authority
        self.status = status
        self.phrase = phrase
        self.reason = reason


@record
class Proxy:
    """The address of a proxy."""

    host: str
    port: int
    is_secure: bool
    """TLS to the proxy itself."""
    authority: str
    """Host and port as the environment has them, for errors."""
    login: str = field(repr=False)
    """The header line with its login, or nothing."""

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Parse the proxy of an environment variable. Raises `ProxyError`."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            default_port = _PORTS[parts.scheme]
            port = parts.port or default_port
            host = (parts.hostname or "").encode("idna").decode()
        except (KeyError, ValueError):
            # Without its cause, whose text may have the password.
            raise ProxyError from None
        if not host or parts.port == 0:
            raise ProxyError
        login = "".join(f"{name}: {value}\r\n" for name, value in proxy_login_headers(parts.geturl()).items())
        authority = parts.netloc.rpartition("@")[2]
        return cls(host=host, port=port, is_secure=parts.scheme == "https", authority=authority, login=login)


class TunnelProtocol(asyncio.Protocol):
    """Asks a proxy for a tunnel. `opened` is done when the proxy has agreed; the transport then belongs to TLS."""

    def __init__(self, proxy: Proxy, authority: str) -> None:
        """Take `authority`, host and port of the server behind the proxy."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._proxy = proxy
        self._request = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{proxy.login}\r\n".encode("ascii")
        self._head = b""
        self._transport: asyncio.Transport

    async def start_tls(self, protocol: asyncio.Protocol, context: ssl.SSLContext, host: str) -> None:
        """Wait for the tunnel, and connect `protocol` to the server at its end.

        Raises `ProxyError`, `ResponseLostError`, and the errors of TLS. The transport is then closed.
        """
        try:
            await self.opened
            # From here on data may arrive before the protocol has its final transport.
            protocol.connection_made(self._transport)
            loop = asyncio.get_running_loop()
            transport = await loop.start_tls(self._transport, protocol, context, server_hostname=host)
        except BaseException:
            self._transport.abort()
            raise
        if transport is None:
            raise ResponseLostError("the connection was closed")
        protocol.connection_made(transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's transports do not inherit asyncio's
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.opened.done():
            return
        head, end, rest = self._head.partition(_END_OF_HEAD)
        if end:
            self._read_head(head, rest)
        elif len(head) > MAX_HTTP_HEAD_BYTES or not head.startswith(b"HTTP/1."[: len(head)]):
            self.opened.set_exception(UnreadableResponseError("it is not HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ResponseLostError("the connection was closed"))

    def _read_head(self, head: bytes, rest: bytes) -> None:
        version, _, words = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        status, _, phrase = words.partition(" ")
        if not version.startswith("HTTP/1.") or not (status.isdecimal() and status.isascii()):
            self.opened.set_exception(UnreadableResponseError("it is not HTTP"))
        elif not status.startswith("2"):
            self.opened.set_exception(ProxyError(self._proxy.authority, status=int(status), phrase=phrase.strip()))
        elif rest:
            # A server with TLS does not speak first: these bytes come from the proxy.
            self.opened.set_exception(UnreadableResponseError("bytes follow the head of the proxy's answer"))
        else:
            self.opened.set_result(None)
