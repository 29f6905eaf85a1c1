"""A balancer of connections, as a Kubernetes Service is one: a connection stays with its gateway.

Like nginx, it goes to the next gateway when one refuses, and asks none whether it is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Balancer:
    """Gives each new connection to the next of its gateways. `gateways` may change at any time."""

    def __init__(self, *gateways: str) -> None:
        """`gateways`: their URLs."""
        self.gateways = list(gateways)
        self.url = ""
        self.refusals = 0
        self._connection_count = 0
        self._pumps: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Balancer]:
        server = await asyncio.start_server(self._serve_connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for pump in self._pumps:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self.gateways:
            gateway = urlsplit(self.gateways[self._connection_count % len(self.gateways)])
            self._connection_count += 1
            try:
                answers, questions = await asyncio.open_connection(gateway.hostname, gateway.port)
                break
            except OSError:
                self.refusals += 1
        else:
            writer.transport.abort()
            return
        for source, target in ((reader, questions), (answers, writer)):
            pump = asyncio.create_task(_pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
    finally:
        target.close()
