"""A client that opens a connection and neither says what it wants nor takes what it gets is shown out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from uvicorn._types import ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame

from holodeck.gateway.attending import CLIENT
from holodeck.gateway.frames import Frames
from holodeck.gateway.gathering import Gathering
from holodeck.gateway.room import NO_ROOM, Room
from holodeck.lib.limits import GOODBYE_SECONDS, MAX_HEAD_BYTES


class _Reader(asyncio.Protocol):
    """The other end of a connection: it may be slow, but it must take something now and then.

    Whoever is written to waits for it, and so do the run behind a stream and, at the end, the whole gateway.
    """

    reader_seconds: ClassVar[float]
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _patience: asyncio.TimerHandle | None = None
    _left = 0

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader(self.reader_seconds)

    def resume_writing(self) -> None:
        self._forget_reader()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_reader()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The gateway ends: who takes nothing gets only a moment more."""
        super().shutdown()  # type: ignore[misc] # uvicorn's protocols have it
        if self._patience is not None:
            self._forget_reader()
            self._wait_for_reader(min(self.reader_seconds, GOODBYE_SECONDS))

    def _wait_for_reader(self, seconds: float) -> None:
        self._left = self.transport.get_write_buffer_size()
        self._patience = self.loop.call_later(seconds, self._look_at_reader, seconds)

    def _look_at_reader(self, seconds: float) -> None:
        if self.transport.get_write_buffer_size() < self._left:
            self._wait_for_reader(seconds)
        else:
            self._patience = None
            self.transport.abort()

    def _forget_reader(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class BoundedProtocol(_Reader, HttpToolsProtocol):
    """HTTP, with a limit on the time from the first byte (or the connection) to the end of the headers, and on them.

    It is the `Client` of its requests: who waits for its leaving needs no task for that.
    """

    seconds: ClassVar[float]
    _silence: asyncio.TimerHandle | None = None
    _head: int | None = None
    """Bytes of headers that have not ended yet."""
    _on_leaving: Callable[[], None] | None = None
    is_gone = False

    @property
    def has_sent_all(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body

    def attend(self, on_leaving: Callable[[], None] | None) -> None:
        self._on_leaving = on_leaving
        if on_leaving is not None:
            self.flow.resume_reading()  # a large body may have stopped it, and nobody leaves unseen

    def hold(self) -> None:
        self._gathering.hold()

    def on_response_complete(self) -> None:
        self._gathering.send()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        self.scope["extensions"] = {CLIENT: self}  # type: ignore[dict-item] # of a kind that uvicorn does not know

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        self._gathering = Gathering(transport, self.loop)
        super().connection_made(self._gathering)  # type: ignore[arg-type] # it does as a transport
        self._start()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        is_all_head = before is None or not before.more_body
        super().data_received(data)
        if self._head is not None:
            if is_all_head and self.cycle is before:  # else this piece began with a request before it
                self._head += len(data)
            if self._head > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The headers are too large.")
        is_upgraded = self.transport.get_protocol() is not self
        has_request = self.cycle is not None and not self.cycle.response_complete
        if is_upgraded or has_request:
            self._stop()
        elif self._silence is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self.is_gone = True
        if self._on_leaving is not None:
            self._on_leaving()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self.cycle is not None and self.cycle.more_body:
            self.cycle.message_event.set()  # the rest of its request is not waited for

    def _start(self) -> None:
        self._silence = self.loop.call_later(self.seconds, self.transport.close)

    def _stop(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


class BoundedSocket(_Reader, WebSocketsSansIOProtocol):
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


def bounded(seconds: float, reader_seconds: float) -> type[BoundedProtocol]:
    """HTTP with these limits; uvicorn makes one for each connection by itself."""
    return type("BoundedProtocol", (BoundedProtocol,), {"seconds": seconds, "reader_seconds": reader_seconds})


def bounded_socket(seconds: float, reader_seconds: float, room: Room) -> type[BoundedSocket]:
    """The same for WebSockets."""
    limits = {"seconds": seconds, "reader_seconds": reader_seconds, "room": room}
    return type("BoundedSocket", (BoundedSocket,), limits)
