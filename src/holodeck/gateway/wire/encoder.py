"""Wire events as bytes: numbered from 0, each encoded once."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import orjson

from holodeck.lib.limits import OBFUSCATION_CHARS

if TYPE_CHECKING:
    from holodeck.gateway.wire.past import Past

DONE = b"data: [DONE]\n\n"
"""What ends a stream."""

_TYPE_AT = len(b'{"type":"')
_FINAL = ".done"


def sse(payload: bytes) -> bytes:
    """An event as server-sent events have it; its name is the type of the payload."""
    return b"event: %b\ndata: %b\n\n" % (event_type(payload), payload)


def event_type(payload: bytes) -> bytes:
    """The type of an encoded event, which is always its first field."""
    return payload[_TYPE_AT : payload.index(b'"', _TYPE_AT)]


class Encoder:
    """Collects events until they are taken. One that is silent only counts on being asked for nothing."""

    __slots__ = ("_events", "_held", "_skipped", "is_obfuscated", "is_silent", "past", "sequence")

    def __init__(self, *, is_silent: bool = False, is_obfuscated: bool = False, past: Past | None = None) -> None:
        self.is_silent = is_silent
        self.is_obfuscated = is_obfuscated
        self.past = past
        """What was told by a process that died; numbers go on after it."""
        self.sequence = past.count if past is not None else 0
        self._events: list[bytes] = []
        self._skipped: dict[bytes, int] = {}
        self._held: list[tuple[str, dict[str, Any]]] | None = None

    def emit(self, kind: str, **body: Any) -> None:
        if self.is_silent or (self.past is not None and self.past.knows(kind, body)):
            return
        if self._held is not None and kind.endswith(_FINAL):
            self._held.append((kind, body))
            return
        # A copy: what orjson returns holds on to several times its size, and this is kept as long as the run.
        self._events.append(b"%b" % orjson.dumps({"type": kind, "sequence_number": self.sequence, **body}))
        self.sequence += 1

    def hold(self) -> None:
        """Until `release`, say of nothing that it is done: it might have to be said anew."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        held, self._held = self._held, None
        for kind, body in held or ():
            self.emit(kind, **body)

    def head(self, kind: str, **body: Any) -> bytes:
        """The part that all deltas of one content have in common; nothing for a content that was told before."""
        if self.is_silent or (self.past is not None and self.past.knows(kind, body)):
            return b""
        head = orjson.dumps({"type": kind, **body})[:-1]
        if self.past is not None:
            self._skipped[head] = self.past.told(kind, body)
        return head

    def delta(self, head: bytes, text: str) -> None:
        """One delta, which starts with its `head`."""
        if not head:
            return
        if self.past is not None:
            text = self._untold(head, text)
            if not text:
                return
        tail = b"}"
        if self.is_obfuscated:
            padding = secrets.token_hex(OBFUSCATION_CHARS)[: OBFUSCATION_CHARS - len(text) % OBFUSCATION_CHARS]
            tail = b',"obfuscation":"%b"}' % padding.encode()
        self._events.append(b'%b,"sequence_number":%d,"delta":%b%b' % (head, self.sequence, orjson.dumps(text), tail))
        self.sequence += 1

    def _untold(self, head: bytes, text: str) -> str:
        """What is new of a text that was told in part."""
        skipped = min(self._skipped.get(head, 0), len(text))
        self._skipped[head] = self._skipped.get(head, 0) - skipped
        return text[skipped:]

    def take(self) -> list[bytes]:
        """The events since the last time."""
        events, self._events = self._events, []
        return events
