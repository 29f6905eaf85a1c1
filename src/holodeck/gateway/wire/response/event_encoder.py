"""Events of a response as bytes: each is numbered from 0 and encoded once.

The payload of an event is a JSON object whose first field is its `type`. Readers of stored and sent events rely on
that order.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from holodeck.gateway.wire.response.sent_events import SentEvents

# The text of an obfuscated delta is padded to a multiple of this, so that the size of the event says little about it.
OBFUSCATION_CHARS = 16
SSE_DONE = b"data: [DONE]\n\n"
"""The last bytes of every stream."""

WireItem = dict[str, Any]

_TYPE_OFFSET = len(b'{"type":"')
_DONE_SUFFIX = ".done"


def encode_sse(events: Iterable[bytes]) -> bytes:
    """Encode events as server-sent events, each named by the type of its payload, which is always its first field."""
    return b"".join(
        [
            b"event: %b\ndata: %b\n\n" % (event[_TYPE_OFFSET : event.index(b'"', _TYPE_OFFSET)], event)
            for event in events
        ]
    )


class EventEncoder:
    """Encodes events and collects them until `drain`. A silent encoder drops every event.

    `sent_events`: the events that a process which died has sent of this response. They are not emitted again, and the
    numbers continue after them.
    """

    __slots__ = (
        "_chars_to_skip",
        "_deferred",
        "_events",
        "_logprobs_to_skip",
        "is_obfuscated",
        "is_silent",
        "sent_events",
        "sequence",
    )

    def __init__(
        self, *, is_silent: bool = False, is_obfuscated: bool = False, sent_events: SentEvents | None = None
    ) -> None:
        self.is_silent = is_silent
        self.is_obfuscated = is_obfuscated
        self.sent_events = sent_events
        self.sequence = sent_events.count if sent_events is not None else 0
        """The number of the next event."""
        self._events: list[bytes] = []
        self._chars_to_skip: dict[bytes, int] = {}
        self._logprobs_to_skip: dict[bytes, int] = {}
        self._deferred: list[tuple[str, dict[str, Any]]] | None = None

    def emit(self, kind: str, **body: Any) -> None:
        """Add an event of the type `kind`, unless it was sent before."""
        if self.is_silent or (self.sent_events is not None and self.sent_events.has_event(kind, body)):
            return
        if self._deferred is not None and kind.endswith(_DONE_SUFFIX):
            self._deferred.append((kind, body))
            return
        # A copy: the bytes of orjson occupy several times their size, and events stay in memory as long as the run.
        self._events.append(b"%b" % orjson.dumps({"type": kind, "sequence_number": self.sequence, **body}))
        self.sequence += 1

    def defer_done(self) -> None:
        """Hold back all `.done` events until `flush_done`: a turn that is not stored yet might have to be repeated."""
        if self._deferred is None:
            self._deferred = []

    def flush_done(self, *, is_void: bool = False) -> None:
        """Emit the events that `defer_done` held back, in their order, and hold back no more.

        `is_void`: their items are void, and end as incomplete ones.
        """
        deferred, self._deferred = self._deferred, None
        for kind, body in deferred or ():
            if is_void and "item" in body:
                self.emit(kind, **{**body, "item": {**body["item"], "status": "incomplete"}})
            else:
                self.emit(kind, **body)

    def build_delta_head(self, kind: str, **body: Any) -> bytes:
        """Encode the fields that all deltas of one text have in common. Empty: none of its deltas may be emitted."""
        if self.is_silent or (self.sent_events is not None and self.sent_events.has_event(kind, body)):
            return b""
        head = orjson.dumps({"type": kind, **body})[:-1]
        if self.sent_events is not None:
            self._chars_to_skip[head] = self.sent_events.count_sent_chars(kind, body)
            self._logprobs_to_skip[head] = self.sent_events.count_sent_logprobs(body)
        return head

    def emit_delta(self, head: bytes, text: str, logprobs: Sequence[WireItem] | None = None) -> None:
        """Add a delta event that starts with the `head` from `build_delta_head`. Text that was sent is skipped.

        `logprobs`: of the tokens of the text, where the head has none.
        """
        if self.sent_events is not None:
            text = self._skip_sent(head, text)
            if logprobs:
                logprobs = self._skip_sent_logprobs(head, logprobs)
            if not text:
                return
        tail = b"}" if logprobs is None else b',"logprobs":%b}' % orjson.dumps(list(logprobs))
        if self.is_obfuscated:
            padding = secrets.token_hex(OBFUSCATION_CHARS)[: OBFUSCATION_CHARS - len(text) % OBFUSCATION_CHARS]
            tail = b',"obfuscation":"%b"%b' % (padding.encode(), tail)
        self._events.append(b'%b,"sequence_number":%d,"delta":%b%b' % (head, self.sequence, orjson.dumps(text), tail))
        self.sequence += 1

    def emit_deltas(self, head: bytes, texts: Sequence[str]) -> None:
        """Add a delta event for each text, as `emit_delta` does."""
        if self.sent_events is not None or self.is_obfuscated:
            for text in texts:
                self.emit_delta(head, text)
            return
        numbers = range(self.sequence, self.sequence + len(texts))
        self._events += [
            b'%b,"sequence_number":%d,"delta":%b}' % (head, number, orjson.dumps(text))
            for number, text in zip(numbers, texts, strict=True)
        ]
        self.sequence += len(texts)

    def drain(self) -> list[bytes]:
        """Return the events since the last call, and forget them."""
        events, self._events = self._events, []
        return events

    def _skip_sent_logprobs(self, head: bytes, logprobs: Sequence[WireItem]) -> Sequence[WireItem]:
        skipped = min(self._logprobs_to_skip.get(head, 0), len(logprobs))
        self._logprobs_to_skip[head] = self._logprobs_to_skip.get(head, 0) - skipped
        return logprobs[skipped:]

    def _skip_sent(self, head: bytes, text: str) -> str:
        skipped = min(self._chars_to_skip.get(head, 0), len(text))
        self._chars_to_skip[head] = self._chars_to_skip.get(head, 0) - skipped
        return text[skipped:]
