"""Splits the bytes of a WebSocket into frames, and counts incomplete messages against the byte budget.

It runs before the WebSocket library gets the bytes, so that a partly received message counts as well. A message over
the budget is cut: the library gets an empty end of it, and the rest is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from holodeck.lib.byte_budget import ByteBudget

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
        """The acquired bytes of the message that has just become complete. The caller releases them."""
        size, self.message_bytes = self.message_bytes, 0
        return size

    def pop_refusal(self) -> bool:
        """Whether the message that has just become complete was cut, because it was over the budget."""
        is_refused, self._is_refused = self._is_refused, False
        return is_refused

    def discard(self) -> None:
        """Release what an incomplete message holds, when the connection has ended."""
        self._budget.release(self.pop_message_bytes())
        self._frame = bytearray()

    def _is_control(self) -> bool:
        return self._frame[0] & _OPCODE >= _FIRST_CONTROL

    def _find_invalid_frame(self, length: int) -> bytes | None:
        """The shortest frame that the protocol refuses for the same reason as the current one. None: it is valid."""
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
        """An empty last frame instead of the rest of the message, so that the protocol has no incomplete one."""
        self._budget.release(self.pop_message_bytes())
        self._is_skipping = self._is_refused = True
        opcode = self._frame[0] & _OPCODE
        del self._frame[_HEAD_BYTES:]
        return bytes((_FIN | opcode, _MASKED)) + bytes(_MASK_BYTES)

    def _skip_frame(self) -> None:
        self._is_skipping = not self._frame[0] & _FIN
        self._pop_frame()

    def _pop_frame(self) -> bytes:
        """The current frame, without keeping a copy: the generator may not be resumed for long."""
        whole, self._frame, self._remaining = bytes(self._frame), bytearray(), None
        return whole


def _frame_header_size(frame: bytearray) -> int:
    """Bytes of the header, as far as the bytes so far say; at least the two that every header has."""
    if len(frame) < _HEAD_BYTES:
        return _HEAD_BYTES
    mask = _MASK_BYTES if frame[1] & _MASKED else 0
    return _HEAD_BYTES + _LENGTH_BYTES.get(frame[1] & _LENGTH, 0) + mask


def _payload_length(frame: bytearray) -> int:
    short = frame[1] & _LENGTH
    size = _LENGTH_BYTES.get(short, 0)
    return int.from_bytes(frame[_HEAD_BYTES : _HEAD_BYTES + size]) if size else short
