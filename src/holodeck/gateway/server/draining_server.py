"""uvicorn's server with a drain before its exit, with a meaning for SIGHUP, and with a `HealthThread` beside it.

The first SIGTERM or SIGINT calls `on_exit` and then ends the server; a second one ends it at once. SIGHUP does the
same, or calls `on_hangup`. Under nohup it is ignored, and stays so.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from holodeck.gateway.server.health_thread import HealthThread
from holodeck.lib import log
from holodeck.lib.errors import ConfigError
from holodeck.lib.tasks import TaskSet

# Connections that the kernel queues before they are accepted, so that many at once are not refused.
LISTEN_BACKLOG = 2_048
# Connections that are accepted in one turn of the event loop: libuv accepts one for each descriptor that it watches. In
# a gateway whose turns are long, more connections than that wait, with the probes among them.
ACCEPTS_PER_TURN = 16

# Seconds for open connections to end after the runs have ended.
CONNECTIONS_GRACE = 10
# Seconds of an idle connection: longer than proxies keep theirs (60), because they report one that we close as a 502.
KEEP_ALIVE_SECONDS = 75
# Errors of `bind` whose fix is another port; the others are about the host.
_PORT_ERRNOS = frozenset({errno.EADDRINUSE, errno.EACCES})


def open_listener(host: str, port: int) -> list[socket.socket]:
    """Open a socket that accepts connections, as often as it accepts in one turn of the event loop.

    Raises `ConfigError`, which names the key to change.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Before the gateway reports that it is ready: a client may connect at once.
        listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        key = "listen.port" if error.errno in _PORT_ERRNOS else "listen.host"
        raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror}. Use another '{key}'.") from None
    return [listener, *(listener.dup() for _ in range(ACCEPTS_PER_TURN - 1))]


def build_server_config(
    app: Callable[..., Awaitable[None]],
    *,
    http: type[asyncio.Protocol],
    websockets: type[asyncio.Protocol],
    max_message_bytes: int,
) -> uvicorn.Config:
    """Build uvicorn's settings. `http` and `websockets`: the protocols. `max_message_bytes`: of a WebSocket."""
    return uvicorn.Config(
        app,
        http=http,
        log_config=None,
        access_log=False,
        # The application finds what a proxy forwards itself.
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        # For connections that are still open; the runs have been drained by then.
        timeout_graceful_shutdown=CONNECTIONS_GRACE,
        server_header=False,
        lifespan="off",
        ws=websockets,
        # As over HTTP, nothing is compressed: it would count for less than it takes in memory.
        ws_per_message_deflate=False,
        ws_max_size=max_message_bytes,
    )


# Turns of the event loop from the acceptance of a connection to its protocol: a task, a transport, and one to spare.
_ACCEPT_TURNS = 3
# Seconds for a drain to end that a second signal has overtaken: a statement of storage may be under way.
_CLOSE_SECONDS = 10.0


class DrainingServer(uvicorn.Server):
    """uvicorn's server with a drain before its exit: the first signal calls `on_exit`, a second one exits at once."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_exit: Callable[[], Awaitable[None]],
        on_hangup: Callable[[], None] | None = None,
    ) -> None:
        """`on_hangup`: called on SIGHUP. None: it is a signal to exit, as a closed terminal sends it."""
        super().__init__(config)
        self._on_exit = on_exit
        self._on_hangup = on_hangup
        self._tasks = TaskSet()
        self._is_draining = False
        self._health: HealthThread | None = None
        self._taking_over = TaskSet()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle SIGHUP as well. Under nohup it is ignored, and stays so."""
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGHUP) if is_main else signal.SIG_IGN
        if before != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._handle_hangup)
        try:
            with super().capture_signals():
                yield
        finally:
            if before != signal.SIG_IGN:
                signal.signal(signal.SIGHUP, before)

    def _handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        if self._on_hangup is None:
            self.handle_exit(sig, frame)
        else:
            self._on_hangup()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._is_draining:
            self.force_exit = True
            self.should_exit = True
            return
        self._tasks.start(self._drain(sig), name="drain")
        self._is_draining = True

    def stop_listening(self) -> None:
        """Refuse new connections now; uvicorn does so only at its end."""
        if self._health is not None:
            self._health.stop()
        for listening in self.servers:
            listening.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if sockets:
            self._health = HealthThread(asyncio.get_running_loop(), sockets[0], self._take_over)
            self._health.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.stop_listening()
        # Connections that were accepted are closed with all others, once they are there.
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        await self._taking_over.wait(_CLOSE_SECONDS)
        await super().shutdown(sockets)

    async def close(self) -> None:
        """End a drain that a second signal has overtaken."""
        await self._tasks.close(_CLOSE_SECONDS)

    def _take_over(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted beside the event loop."""
        serve = asyncio.get_running_loop().connect_accepted_socket(self._create_protocol, connection)
        self._taking_over.start(serve, name="connection")

    def _create_protocol(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[no-any-return]

    async def _drain(self, sig: int) -> None:
        log.info("gateway.draining", signal=signal.Signals(sig).name)
        await self._on_exit()
        self.should_exit = True
