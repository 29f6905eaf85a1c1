"""A pool of HTTP/1.1 connections to one URL, for POST requests.

The pool opens as many connections as requests run at once, and reuses idle ones for `HTTP_KEEPALIVE` seconds. It owns
its connections: `close` aborts all of them, and running responses with them. It may be used from several event loops,
one after another: connections of an earlier loop are dropped.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote, urlsplit

from aiohappyeyeballs import start_connection

from holodeck.lib.limits import HTTP_KEEPALIVE
from holodeck.lib.net.http1 import HTTP1Connection, HTTP1Response, ResponseLostError
from holodeck.lib.net.proxies import encode_basic_auth
from holodeck.lib.net.tls import tls_context

# Seconds before the next address of a host is tried in parallel with one that does not answer (Happy Eyeballs).
SECOND_ADDRESS_DELAY = 0.25

_SAFE = "/%:@!$&'()*+,;=?~-._"
_PORTS = {"http": 80, "https": 443}


class InvalidURLError(ValueError):
    """The URL cannot be dialled."""


class InvalidHeaderError(ValueError):
    """A header contains a line break, a NUL or a non-ASCII character."""


class ProxyError(OSError):
    """A proxy cannot be reached, or refuses the request; the message says which."""

    def __init__(self, what: str, *, is_final: bool = False) -> None:
        """`is_final`: a retry would fail in the same way."""
        super().__init__(what)
        self.is_final = is_final


class ConnectFailedError(OSError):
    """The connection failed; `reason` is the error of the name lookup, the network, TLS, or a timeout."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class HTTP1Pool:
    """Connections to the server of one URL; see the module for their lifecycle."""

    def __init__(self, url: str, *, connect_timeout: float) -> None:
        """Raises `InvalidURLError`."""
        self._connect_timeout = connect_timeout
        self._idle: list[HTTP1Connection] = []
        self._all: set[HTTP1Connection] = set()
        self._cleanup_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        try:
            parts = urlsplit(url)
            port = parts.port
            host = (parts.hostname or "").encode("idna").decode()
        except ValueError as error:
            raise InvalidURLError from error
        default_port = _PORTS.get(parts.scheme)
        if default_port is None or not host or port == 0 or " " in host or not host.isprintable():
            raise InvalidURLError
        self._host, self._is_secure = host, parts.scheme == "https"
        self._port = port or default_port
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        authority = (f"[{host}]" if ":" in host else host) + (f":{port}" if self._port != default_port else "")
        self._head = f"POST {target} HTTP/1.1\r\nHost: {authority}\r\n"
        login = encode_basic_auth(parts.username, parts.password)
        self._login = f"Authorization: {login}\r\n" if login else ""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> HTTP1Response:
        """Send a POST and return its response once the headers have arrived.

        Credentials in the URL are used if `headers` has no `Authorization`. Raises `InvalidHeaderError`,
        `ConnectFailedError`, or `ResponseLostError` if the connection ends before the headers are complete.
        """
        lines = encode_headers(headers)
        if self._login and "Authorization" not in headers:
            lines += self._login
        head = f"{self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode("ascii")
        connection = self._pop_idle() or await self._dial()
        return await connection.post(head, body)

    async def close(self) -> None:
        """Abort all connections; responses that are still read fail with `ResponseLostError`."""
        self._is_closed = True
        self._switch_loop(asyncio.get_running_loop())
        if self._cleanup_timer is not None:
            self._cleanup_timer.cancel()
            self._cleanup_timer = None
        self._idle.clear()
        for connection in list(self._all):
            connection.abort()
        # Transports close in the next iteration of the event loop.
        await asyncio.sleep(0)

    def _switch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop the connections of another event loop, which cannot be used in this one."""
        if self._loop is loop:
            return
        self._loop = loop
        self._cleanup_timer = None
        self._idle.clear()
        for connection in self._all:
            if not connection.loop.is_closed():
                connection.loop.call_soon_threadsafe(connection.abort)
        self._all = set()

    def _pop_idle(self) -> HTTP1Connection | None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._switch_loop(loop)
        while self._idle:
            connection = self._idle.pop()
            if connection.is_idle and loop.time() - connection.free_since < HTTP_KEEPALIVE:
                return connection
            connection.abort()
        return None

    async def _dial(self) -> HTTP1Connection:
        loop = asyncio.get_running_loop()
        context = tls_context() if self._is_secure else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                # Happy Eyeballs: an address that does not answer must not delay the next one of the same host.
                addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                sock = await start_connection(addresses, happy_eyeballs_delay=SECOND_ADDRESS_DELAY, loop=loop)
                try:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    _, connection = await loop.create_connection(
                        lambda: HTTP1Connection(loop, on_free=self._release, on_lost=self._remove),
                        sock=sock,
                        ssl=context,
                        server_hostname=self._host if self._is_secure else None,
                    )
                except BaseException:
                    # The event loop still watches the socket, perhaps in a TLS handshake, and has to close it. A
                    # shutdown ends whatever it waits for.
                    with suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)
                    raise
        except OSError as error:
            raise ConnectFailedError(error) from error
        if self._is_closed:
            connection.abort()
            raise ResponseLostError("closed while it was made")
        self._all.add(connection)
        return connection

    def _release(self, connection: HTTP1Connection) -> None:
        if connection not in self._all:
            connection.abort()
            return
        connection.free_since = connection.loop.time()
        self._idle.append(connection)
        if self._cleanup_timer is None:
            self._cleanup_timer = connection.loop.call_later(HTTP_KEEPALIVE, self._close_idle)

    def _remove(self, connection: HTTP1Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _close_idle(self) -> None:
        """Close connections idle for `HTTP_KEEPALIVE`, and run again while others are idle."""
        self._cleanup_timer = None
        loop = asyncio.get_running_loop()
        for connection in list(self._idle):
            if loop.time() - connection.free_since >= HTTP_KEEPALIVE:
                self._idle.remove(connection)
                connection.abort()
        if self._idle:
            self._cleanup_timer = loop.call_later(HTTP_KEEPALIVE, self._close_idle)


def encode_headers(headers: Mapping[str, str]) -> str:
    """Return the header lines. Raises `InvalidHeaderError`, so that no value can inject another header."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    is_one_each = lines.count("\r") == lines.count("\n") == len(headers)
    if not is_one_each or "\0" in lines or not lines.isascii():
        raise InvalidHeaderError
    return lines
