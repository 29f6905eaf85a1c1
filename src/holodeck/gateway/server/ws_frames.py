"""The frames of a WebSocket, told apart while they come: what is half sent takes room, what has none is left out."""

from __future__ import annotations

from collections.abc import Iterator

from holodeck.gateway.http.request_body import GatewayBudget

_FIN = 0x80
_RESERVED = 0x70
_OPCODE = 0x0F
_FIRST_CONTROL = 0x08  # opcodes from here on are no part of a message
_OPCODES = frozenset((0x0, 0x1, 0x2, 0x8, 0x9, 0xA))
_MASKED = 0x80
_LENGTH = 0x7F
_SHORT, _LONG = 126, 127  # lengths that say how long the length is
_MAX_CONTROL = 125
_HEAD_BYTES = 2
_LENGTH_BYTES = {_SHORT: 2, _LONG: 8}
_MASK_BYTES = 4


class FrameSplitter:
    """Bytes in, whole frames out. A message for which there is no room comes out as an empty one: see `pop_refusal`.

    What no frame may be comes out at its head, in a form that the protocol refuses, and then nothing more: else its
    bytes would be waited for, and those of a ping are in no message and take no room.
    """

    def __init__(self, budget: GatewayBudget, *, max_frame_bytes: int) -> None:
        """`max_frame_bytes`: bytes of one frame."""
        self._budget = budget
        self._max_frame_bytes = max_frame_bytes
        self._frame = bytearray()
        self._remaining: int | None = None
        """Bytes of the frame that are to come. None: its head is not whole."""
        self._is_broken = False
        self._is_skipping = False
        """The message that is being sent is left out until its end."""
        self._is_refused = False
        self.message_bytes = 0
        """Bytes of the message that is being sent, which is not whole."""
        self.received_bytes = 0
        """Bytes of messages that came, each head counting as one. A ping in the middle of one is no part of it."""

    @property
    def is_mid_message(self) -> bool:
        """Whether somebody is in the middle of a message."""
        return bool(self._frame or self.message_bytes or self._is_skipping)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole with this."""
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
                piece = rest[: self._remaining]
                rest = rest[len(piece) :]
                self._remaining -= len(piece)
                self.received_bytes += 0 if self._is_control() else len(piece)
                if self._reserve(len(piece)):
                    self._frame += piece
                elif not self._is_skipping:
                    yield self._refuse_message()
            if self._remaining == 0:
                if self._is_skipping and not self._is_control():
                    self._skip_frame()
                else:
                    yield self._pop_frame()

    def pop_message_bytes(self) -> int:
        """The bytes of the message that has just become whole; they are not counted here any more."""
        held, self.message_bytes = self.message_bytes, 0
        return held

    def pop_refusal(self) -> bool:
        """Whether that one stands for a message for which there was no room."""
        is_refused, self._is_refused = self._is_refused, False
        return is_refused

    def discard(self) -> None:
        """Nobody sends anything any more."""
        self._budget.release_bytes(self.pop_message_bytes())
        self._frame = bytearray()

    def _is_control(self) -> bool:
        return self._frame[0] & _OPCODE >= _FIRST_CONTROL

    def _find_invalid_frame(self, length: int) -> bytes | None:
        """What stands for a frame that must not be, as short as it can be refused. None: it may be."""
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
        if self._is_skipping or size > self._budget.available:
            return False
        self._budget.available -= size
        self.message_bytes += size
        return True

    def _refuse_message(self) -> bytes:
        """Instead of the rest of a message its end, so that the protocol knows of none that is half there."""
        self._budget.release_bytes(self.pop_message_bytes())
        self._is_skipping = self._is_refused = True
        opcode = self._frame[0] & _OPCODE
        del self._frame[_HEAD_BYTES:]
        return bytes((_FIN | opcode, _MASKED)) + bytes(_MASK_BYTES)

    def _skip_frame(self) -> None:
        self._is_skipping = not self._frame[0] & _FIN
        self._pop_frame()

    def _pop_frame(self) -> bytes:
        """The frame, which is nowhere here any more: nobody knows when the next one is asked for."""
        whole, self._frame, self._remaining = bytes(self._frame), bytearray(), None
        return whole


def _frame_header_size(frame: bytearray) -> int:
    """Of a frame of which at least this much must be there to know."""
    if len(frame) < _HEAD_BYTES:
        return _HEAD_BYTES
    mask = _MASK_BYTES if frame[1] & _MASKED else 0
    return _HEAD_BYTES + _LENGTH_BYTES.get(frame[1] & _LENGTH, 0) + mask


def _payload_length(frame: bytearray) -> int:
    short = frame[1] & _LENGTH
    size = _LENGTH_BYTES.get(short, 0)
    return int.from_bytes(frame[_HEAD_BYTES : _HEAD_BYTES + size]) if size else short
