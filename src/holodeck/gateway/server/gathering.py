"""A connection that sends what is written at one moment in one piece: every piece is a call of the kernel."""

from __future__ import annotations

import asyncio
from typing import Any

from holodeck.gateway.server.slow_clients import SlowClientGuard
from holodeck.lib.limits import COALESCED_BYTES


class CoalescingTransport:
    """A transport in front of another one. The head of an answer waits for its body, but not beyond this moment."""

    __slots__ = ("_buffer", "_is_corked", "_loop", "_size", "_transport", "get_protocol", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._buffer: list[bytes] = []
        self._size = 0
        self._is_corked = False
        self.is_closing = transport.is_closing  # asked with every request; what is looked for in vain here takes longer
        self.get_protocol = transport.get_protocol

    def cork(self) -> None:
        """What comes next is whole at once, and is sent by `flush`, `close`, or when it is much."""
        self._is_corked = True

    def write(self, data: bytes) -> None:
        if not self._buffer and not self._is_corked:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)
        self._size += len(data)
        if self._size > COALESCED_BYTES:  # so that the transport can say that it has enough
            self.flush()

    def close(self) -> None:
        self.flush()
        self._transport.close()
        protocol = self.get_protocol()
        if isinstance(protocol, SlowClientGuard):
            protocol.watch_last_write()

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def flush(self) -> None:
        """Hold nothing any longer."""
        self._is_corked = False
        held, self._buffer, self._size = self._buffer, [], 0
        if held and not self.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def __getattr__(self, name: str) -> Any:
        """Everything else is as it is there."""
        return getattr(self._transport, name)
