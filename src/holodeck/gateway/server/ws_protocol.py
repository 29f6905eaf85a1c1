"""One WebSocket connection: uvicorn's protocol with limits on time, on memory and on work per turn of the event loop.

`GatewayWebSocketProtocol` closes a connection whose client stops in the middle of a message or sends too slowly, and
aborts one whose client stops reading (`SlowClientGuard`). Messages count against the byte budget of the gateway from
their first byte (`FrameSplitter`) until their receiver has released them. Frames are delivered one message at a time,
as the application receives them, and at most `FRAMES_AT_ONCE` in one turn of the event loop. Reading is paused while
frames are undelivered, and time limits on the client do not run meanwhile.

`FrameSplitter` sees the bytes before the WebSocket library does. A message over the budget is cut: the library gets an
empty end of it, and the rest is skipped.
"""

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
from holodeck.gateway.http.request import OVER_BUDGET_MESSAGE
from holodeck.gateway.server.slow_clients import SlowClientGuard
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.limits import MIN_BODY_RATE

_FIN = 0x80
_RESERVED = 0x70
_OPCODE = 0x0F
# Opcodes from here on are control frames, which are no part of a message.
_FIRST_CONTROL = 0x08
_OPCODES = frozenset((0x0, 0x1, 0x2, 0x8, 0x9, 0xA))
_MASKED = 0x80
_LENGTH = 0x7F
# Values of the 7-bit length that announce a length field of 2 or 8 bytes.
_SHORT, _LONG = 126, 127
_MAX_CONTROL = 125
_HEAD_BYTES = 2
_LENGTH_BYTES = {_SHORT: 2, _LONG: 8}
_MASK_BYTES = 4


class FrameSplitter:
    """Takes bytes and yields whole frames.

    The bytes of an incomplete message are acquired from the budget as they arrive; `pop_message_bytes` passes those of
    a complete one to the caller, which releases them. A message over the budget is ended by an empty frame, and
    `pop_refusal` says so.

    A frame that the protocol forbids is yielded as soon as its header is known, in the shortest form that the protocol
    refuses, and nothing after it: waiting for its payload would buffer bytes that no message and no budget has.
    """

    def __init__(self, budget: ByteBudget, *, max_frame_bytes: int) -> None:
        self._budget = budget
        self._max_frame_bytes = max_frame_bytes
        self._frame = bytearray()
        self._remaining: int | None = None
        """Bytes of the payload that have not arrived. None: the header is incomplete."""
        self._is_broken = False
        self._is_skipping = False
        """The rest of the current message is dropped."""
        self._is_refused = False
        self.message_bytes = 0
        """Bytes of the current message that are acquired from the budget."""
        self.received_bytes = 0
        """Payload bytes of all messages so far, plus one per frame. Control frames are no progress of a message."""

    @property
    def is_mid_message(self) -> bool:
        """Whether a message or a frame is incomplete."""
        return bool(self._frame or self.message_bytes or self._is_skipping)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames that `data` completes."""
        rest = memoryview(data)
        while rest and not self._is_broken:
            if self._remaining is None:
                size = _frame_header_size(self._frame) - len(self._frame)
                self._frame += rest[:size]
                rest = rest[size:]
                if len(self._frame) < _frame_header_size(self._frame):
                    continue
                self._remaining = _payload_length(self._frame)
                wrong = self._find_invalid_frame(self._remaining)
                if wrong is not None:
                    self._is_broken = True
                    yield wrong
                    return
                self.received_bytes += not self._is_control()
            else:
                chunk = rest[: self._remaining]
                rest = rest[len(chunk) :]
                self._remaining -= len(chunk)
                self.received_bytes += 0 if self._is_control() else len(chunk)
                if self._reserve(len(chunk)):
                    self._frame += chunk
                elif not self._is_skipping:
                    yield self._refuse_message()
            if self._remaining == 0:
                if self._is_skipping and not self._is_control():
                    self._skip_frame()
                else:
                    yield self._pop_frame()

    def pop_message_bytes(self) -> int:
        """Return the acquired bytes of the message that has just become complete. The caller releases them."""
        size, self.message_bytes = self.message_bytes, 0
        return size

    def pop_refusal(self) -> bool:
        """Return whether the message that has just become complete was cut, because it was over the budget."""
        is_refused, self._is_refused = self._is_refused, False
        return is_refused

    def discard(self) -> None:
        """Release what an incomplete message holds, when the connection has ended."""
        self._budget.release(self.pop_message_bytes())
        self._frame = bytearray()

    def _is_control(self) -> bool:
        return self._frame[0] & _OPCODE >= _FIRST_CONTROL

    def _find_invalid_frame(self, length: int) -> bytes | None:
        """Return the shortest frame that the protocol refuses for the same reason as the current one.

        None: it is valid.
        """
        first, masked = self._frame[0], self._frame[1] & _MASKED
        if first & _RESERVED or first & _OPCODE not in _OPCODES or not masked:
            return bytes((first, masked)) + bytes(_MASK_BYTES)
        if self._is_control():
            if length > _MAX_CONTROL:
                size = _MAX_CONTROL + 1
                return bytes((first, masked | _SHORT)) + size.to_bytes(2) + bytes(_MASK_BYTES + size)
            return None if first & _FIN else bytes((first, masked)) + bytes(_MASK_BYTES)
        return bytes(self._frame) if length > self._max_frame_bytes else None

    def _reserve(self, size: int) -> bool:
        if self._is_control():
            return True
        if self._is_skipping or not self._budget.has_room(size):
            return False
        self._budget.available -= size
        self.message_bytes += size
        return True

    def _refuse_message(self) -> bytes:
        """Return an empty last frame instead of the rest of the message, so that the protocol has no incomplete one."""
        self._budget.release(self.pop_message_bytes())
        self._is_skipping = self._is_refused = True
        opcode = self._frame[0] & _OPCODE
        del self._frame[_HEAD_BYTES:]
        return bytes((_FIN | opcode, _MASKED)) + bytes(_MASK_BYTES)

    def _skip_frame(self) -> None:
        self._is_skipping = not self._frame[0] & _FIN
        self._pop_frame()

    def _pop_frame(self) -> bytes:
        """Return the current frame, without keeping a copy: the generator may not be resumed for long."""
        whole, self._frame, self._remaining = bytes(self._frame), bytearray(), None
        return whole


def _frame_header_size(frame: bytearray) -> int:
    """Count the bytes of the header, as far as the bytes so far say; at least the two that every header has."""
    if len(frame) < _HEAD_BYTES:
        return _HEAD_BYTES
    mask = _MASK_BYTES if frame[1] & _MASKED else 0
    return _HEAD_BYTES + _LENGTH_BYTES.get(frame[1] & _LENGTH, 0) + mask


def _payload_length(frame: bytearray) -> int:
    short = frame[1] & _LENGTH
    size = _LENGTH_BYTES.get(short, 0)
    return int.from_bytes(frame[_HEAD_BYTES : _HEAD_BYTES + size]) if size else short


class _WatchedTransport:
    """Transport wrapper that bounds the wait for the last bytes to be read, wherever uvicorn closes the connection."""

    __slots__ = ("_guard", "_transport", "write")

    def __init__(self, transport: Any, guard: SlowClientGuard) -> None:
        self._transport = transport
        self._guard = guard
        self.write = transport.write

    def close(self) -> None:
        self._transport.close()
        self._guard.watch_last_write()

    def __getattr__(self, name: str) -> Any:
        """Return everything else from the wrapped transport."""
        return getattr(self._transport, name)


# Frames of one WebSocket in one turn of the event loop, about two milliseconds: a client may send a million empty ones.
FRAMES_AT_ONCE = 100


class GatewayWebSocketProtocol(SlowClientGuard, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with limits. Its ASGI messages differ from uvicorn's in two ways.

    Text and binary messages are both received as bytes, and the receiver releases them in `budget`. A message over the
    budget is received as `OVER_BUDGET_MESSAGE`.
    """

    seconds: ClassVar[float]
    budget: ClassVar[ByteBudget]
    _message_timer: asyncio.TimerHandle | None = None
    _bytes_at_check = 0
    """`received_bytes` of the splitter at the last progress check."""
    _message_started_at = 0.0
    _bytes_at_start = 0
    """`received_bytes` of the splitter at `_message_started_at`."""
    _bytes_at_ping = 0
    _incoming_frames: Iterator[bytes] | None = None
    """Frames that arrived and are not delivered yet."""
    _delivery_handle: asyncio.Handle | None = None
    _owed_pong = b""
    """The pong for the last ping of a client that does not read. Only the last one: it may send any number of pings."""
    _has_no_receiver = False
    """The application has returned, so that no message is received any more."""
    _is_discarding = False
    """Incoming bytes are read and dropped: closing at once would reset the connection of a client that still sends,
    and the close frame with its reason would be lost."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # The library would refuse a handshake in plain text.
        self.conn.reject = _build_rejection  # type: ignore[method-assign] # uvicorn creates the connection
        self._splitter = FrameSplitter(self.budget, max_frame_bytes=config.ws_max_size)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(_WatchedTransport(transport, self))  # type: ignore[arg-type] # it does as a transport

    def shutdown(self) -> None:
        # First: the shutdown may itself write, and start the timer of a client that does not read.
        self.shorten_stall_time()
        super().shutdown()

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
        """Refuse an invalid or too large handshake; uvicorn would send nothing and never close the connection."""
        reply = b"".join(self.conn.data_to_send())
        rejection = self.conn.reject(400, "This is not a valid request for a WebSocket.")
        self.transport.write(reply or rejection.serialize())
        self.handshake_complete = self.close_sent = True
        self.transport.close()

    def _deliver_frames(self) -> None:
        """Deliver a batch of frames. Those that arrive before the handshake is complete are delivered after it."""
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
        """Read again after every frame was delivered."""
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
        # The parser keeps a reference to this frame until the next one.
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        # One buffer: a list of many small frames would take far more memory than their bytes.
        self._message += event.data
        self.frames = [self._message]  # type: ignore[list-item] # a bytearray serves as bytes
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
        # The close frame was answered. uvicorn would send another one at its end, and fail.
        self.close_sent = True

    def handle_parser_exception(self) -> None:
        """Close as uvicorn does, but leave a client that is sending the time to receive the close frame."""
        close = self.conn.close_sent
        assert close is not None  # noqa: S101 - the parser has queued a close frame
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
        self.budget.release(size)
        if is_refused and not (self.close_sent or self._has_no_receiver):
            self.queue.put_nowait({"type": OVER_BUDGET_MESSAGE})  # type: ignore[arg-type,misc] # our own
            # As after a message: while the refusal is not received, nothing more is read.
            if not self.read_paused:
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
                unread: Mapping[str, Any] = self.queue.get_nowait()
                self.budget.release(len(unread.get("bytes") or b""))

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
        """Start the time of a message, or start it again after a pause in reading, which must not count."""
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
        elapsed = self.loop.time() - self._message_started_at
        received = self._splitter.received_bytes - self._bytes_at_start
        reason = f"Nothing of the message came for {self.seconds:g} seconds."
        if self._splitter.received_bytes != self._bytes_at_check:
            if elapsed < self.seconds + received / MIN_BODY_RATE:
                self._schedule_progress_check()
                return
            reason = f"The message came too slowly: {received} bytes in {elapsed:.0f} seconds."
        self.conn.fail(CloseCode.POLICY_VIOLATION, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()

    def _is_backlogged(self) -> bool:
        """Return whether this side has paused reading, so that the client cannot be blamed for a lack of progress."""
        return self.read_paused or self._incoming_frames is not None

    def _cancel_message_timer(self) -> None:
        if self._message_timer is not None:
            self._message_timer.cancel()
            self._message_timer = None

    def send_keepalive_ping(self) -> None:
        self._bytes_at_ping = self._splitter.received_bytes
        super().send_keepalive_ping()

    def keepalive_timeout(self) -> None:
        """Wait longer for a pong while the client sends or does not read.

        The pong comes after the message that the client is sending, and the ping after what it has not read.
        """
        is_moving = self._splitter.received_bytes != self._bytes_at_ping
        self._bytes_at_ping = self._splitter.received_bytes
        if self.ping_timeout and (is_moving or self._is_backlogged() or not self.writable.is_set()):
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
        else:
            super().keepalive_timeout()

    async def send(self, message: ASGISendEvent) -> None:
        await self.writable.wait()
        # The protocol itself has closed the connection, which the application receives a moment later.
        if self.close_sent:
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # The handshake was refused. uvicorn would log that the application has not answered it.
            self.handshake_complete = True
        elif message["type"] != "websocket.send":
            self._schedule_delivery()


def _build_rejection(status: int, text: str) -> Response:
    """Build the reply to an invalid handshake, with the error object of the API."""
    reply_status, body = HTTPStatus(status), protocol_error_body(text.strip())
    headers = {"Content-Type": JSON, "Content-Length": str(len(body)), "Connection": "close"}
    return Response(reply_status.value, reply_status.phrase, Headers(headers), body)


def build_websocket_protocol(
    seconds: float, reader_seconds: float, budget: ByteBudget
) -> type[GatewayWebSocketProtocol]:
    """Build a protocol class with these limits; uvicorn creates an instance for each connection.

    `seconds`: between two parts of a message. `reader_seconds`: without any read by the client. `budget`: of messages.
    """
    limits = {"seconds": seconds, "reader_seconds": reader_seconds, "budget": budget}
    return type("LimitedWebSocketProtocol", (GatewayWebSocketProtocol,), limits)
