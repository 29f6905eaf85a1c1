"""Posts to one address over connections that are kept for the next time."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from aiohappyeyeballs import start_connection

from holodeck.lib import net
from holodeck.lib.limits import HTTP_KEEPALIVE, SECOND_ADDRESS_DELAY
from holodeck.lib.posted import Connection, Posted

_SAFE_IN_PATH = "/%:@!$&'()*+,;=?~-._"


class NotAURLError(ValueError):
    """The address is none."""


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
        try:
            parts = urlsplit(url)
            port = parts.port
            host = (parts.hostname or "").encode("idna").decode()
        except ValueError as error:
            raise NotAURLError from error
        if parts.scheme not in {"http", "https"} or not host:
            raise NotAURLError
        self._host, self._is_secure = host, parts.scheme == "https"
        self._port = port or (443 if self._is_secure else 80)
        target = quote(parts.path or "/", safe=_SAFE_IN_PATH) + (f"?{parts.query}" if parts.query else "")
        shown = f"[{host}]" if ":" in host else host
        self._head = f"POST {target} HTTP/1.1\r\nHost: {shown}{f':{port}' if port else ''}\r\n"
        if parts.username is not None:
            who = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._head += f"Authorization: Basic {base64.b64encode(who).decode()}\r\n"

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Posted:
        """Ask. Raises `UnreachedError`, or `AnswerLostError` when no whole head of an answer came."""
        connection = self._kept() or await self._dial()
        lines = "".join([f"{name}: {_one_line(value)}\r\n" for name, value in headers.items()])
        head = f"{self._head}{lines}Content-Length: {len(body)}\r\n\r\n"
        return await connection.post(head.encode("latin-1"), body)

    async def close(self) -> None:
        """Let go of all connections; answers that are still read are cut off."""
        if self._cleaning is not None:
            self._cleaning.cancel()
            self._cleaning = None
        self._free.clear()
        for connection in list(self._all):
            connection.abort()
        await asyncio.sleep(0)  # they end in the loop's next round

    def _kept(self) -> Connection | None:
        loop = asyncio.get_running_loop()
        while self._free:
            connection = self._free.pop()
            if connection.loop is not loop:  # it went with its loop
                self._all.discard(connection)
            elif connection.is_open and loop.time() - connection.free_since < HTTP_KEEPALIVE:
                return connection
            else:
                connection.abort()
        return None

    async def _dial(self) -> Connection:
        loop = asyncio.get_running_loop()
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
                        ssl=net.tls() if self._is_secure else None,
                        server_hostname=self._host if self._is_secure else None,
                    )
                except BaseException:
                    sock.close()
                    raise
        except OSError as error:
            raise UnreachedError(error) from error
        self._all.add(connection)
        return connection

    def _freed(self, connection: Connection) -> None:
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


def _one_line(value: str) -> str:
    """A header's value cannot bring headers of its own."""
    if "\r" in value or "\n" in value or "\0" in value:
        raise ValueError("a header must not contain line breaks")
    return value
