"""A network between a gateway and its database that can go silent: bytes stop arriving, and connections stay open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

# As asyncpg ends a transaction, and as no other driver does.
_COMMIT = b"COMMIT;"
_COMMIT_WAIT = 5.0


class SilenceableNetwork:
    """Carries bytes to a port of this machine. Only connections made after a silence are carried again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._links: list[_Link] = []
        self._is_frozen = False
        self.connection_made = asyncio.Event()
        """Set with each new connection."""
        self.hidden_ends: asyncio.Queue[None] = asyncio.Queue()
        """One for each connection that the server has ended and that its client still sees as open."""
        self.sent_bytes: list[bytearray] = []
        """What each connection sent to the server."""
        self.commits_to_lose = 0
        """How many of the next commits of asyncpg reach the server, while their answers reach nobody."""
        self.commit_lost = asyncio.Event()

    def go_silent(self) -> None:
        for link in self._links:
            link.is_silent = True
        self.connection_made.clear()

    def hide_ends(self) -> None:
        """The last bytes of the server arrive, and the end of the connection after them does not."""
        for link in self._links:
            link.hidden_ends = self.hidden_ends

    def freeze(self) -> None:
        """Nothing arrives any more, on no connection: neither those that are there nor new ones."""
        self._is_frozen = True
        self.go_silent()

    def close_silent_links(self) -> None:
        """Close the silent connections, so that both ends see them end."""
        for link in self._links:
            if link.is_silent:
                link.close()

    async def lose_commit(self) -> None:
        """Lose the answer to one commit, and return when it is lost, or when no commit came for a while."""
        self.commit_lost.clear()
        self.commits_to_lose = 1
        with suppress(TimeoutError):
            async with asyncio.timeout(_COMMIT_WAIT):
                await self.commit_lost.wait()
        self.commits_to_lose = 0

    def is_lost(self, sent: bytes) -> bool:
        """Whether what a client sends now is a commit whose answer is to be lost."""
        if not self.commits_to_lose or _COMMIT not in sent:
            return False
        self.commits_to_lose -= 1
        self.commit_lost.set()
        return True

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server = await asyncio.open_connection("127.0.0.1", self._port)
        link = _Link(self, server, writer)
        link.is_silent = self._is_frozen
        self._links.append(link)
        self.sent_bytes.append(link.sent_bytes)
        self.connection_made.set()
        try:
            # A cancellation is the end of the event loop: Python 3.11 would print a traceback for it.
            with suppress(asyncio.CancelledError):
                async with asyncio.TaskGroup() as group:
                    group.create_task(link.forward(reader, server))
                    group.create_task(link.forward(server_reader, writer))
        finally:
            link.close()


class _Link:
    def __init__(self, network: SilenceableNetwork, server: asyncio.StreamWriter, client: asyncio.StreamWriter) -> None:
        self._network = network
        self._server = server
        self._client = client
        self.is_silent = False
        self.hidden_ends: asyncio.Queue[None] | None = None
        self.sent_bytes = bytearray()

    async def forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if target is self._server:
                    self.sent_bytes += data
                if not self.is_silent:
                    target.write(data)
                if target is self._server and self._network.is_lost(data):
                    self.is_silent = True
        # Also after a reset, as a killed process sends it: the server would keep the locks of its transaction.
        if self.hidden_ends is not None and target is self._client:
            self.hidden_ends.put_nowait(None)
        elif not self.is_silent:
            target.close()

    def close(self) -> None:
        self._server.close()
        self._client.close()


@asynccontextmanager
async def run_network(port: int) -> AsyncIterator[tuple[SilenceableNetwork, int]]:
    """A network to this port, and the port of its near end."""
    carrier = SilenceableNetwork(port)
    near = await asyncio.start_server(carrier.serve_connection, "127.0.0.1", 0)
    try:
        yield carrier, near.sockets[0].getsockname()[1]
    finally:
        near.close()
