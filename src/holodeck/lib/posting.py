"""Posts to one address over connections that are kept for the next time."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote, unquote, urlsplit

from aiohappyeyeballs import start_connection

from holodeck.lib.limits import HTTP_KEEPALIVE, SECOND_ADDRESS_DELAY
from holodeck.lib.posted import AnswerLostError, Connection, Posted
from holodeck.lib.tls import tls

_SAFE = "/%:@!$&'()*+,;=?~-._"
_PORTS = {"http": 80, "https": 443}


class NotAURLError(ValueError):
    """The address is none."""


class UnsendableError(ValueError):
    """A header has a line break in it, or something else that HTTP has no room for."""


class NoWayThroughError(OSError):
    """A proxy is not there, or does not let us through; the text says which."""

    def __init__(self, what: str, *, is_final: bool = False) -> None:
        """`is_final`: it will say the same the next time."""
        super().__init__(what)
        self.is_final = is_final


class UnreachedError(OSError):
    """No connection; `reason` is why: its name, the network, TLS, or the time that it took."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Poster:
    """Connections to the server of one URL, as many as are needed at once."""

    def __init__(self, url: str, *, connect_timeout: float) -> None:
        """Raises `NotAURLError`."""
        self._connect_timeout = connect_timeout
        self._free: list[Connection] = []
        self._all: set[Connection] = set()
        self._cleaning: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        try:
            parts = urlsplit(url)
            port = parts.port
            host = (parts.hostname or "").encode("idna").decode()
        except ValueError as error:
            raise NotAURLError from error
        usual = _PORTS.get(parts.scheme)
        if usual is None or not host or port == 0 or " " in host or not host.isprintable():
            raise NotAURLError
        self._host, self._is_secure = host, parts.scheme == "https"
        self._port = port or usual
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        shown = f"[{host}]" if ":" in host else host
        self._head = f"POST {target} HTTP/1.1\r\nHost: {shown}{f':{port}' if self._port != usual else ''}\r\n"
        self._login = _login(parts.username, parts.password) if parts.username is not None else ""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Posted:
        """Ask. Raises `UnsendableError`, `UnreachedError`, or `AnswerLostError` when no whole head of an answer came.

        A login in the URL is used when the headers have none.
        """
        lines = header_lines(headers)
        if self._login and "Authorization" not in headers:
            lines += self._login
        head = f"{self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode("ascii")
        connection = self._kept() or await self._dial()
        return await connection.post(head, body)

    async def close(self) -> None:
        """Let go of all connections; answers that are still read are cut off."""
        self._is_closed = True
        self._use(asyncio.get_running_loop())
        if self._cleaning is not None:
            self._cleaning.cancel()
            self._cleaning = None
        self._free.clear()
        for connection in list(self._all):
            connection.abort()
        await asyncio.sleep(0)  # they end in the loop's next round

    def _use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connections of another loop cannot be used in this one; those of a closed loop went with it."""
        if self._loop is loop:
            return
        self._loop = loop
        self._cleaning = None
        self._free.clear()
        for connection in self._all:
            if not connection.loop.is_closed():
                connection.loop.call_soon_threadsafe(connection.abort)
        self._all = set()

    def _kept(self) -> Connection | None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._use(loop)
        while self._free:
            connection = self._free.pop()
            if connection.is_idle and loop.time() - connection.free_since < HTTP_KEEPALIVE:
                return connection
            connection.abort()
        return None

    async def _dial(self) -> Connection:
        loop = asyncio.get_running_loop()
        context = tls() if self._is_secure else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                # An address that does not answer must not keep us from the next one of the same name.
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                sock = await start_connection(found, happy_eyeballs_delay=SECOND_ADDRESS_DELAY, loop=loop)
                try:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    _, connection = await loop.create_connection(
                        lambda: Connection(loop, on_free=self._freed, on_lost=self._lost),
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
            raise UnreachedError(error) from error
        if self._is_closed:
            connection.abort()
            raise AnswerLostError("closed while it was made")
        self._all.add(connection)
        return connection

    def _freed(self, connection: Connection) -> None:
        if connection not in self._all:
            connection.abort()
            return
        connection.free_since = connection.loop.time()
        self._free.append(connection)
        if self._cleaning is None:
            self._cleaning = connection.loop.call_later(HTTP_KEEPALIVE, self._clean)

    def _lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._free:
            self._free.remove(connection)

    def _clean(self) -> None:
        """Close what nobody needed for long; look again while something is kept."""
        self._cleaning = None
        loop = asyncio.get_running_loop()
        for connection in list(self._free):
            if loop.time() - connection.free_since >= HTTP_KEEPALIVE:
                self._free.remove(connection)
                connection.abort()
        if self._free:
            self._cleaning = loop.call_later(HTTP_KEEPALIVE, self._clean)


def header_lines(headers: Mapping[str, str]) -> str:
    """The headers as they are sent. None can bring others of its own: raises `UnsendableError`."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    is_one_each = lines.count("\r") == lines.count("\n") == len(headers)
    if not is_one_each or "\0" in lines or not lines.isascii():
        raise UnsendableError
    return lines


def _login(name: str, password: str | None) -> str:
    who = f"{unquote(name)}:{unquote(password or '')}".encode()
    return f"Authorization: Basic {base64.b64encode(who).decode()}\r\n"
