"""The frames of a WebSocket, told apart while they come: what is half sent takes room, what has none is left out."""

from __future__ import annotations

from collections.abc import Iterator

from holodeck.gateway.room import Room

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


class Frames:
    """Bytes in, whole frames out. A message for which there is no room comes out as an empty one: see `was_refused`.

    What no frame may be comes out at its head, in a form that the protocol refuses, and then nothing more: else its
    bytes would be waited for, and those of a ping are in no message and take no room.
    """

    def __init__(self, room: Room, *, limit: int) -> None:
        """`limit`: bytes of one frame."""
        self._room = room
        self._limit = limit
        self._frame = bytearray()
        self._left: int | None = None
        """Bytes of the frame that are to come. None: its head is not whole."""
        self._is_broken = False
        self._is_dropping = False
        """The message that is being sent is left out until its end."""
        self._is_refused = False
        self.held = 0
        """Bytes of the message that is being sent, which is not whole."""
        self.moved = 0
        """Bytes of messages that came, each head counting as one. A ping in the middle of one is no part of it."""

    @property
    def is_half(self) -> bool:
        """Whether somebody is in the middle of a message."""
        return bool(self._frame or self.held or self._is_dropping)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are whole with this."""
        rest = memoryview(data)
        while rest and not self._is_broken:
            if self._left is None:
                size = _head_size(self._frame) - len(self._frame)
                self._frame += rest[:size]
                rest = rest[size:]
                if len(self._frame) < _head_size(self._frame):
                    continue
                self._left = _length(self._frame)
                wrong = self._wrong(self._left)
                if wrong is not None:
                    self._is_broken = True
                    yield wrong
                    return
                self.moved += not self._is_control()
            else:
                piece = rest[: self._left]
                rest = rest[len(piece) :]
                self._left -= len(piece)
                self.moved += 0 if self._is_control() else len(piece)
                if self._take(len(piece)):
                    self._frame += piece
                elif not self._is_dropping:
                    yield self._refuse()
            if self._left == 0:
                if self._is_dropping and not self._is_control():
                    self._leave_out()
                else:
                    yield self._end()

    def whole(self) -> int:
        """The bytes of the message that has just become whole; they are not counted here any more."""
        held, self.held = self.held, 0
        return held

    def was_refused(self) -> bool:
        """Whether that one stands for a message for which there was no room."""
        is_refused, self._is_refused = self._is_refused, False
        return is_refused

    def drop(self) -> None:
        """Nobody sends anything any more."""
        self._room.give(self.whole())
        self._frame = bytearray()

    def _is_control(self) -> bool:
        return self._frame[0] & _OPCODE >= _FIRST_CONTROL

    def _wrong(self, length: int) -> bytes | None:
        """What stands for a frame that must not be, as short as it can be refused. None: it may be."""
        first, masked = self._frame[0], self._frame[1] & _MASKED
        if first & _RESERVED or first & _OPCODE not in _OPCODES or not masked:
            return bytes((first, masked)) + bytes(_MASK_BYTES)
        if self._is_control():
            if length > _MAX_CONTROL:
                size = _MAX_CONTROL + 1
                return bytes((first, masked | _SHORT)) + size.to_bytes(2) + bytes(_MASK_BYTES + size)
            return None if first & _FIN else bytes((first, masked)) + bytes(_MASK_BYTES)
        return bytes(self._frame) if length > self._limit else None

    def _take(self, size: int) -> bool:
        if self._is_control():
            return True
        if self._is_dropping or size > self._room.left:
            return False
        self._room.left -= size
        self.held += size
        return True

    def _refuse(self) -> bytes:
        """Instead of the rest of a message its end, so that the protocol knows of none that is half there."""
        self._room.give(self.whole())
        self._is_dropping = self._is_refused = True
        opcode = self._frame[0] & _OPCODE
        del self._frame[_HEAD_BYTES:]
        return bytes((_FIN | opcode, _MASKED)) + bytes(_MASK_BYTES)

    def _leave_out(self) -> None:
        self._is_dropping = not self._frame[0] & _FIN
        self._end()

    def _end(self) -> bytes:
        """The frame, which is nowhere here any more: nobody knows when the next one is asked for."""
        whole, self._frame, self._left = bytes(self._frame), bytearray(), None
        return whole


def _head_size(frame: bytearray) -> int:
    """Of a frame of which at least this much must be there to know."""
    if len(frame) < _HEAD_BYTES:
        return _HEAD_BYTES
    mask = _MASK_BYTES if frame[1] & _MASKED else 0
    return _HEAD_BYTES + _LENGTH_BYTES.get(frame[1] & _LENGTH, 0) + mask


def _length(frame: bytearray) -> int:
    short = frame[1] & _LENGTH
    size = _LENGTH_BYTES.get(short, 0)
    return int.from_bytes(frame[_HEAD_BYTES : _HEAD_BYTES + size]) if size else short
