"""Wire events as bytes: numbered from 0, each encoded once."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from holodeck.gateway.wire.response.sent_events import SentEvents

# A delta is padded to a multiple of this, so that its size says little about its text.
OBFUSCATION_CHARS = 16


SSE_DONE = b"data: [DONE]\n\n"
"""What ends a stream."""

_TYPE_AT = len(b'{"type":"')
_DONE_SUFFIX = ".done"


def encode_sse(event: bytes) -> bytes:
    """An event as server-sent events have it; its name is the type of the payload."""
    return b"event: %b\ndata: %b\n\n" % (event_type(event), event)


def event_type(event: bytes) -> bytes:
    """The type of an encoded event, which is always its first field."""
    return event[_TYPE_AT : event.index(b'"', _TYPE_AT)]


class EventEncoder:
    """Collects events until they are taken. One that is silent only counts on being asked for nothing."""

    __slots__ = ("_chars_to_skip", "_deferred", "_events", "is_obfuscated", "is_silent", "sent_events", "sequence")

    def __init__(
        self, *, is_silent: bool = False, is_obfuscated: bool = False, sent_events: SentEvents | None = None
    ) -> None:
        self.is_silent = is_silent
        self.is_obfuscated = is_obfuscated
        self.sent_events = sent_events
        """What was told by a process that died; numbers go on after it."""
        self.sequence = sent_events.count if sent_events is not None else 0
        self._events: list[bytes] = []
        self._chars_to_skip: dict[bytes, int] = {}
        self._deferred: list[tuple[str, dict[str, Any]]] | None = None

    def emit(self, kind: str, **body: Any) -> None:
        if self.is_silent or (self.sent_events is not None and self.sent_events.has_event(kind, body)):
            return
        if self._deferred is not None and kind.endswith(_DONE_SUFFIX):
            self._deferred.append((kind, body))
            return
        # A copy: what orjson returns holds on to several times its size, and this is kept as long as the run.
        self._events.append(b"%b" % orjson.dumps({"type": kind, "sequence_number": self.sequence, **body}))
        self.sequence += 1

    def defer_done(self) -> None:
        """Until `flush_done`, say of nothing that it is done: it might have to be said anew."""
        if self._deferred is None:
            self._deferred = []

    def flush_done(self) -> None:
        held, self._deferred = self._deferred, None
        for kind, body in held or ():
            self.emit(kind, **body)

    def build_delta_head(self, kind: str, **body: Any) -> bytes:
        """The part that all deltas of one content have in common; nothing for a content that was told before."""
        if self.is_silent or (self.sent_events is not None and self.sent_events.has_event(kind, body)):
            return b""
        head = orjson.dumps({"type": kind, **body})[:-1]
        if self.sent_events is not None:
            self._chars_to_skip[head] = self.sent_events.count_sent_chars(kind, body)
        return head

    def emit_delta(self, head: bytes, text: str) -> None:
        """One delta, which starts with its `build_delta_head`."""
        if not head:
            return
        if self.sent_events is not None:
            text = self._skip_sent(head, text)
            if not text:
                return
        tail = b"}"
        if self.is_obfuscated:
            padding = secrets.token_hex(OBFUSCATION_CHARS)[: OBFUSCATION_CHARS - len(text) % OBFUSCATION_CHARS]
            tail = b',"obfuscation":"%b"}' % padding.encode()
        self._events.append(b'%b,"sequence_number":%d,"delta":%b%b' % (head, self.sequence, orjson.dumps(text), tail))
        self.sequence += 1

    def _skip_sent(self, head: bytes, text: str) -> str:
        """What is new of a text that was told in part."""
        skipped = min(self._chars_to_skip.get(head, 0), len(text))
        self._chars_to_skip[head] = self._chars_to_skip.get(head, 0) - skipped
        return text[skipped:]

    def drain(self) -> list[bytes]:
        """The events since the last time."""
        events, self._events = self._events, []
        return events


WireItem = dict[str, Any]


class OutputItems:
    """Places are given when an item begins; what stands there is seen only when the item is done."""

    def __init__(self, encoder: EventEncoder) -> None:
        self.encoder = encoder
        self._items: list[WireItem | None] = []

    def reserve(self) -> int:
        """The place of the next item."""
        self._items.append(None)
        return len(self._items) - 1

    def put(self, index: int, item: WireItem) -> None:
        """The item is whole. What a client was told of it before stands."""
        past = self.encoder.sent_events
        self._items[index] = item if past is None else past.find_item(index) or item

    def discard_sent_beyond(self) -> None:
        """Whatever was told beyond this point came to nothing."""
        if self.encoder.sent_events is not None:
            self.encoder.sent_events.discard_from(len(self._items))

    def write(self, item: WireItem) -> None:
        """An item that is whole from the start."""
        place = self.reserve()
        self.encoder.emit("response.output_item.added", output_index=place, item=item)
        self.encoder.emit("response.output_item.done", output_index=place, item=item)
        self.put(place, item)

    def list_finished(self) -> list[WireItem]:
        """All items that are whole by now."""
        return [item for item in self._items if item is not None]
