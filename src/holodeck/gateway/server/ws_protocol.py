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

from holodeck.gateway.http.errors import protocol_error_body
from holodeck.gateway.http.replies import JSON
from holodeck.gateway.http.request_body import OVER_BUDGET_MESSAGE, GatewayBudget
from holodeck.gateway.server.slow_clients import SlowClientGuard
from holodeck.gateway.server.ws_frames import FrameSplitter
from holodeck.lib.limits import MIN_BODY_RATE

# Of one WebSocket, which may send a million empty ones: two milliseconds, then others have theirs.
FRAMES_AT_ONCE = 100


class GatewayWebSocketProtocol(SlowClientGuard, WebSocketsSansIOProtocol):
    """A WebSocket whose reader may not stop reading, nor its writer in the middle of a message.

    Messages are bytes, whichever kind they came as, and take room, which whoever receives one gives back. One for
    which there is none is received as `OVER_BUDGET_MESSAGE`. What comes is taken apart one message at a time, as they
    are received, and not so much of it at once that all others would wait.
    """

    seconds: ClassVar[float]
    budget: ClassVar[GatewayBudget]
    _message_timer: asyncio.TimerHandle | None = None
    _bytes_at_check = 0
    """How far the message had come at the last look."""
    _message_started_at = 0.0
    _bytes_at_start = 0
    """When the time of the message began, and how far it had come by then."""
    _bytes_at_ping = 0
    _incoming_frames: Iterator[bytes] | None = None
    """The frames of what has come and is not handed on yet."""
    _delivery_handle: asyncio.Handle | None = None
    _owed_pong = b""
    """What is owed to a client that does not read: to its last ping only, as it may send any number of them."""
    _has_no_receiver = False
    """Nobody receives messages any more."""
    _is_discarding = False
    """What comes is taken and left: who still sends would else lose the word that it was shown out with, and why."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn.reject = _build_rejection  # type: ignore[method-assign] # uvicorn makes it, and it refuses in plain text
        self._splitter = FrameSplitter(self.budget, max_frame_bytes=config.ws_max_size)

    def data_received(self, data: bytes) -> None:
        if self._is_closing():
            return
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:
                self._refuse_handshake()
            return
        more = self._splitter.feed(data)
        self._incoming_frames = more if self._incoming_frames is None else chain(self._incoming_frames, more)
        if self._delivery_handle is None:
            self._deliver_frames()

    def _refuse_handshake(self) -> None:
        """A request for a WebSocket that is none, or too large: uvicorn would say nothing, and wait for ever."""
        said = b"".join(self.conn.data_to_send())
        no = self.conn.reject(400, "This is not a valid request for a WebSocket.")
        self.transport.write(said or no.serialize())
        self.handshake_complete = self.close_sent = True
        self.transport.close()

    def _deliver_frames(self) -> None:
        """Also what came too early, before we said that this is a WebSocket: it waits until then."""
        self._delivery_handle = None
        for _ in range(FRAMES_AT_ONCE):
            if self._incoming_frames is None or self._is_paused():
                break
            frame = next(self._incoming_frames, None)
            if frame is None or self._is_closing():
                self._incoming_frames = None
            else:
                super().data_received(frame)
        if self._incoming_frames is None:
            self._resume_listening()
            return
        self.transport.pause_reading()
        self._schedule_delivery()

    def _is_closing(self) -> bool:
        return self._is_discarding or self.transport.is_closing()

    def _is_paused(self) -> bool:
        return self.read_paused or not self.handshake_complete

    def _schedule_delivery(self) -> None:
        if self._incoming_frames is not None and self._delivery_handle is None and not self._is_paused():
            self._delivery_handle = self.loop.call_soon(self._deliver_frames)

    def _resume_listening(self) -> None:
        """All that came is handed on."""
        if self._is_closing() or not self._splitter.is_mid_message:
            self._cancel_message_timer()
        elif self._message_timer is None:
            self._start_message_timer()
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
            self._owed_pong = self.conn.data_to_send()[-1]

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
        self.close_sent = self._is_discarding = True
        self.transport.write_eof()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def send_receive_event_to_app(self) -> None:
        size, is_refused = self._splitter.pop_message_bytes(), self._splitter.pop_refusal()
        self._message = bytearray()
        if not (is_refused or self.close_sent or self._has_no_receiver):
            super().send_receive_event_to_app()
            return
        self.frames = []
        self.budget.release_bytes(size)
        if is_refused and not (self.close_sent or self._has_no_receiver):
            self.queue.put_nowait({"type": OVER_BUDGET_MESSAGE})  # type: ignore[arg-type,misc] # our own
            if not self.read_paused:  # as after a message: who takes no refusals sends no more
                self.read_paused = True
                self.transport.pause_reading()

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if self._incoming_frames is None:
                self.transport.resume_reading()
            self._schedule_delivery()
        return message

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            self._has_no_receiver = True
            while not self.queue.empty():
                left: Mapping[str, Any] = self.queue.get_nowait()
                self.budget.release_bytes(len(left.get("bytes") or b""))

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._owed_pong and not self._is_closing():
            self.transport.write(self._owed_pong)
        self._owed_pong = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_message_timer()
        if self._delivery_handle is not None:
            self._delivery_handle.cancel()
        self._incoming_frames = None
        self._splitter.discard()
        super().connection_lost(exc)

    def _start_message_timer(self) -> None:
        """Begin the time of a message, or begin it anew: while we did not listen, it did not pass."""
        self._message_started_at, self._bytes_at_start = self.loop.time(), self._splitter.received_bytes
        self._schedule_progress_check()

    def _schedule_progress_check(self) -> None:
        self._bytes_at_check = self._splitter.received_bytes
        self._message_timer = self.loop.call_later(self.seconds, self._check_progress)

    def _check_progress(self) -> None:
        self._message_timer = None
        if self.transport.is_closing():
            return
        if self._is_backlogged():
            self._start_message_timer()
            return
        passed, came = self.loop.time() - self._message_started_at, self._splitter.received_bytes - self._bytes_at_start
        why = f"Nothing of the message came for {self.seconds:g} seconds."
        if self._splitter.received_bytes != self._bytes_at_check:
            if passed < self.seconds + came / MIN_BODY_RATE:
                self._schedule_progress_check()
                return
            why = f"The message came too slowly: {came} bytes in {passed:.0f} seconds."
        self.conn.fail(CloseCode.POLICY_VIOLATION, why)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()

    def _is_backlogged(self) -> bool:
        """We do not listen ourselves."""
        return self.read_paused or self._incoming_frames is not None

    def _cancel_message_timer(self) -> None:
        if self._message_timer is not None:
            self._message_timer.cancel()
            self._message_timer = None

    def send_keepalive_ping(self) -> None:
        self._bytes_at_ping = self._splitter.received_bytes
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        """The answer to a ping stands behind the message that is being sent, and the ping behind what is not read."""
        is_moving = self._splitter.received_bytes != self._bytes_at_ping
        self._bytes_at_ping = self._splitter.received_bytes
        if self.ping_timeout and (is_moving or self._is_backlogged() or not self.writable.is_set()):
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
            self._schedule_delivery()


def _build_rejection(status: int, text: str) -> Response:
    """What a request for a WebSocket that is none is answered with."""
    known, body = HTTPStatus(status), protocol_error_body(text.strip())
    headers = {"Content-Type": JSON, "Content-Length": str(len(body)), "Connection": "close"}
    return Response(known.value, known.phrase, Headers(headers), body)


def build_websocket_protocol(
    seconds: float, reader_seconds: float, budget: GatewayBudget
) -> type[GatewayWebSocketProtocol]:
    """A protocol with these limits, as uvicorn wants it: a class."""
    limits = {"seconds": seconds, "reader_seconds": reader_seconds, "budget": budget}
    return type("LimitedWebSocketProtocol", (GatewayWebSocketProtocol,), limits)
