"""A loopback port that stays ours while nobody answers on it, so that a server can go down and come up again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_LOOPBACK = "127.0.0.1"


class ReservedPort:
    """Refuses connections until it is opened, and again after it is closed."""

    def __init__(self, handler: Handler, number: int = 0) -> None:
        self._handler = handler
        self._socket = self._bind_socket(number)
        self.number: int = self._socket.getsockname()[1]
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._listener is not None

    async def open(self) -> None:
        """Accept connections."""
        if self._listener is not None:
            return
        self._server = web.Server(self._handler, handler_cancellation=True, access_log=None)
        self._listener = await asyncio.get_running_loop().create_server(self._server, sock=self._socket)

    async def close(self) -> None:
        """Cut every connection and refuse new ones, at once, as the end of a process does."""
        if self._listener is None or self._server is None:
            return
        self._listener.close()
        for connection in list(self._server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._server.shutdown(0)
        self._listener, self._server = None, None
        self._socket = self._bind_socket(self.number)

    async def release(self) -> None:
        """Give the port back."""
        await self.close()
        self._socket.close()

    def _bind_socket(self, number: int) -> socket.socket:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((_LOOPBACK, number))  # bound and not listening: the kernel refuses, and gives it to nobody else
        return bound
