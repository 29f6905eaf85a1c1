"""WebSockets of clients, bounded in all that a client could hold on to: their time, and the room of their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Any, ClassVar

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame
from websockets.http11 import Response

from holodeck.gateway.frames import Frames
from holodeck.gateway.problems import protocol_error
from holodeck.gateway.readers import Reader
from holodeck.gateway.replies import JSON
from holodeck.gateway.room import NO_ROOM, Room
from holodeck.lib.limits import FRAMES_AT_ONCE, MIN_BODY_RATE


class BoundedSocket(Reader, WebSocketsSansIOProtocol):
    """A WebSocket whose reader may not stop reading, nor its writer in the middle of a message.

    Messages are bytes, whichever kind they came as, and take room, which whoever receives one gives back. One for
    which there is none is received as `NO_ROOM`. What comes is taken apart one message at a time, as they are received,
    and not so much of it at once that all others would wait.
    """

    seconds: ClassVar[float]
    room: ClassVar[Room]
    _silence: asyncio.TimerHandle | None = None
    _moved = 0
    """How far the message had come at the last look."""
    _began = 0.0
    _moved_at_begin = 0
    """When the time of the message began, and how far it had come by then."""
    _moved_at_ping = 0
    _came: Iterator[bytes] | None = None
    """The frames of what has come and is not handed on yet."""
    _next: asyncio.Handle | None = None
    _pong = b""
    """What is owed to a client that does not read: to its last ping only, as it may send any number of them."""
    _is_over = False
    """Nobody receives messages any more."""
    _is_deaf = False
    """What comes is taken and left: who still sends would else lose the word that it was shown out with, and why."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn.reject = _reject  # type: ignore[method-assign] # uvicorn makes it, and it refuses in plain text
        self._coming = Frames(self.room, limit=config.ws_max_size)

    def data_received(self, data: bytes) -> None:
        if self._is_closing():
            return
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:
                self._refuse()
            return
        more = self._coming.feed(data)
        self._came = more if self._came is None else chain(self._came, more)
        if self._next is None:
            self._hand_on()

    def _refuse(self) -> None:
        """A request for a WebSocket that is none, or too large: uvicorn would say nothing, and wait for ever."""
        said = b"".join(self.conn.data_to_send())
        no = self.conn.reject(400, "This is not a valid request for a WebSocket.")
        self.transport.write(said or no.serialize())
        self.handshake_complete = self.close_sent = True
        self.transport.close()

    def _hand_on(self) -> None:
        """Also what came too early, before we said that this is a WebSocket: it waits until then."""
        self._next = None
        for _ in range(FRAMES_AT_ONCE):
            if self._came is None or self._is_paused():
                break
            frame = next(self._came, None)
            if frame is None or self._is_closing():
                self._came = None
            else:
                super().data_received(frame)
        if self._came is None:
            self._listen()
            return
        self.transport.pause_reading()
        self._go_on()

    def _is_closing(self) -> bool:
        return self._is_deaf or self.transport.is_closing()

    def _is_paused(self) -> bool:
        return self.read_paused or not self.handshake_complete

    def _go_on(self) -> None:
        if self._came is not None and self._next is None and not self._is_paused():
            self._next = self.loop.call_soon(self._hand_on)

    def _listen(self) -> None:
        """All that came is handed on."""
        if self._is_closing() or not self._coming.is_half:
            self._stop()
        elif self._silence is None:
            self._wait_for_writer()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

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

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._pong = self.conn.data_to_send()[-1]

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        self.close_sent = True  # it was answered; uvicorn would say goodbye once more at its end, and fail

    def handle_parser_exception(self) -> None:
        """As uvicorn, but whoever is in the middle of sending gets the time to hear of it."""
        close = self.conn.close_sent
        assert close is not None  # noqa: S101 - the parser has said why
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
        self.stop_keepalive()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self._is_deaf = True
        self.transport.write_eof()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

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

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if self._came is None:
                self.transport.resume_reading()
            self._go_on()
        return message

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            self._is_over = True
            while not self.queue.empty():
                left: Mapping[str, Any] = self.queue.get_nowait()
                self.room.give(len(left.get("bytes") or b""))

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._pong and not self._is_closing():
            self.transport.write(self._pong)
        self._pong = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        if self._next is not None:
            self._next.cancel()
        self._came = None
        self._coming.drop()
        super().connection_lost(exc)

    def _wait_for_writer(self) -> None:
        """Begin the time of a message, or begin it anew: while we did not listen, it did not pass."""
        self._began, self._moved_at_begin = self.loop.time(), self._coming.moved
        self._wait_for_more()

    def _wait_for_more(self) -> None:
        self._moved = self._coming.moved
        self._silence = self.loop.call_later(self.seconds, self._look_at_writer)

    def _look_at_writer(self) -> None:
        self._silence = None
        if self.transport.is_closing():
            return
        if self._is_heard_late():
            self._wait_for_writer()
            return
        passed, came = self.loop.time() - self._began, self._coming.moved - self._moved_at_begin
        why = f"Nothing of the message came for {self.seconds:g} seconds."
        if self._coming.moved != self._moved:
            if passed < self.seconds + came / MIN_BODY_RATE:
                self._wait_for_more()
                return
            why = f"The message came too slowly: {came} bytes in {passed:.0f} seconds."
        self.conn.fail(CloseCode.POLICY_VIOLATION, why)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()

    def _is_heard_late(self) -> bool:
        """We do not listen ourselves."""
        return self.read_paused or self._came is not None

    def _stop(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def send_keepalive_ping(self) -> None:
        self._moved_at_ping = self._coming.moved
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        """The answer to a ping stands behind the message that is being sent, and the ping behind what is not read."""
        is_moving = self._coming.moved != self._moved_at_ping
        self._moved_at_ping = self._coming.moved
        if self.ping_timeout and (is_moving or self._is_heard_late() or not self.writable.is_set()):
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
        else:
            super().keepalive_timeout()

    async def send(self, message: ASGISendEvent) -> None:
        await self.writable.wait()
        if self.close_sent:  # by the protocol itself, which whoever answers hears a moment later
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # it was refused; uvicorn would log that nobody has answered
        elif message["type"] != "websocket.send":
            self._go_on()


def _reject(status: int, text: str) -> Response:
    """What a request for a WebSocket that is none is answered with."""
    known, body = HTTPStatus(status), protocol_error(text.strip())
    headers = {"Content-Type": JSON, "Content-Length": str(len(body)), "Connection": "close"}
    return Response(known.value, known.phrase, Headers(headers), body)


def bounded_socket(seconds: float, reader_seconds: float, room: Room) -> type[BoundedSocket]:
    """A protocol with these limits, as uvicorn wants it: a class."""
    limits = {"seconds": seconds, "reader_seconds": reader_seconds, "room": room}
    return type("BoundedSocket", (BoundedSocket,), limits)
