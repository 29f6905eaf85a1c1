"""WebSockets of clients, bounded in all that a client could hold on to: their time, and the room of their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from uvicorn._types import ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame

from holodeck.gateway.frames import Frames
from holodeck.gateway.readers import Reader
from holodeck.gateway.room import NO_ROOM, Room


class BoundedSocket(Reader, WebSocketsSansIOProtocol):
    """A WebSocket whose reader may not stop reading, nor its writer in the middle of a message.

    Messages are bytes, whichever kind they came as, and take room, which whoever receives one gives back. One for
    which there is none is received as `NO_ROOM`.
    """

    seconds: ClassVar[float]
    room: ClassVar[Room]
    _silence: asyncio.TimerHandle | None = None
    _is_over = False
    """Nobody receives messages any more."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._coming = Frames(self.room, limit=config.ws_max_size)

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            return
        for frame in self._coming.feed(data):
            if not self.transport.is_closing():
                super().data_received(frame)
        self._stop()
        if self._coming.is_half and not self.transport.is_closing():
            self._silence = self.loop.call_later(self.seconds, self._look_at_writer)

    def handle_text(self, event: Frame) -> None:
        self.handle_bytes(event)

    def handle_bytes(self, event: Frame) -> None:
        super().handle_bytes(event)
        if not event.fin:
            self._message = bytearray(event.data)
            self.frames = []
        event.data = b""  # the parser has this frame until the next one comes

    def handle_cont(self, event: Frame) -> None:
        self._message += event.data  # in one piece: many small ones would take far more than their bytes
        self.frames = [self._message]  # type: ignore[list-item] # it does as bytes
        event.data = b""
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        size, is_refused = self._coming.whole(), self._coming.was_refused()
        self._message = bytearray()
        if not (is_refused or self.close_sent or self._is_over):
            super().send_receive_event_to_app()
            return
        self.frames = []
        self.room.give(size)
        if is_refused and not (self.close_sent or self._is_over):
            self.queue.put_nowait({"type": NO_ROOM})  # type: ignore[arg-type,misc] # our own
            if not self.read_paused:  # as after a message: who takes no refusals sends no more
                self.read_paused = True
                self.transport.pause_reading()

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            self._is_over = True
            while not self.queue.empty():
                left: Mapping[str, Any] = self.queue.get_nowait()
                self.room.give(len(left.get("bytes") or b""))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._coming.drop()
        super().connection_lost(exc)

    def _look_at_writer(self) -> None:
        self._silence = None
        if self.read_paused:  # we do not listen ourselves
            self._silence = self.loop.call_later(self.seconds, self._look_at_writer)
            return
        self.conn.fail(CloseCode.POLICY_VIOLATION, f"Nothing of the message came for {self.seconds:g} seconds.")
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()

    def _stop(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    async def send(self, message: ASGISendEvent) -> None:
        if self.close_sent:  # by the protocol itself, which whoever answers hears a moment later
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # it was refused; uvicorn would log that nobody has answered


def bounded_socket(seconds: float, reader_seconds: float, room: Room) -> type[BoundedSocket]:
    """A protocol with these limits, as uvicorn wants it: a class."""
    limits = {"seconds": seconds, "reader_seconds": reader_seconds, "room": room}
    return type("BoundedSocket", (BoundedSocket,), limits)
