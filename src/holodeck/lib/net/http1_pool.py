"""Posts to one address over connections that are kept for the next time."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote, unquote, urlsplit

from aiohappyeyeballs import start_connection

from holodeck.lib.limits import HTTP_KEEPALIVE
from holodeck.lib.net.http1 import HTTP1Connection, HTTP1Response, ResponseLostError
from holodeck.lib.net.tls import tls_context

# Before the next address of a name is tried beside one that does not answer.
SECOND_ADDRESS_DELAY = 0.25


_SAFE = "/%:@!$&'()*+,;=?~-._"
_PORTS = {"http": 80, "https": 443}


class InvalidURLError(ValueError):
    """The address is none."""


class InvalidHeaderError(ValueError):
    """A header has a line break in it, or something else that HTTP has no room for."""


class ProxyError(OSError):
    """A proxy is not there, or does not let us through; the text says which."""

    def __init__(self, what: str, *, is_final: bool = False) -> None:
        """`is_final`: it will say the same the next time."""
        super().__init__(what)
        self.is_final = is_final


class ConnectFailedError(OSError):
    """No connection; `reason` is why: its name, the network, TLS, or the time that it took."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class HTTP1Pool:
    """Connections to the server of one URL, as many as are needed at once."""

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
        usual = _PORTS.get(parts.scheme)
        if usual is None or not host or port == 0 or " " in host or not host.isprintable():
            raise InvalidURLError
        self._host, self._is_secure = host, parts.scheme == "https"
        self._port = port or usual
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        shown = f"[{host}]" if ":" in host else host
        self._head = f"POST {target} HTTP/1.1\r\nHost: {shown}{f':{port}' if self._port != usual else ''}\r\n"
        self._login = _basic_auth_line(parts.username, parts.password) if parts.username is not None else ""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> HTTP1Response:
        """Ask. Raises `InvalidHeaderError`, `ConnectFailedError`, or `ResponseLostError` when no whole head of an
        answer came.

        A login in the URL is used when the headers have none.
        """
        lines = encode_headers(headers)
        if self._login and "Authorization" not in headers:
            lines += self._login
        head = f"{self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode("ascii")
        connection = self._pop_idle() or await self._dial()
        return await connection.post(head, body)

    async def close(self) -> None:
        """Let go of all connections; answers that are still read are cut off."""
        self._is_closed = True
        self._switch_loop(asyncio.get_running_loop())
        if self._cleanup_timer is not None:
            self._cleanup_timer.cancel()
            self._cleanup_timer = None
        self._idle.clear()
        for connection in list(self._all):
            connection.abort()
        await asyncio.sleep(0)  # they end in the loop's next round

    def _switch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connections of another loop cannot be used in this one; those of a closed loop went with it."""
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
                # An address that does not answer must not keep us from the next one of the same name.
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                sock = await start_connection(found, happy_eyeballs_delay=SECOND_ADDRESS_DELAY, loop=loop)
                try:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    _, connection = await loop.create_connection(
                        lambda: HTTP1Connection(loop, on_free=self._release, on_lost=self._remove),
                        sock=sock,
                        ssl=context,
                        server_hostname=self._host if self._is_secure else None,
                    )
                except BaseException:
                    # Closing it is up to the loop, which still watches it and may be about to begin a handshake, or
                    # to wait for the end of one: now there is nothing more to wait for.
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
        """Close what nobody needed for long; look again while something is kept."""
        self._cleanup_timer = None
        loop = asyncio.get_running_loop()
        for connection in list(self._idle):
            if loop.time() - connection.free_since >= HTTP_KEEPALIVE:
                self._idle.remove(connection)
                connection.abort()
        if self._idle:
            self._cleanup_timer = loop.call_later(HTTP_KEEPALIVE, self._close_idle)


def encode_headers(headers: Mapping[str, str]) -> str:
    """The headers as they are sent. None can bring others of its own: raises `InvalidHeaderError`."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    is_one_each = lines.count("\r") == lines.count("\n") == len(headers)
    if not is_one_each or "\0" in lines or not lines.isascii():
        raise InvalidHeaderError
    return lines


def _basic_auth_line(name: str, password: str | None) -> str:
    who = f"{unquote(name)}:{unquote(password or '')}".encode()
    return f"Authorization: Basic {base64.b64encode(who).decode()}\r\n"
