"""The frames of a WebSocket, told apart while they come: what is half sent takes room, what has none is left out."""

from __future__ import annotations

from collections.abc import Iterator

from holodeck.gateway.room import Room

_FIN = 0x80
_OPCODE = 0x0F
_FIRST_CONTROL = 0x08  # opcodes from here on are no part of a message
_MASKED = 0x80
_LENGTH = 0x7F
_SHORT, _LONG = 126, 127  # lengths that say how long the length is
_HEAD_BYTES = 2
_LENGTH_BYTES = {_SHORT: 2, _LONG: 8}
_MASK_BYTES = 4


class Frames:
    """Bytes in, whole frames out. A message for which there is no room comes out as an empty one: see `was_refused`."""

    def __init__(self, room: Room, *, limit: int) -> None:
        """`limit`: bytes of one frame. What is longer is handed on at its head, for the protocol to refuse."""
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
                if self._left > self._limit:
                    self._is_broken = True
                    yield bytes(self._frame)
                    break
            else:
                piece = rest[: self._left]
                rest = rest[len(piece) :]
                self._left -= len(piece)
                if self._take(len(piece)):
                    self._frame += piece
                elif not self._is_dropping:
                    yield self._refuse()
            if self._left == 0:
                yield from self._end()
        if self._is_broken and rest:
            yield bytes(rest)

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

    def _end(self) -> Iterator[bytes]:
        is_last = bool(self._frame[0] & _FIN) and not self._is_control()
        if self._is_control() or not self._is_dropping:
            yield bytes(self._frame)
        elif is_last:
            self._is_dropping = False
        self._frame = bytearray()
        self._left = None


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
