"""The `output` of a response, and the event grammar of its items.

The API announces an item with `response.output_item.added`, streams its texts and parts, and ends it with
`response.output_item.done`. The classes here emit these events in that order, both for items that are written while a
run goes on (`text_items`, `call_items`) and for those of a finished response (`replay`). Each event is numbered from 0
and encoded once, as a JSON object whose first field is its `type`: readers of stored and sent events rely on that
order.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import orjson

from holodeck.gateway.wire.client_kind import REASONING_EVENT_NAMES, ClientKind

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


PartKind = Literal["output_text", "refusal", "reasoning_text", "summary_text"]


class OutputItems:
    """The output array of a response. An index is reserved when an item starts; the item is listed once finished."""

    def __init__(self, encoder: EventEncoder) -> None:
        self.encoder = encoder
        self._items: list[WireItem | None] = []

    @property
    def next_index(self) -> int:
        """The index of the next item, if no process before has announced another one there."""
        return len(self._items)

    def reserve(self, item_id: str) -> int:
        """Reserve an index for an item: the one that it was announced with, or else one that no item has had."""
        index, sent = len(self._items), self.encoder.sent_events
        if sent is not None:
            index = sent.claim_index(item_id, index)
        self._items += [None] * (index + 1 - len(self._items))
        return index

    def put(self, index: int, item: WireItem) -> None:
        """Store a finished item. One that clients have received in another form before keeps that form."""
        sent = self.encoder.sent_events
        self._items[index] = item if sent is None else sent.find_item(index) or item

    def void_from(self, first_index: int) -> None:
        """Take the items from an index on out of the output. They must be finished."""
        self._items[first_index:] = [None] * (len(self._items) - first_index)

    def void_unclaimed(self) -> bool:
        """End the items of an earlier process that are not reserved again: they are of an answer that was replaced.

        Returns whether there were any.
        """
        sent = self.encoder.sent_events
        begun = {} if sent is None else sent.void_unclaimed()
        for index, item in sorted(begun.items()):
            self.encoder.emit("response.output_item.done", output_index=index, item=item)
        return bool(begun)

    def write(self, item: WireItem) -> None:
        """Add an item that has no content to stream."""
        events = ItemEvents(self.encoder, self.reserve(item["id"]), item["id"])
        events.start(item)
        events.finish(item)
        self.put(events.output_index, item)

    def list_finished(self) -> list[WireItem]:
        return [item for item in self._items if item is not None]


class ItemEvents:
    """Emits the events of one item. Those between `start` and `finish` have its id and index."""

    __slots__ = ("encoder", "output_index", "position")

    def __init__(self, encoder: EventEncoder, output_index: int, item_id: str) -> None:
        self.encoder = encoder
        self.output_index = output_index
        self.position: dict[str, Any] = {"item_id": item_id, "output_index": output_index}

    def start(self, item: WireItem) -> None:
        self.encoder.emit("response.output_item.added", output_index=self.output_index, item=item)

    def emit(self, kind: str) -> None:
        self.encoder.emit(kind, **self.position)

    def emit_end(self, kind: str, *, is_completed: bool) -> None:
        self.emit(f"{kind}.{'completed' if is_completed else 'failed'}")

    def emit_text(self, kind: str, text: str, **fields: Any) -> None:
        """Emit a text that is complete: one delta, unless it is empty, and the end. `fields`: see `TextEvents`."""
        events = TextEvents(self.encoder, kind, self.position)
        events.append(text)
        events.finish(**fields)

    def finish(self, item: WireItem) -> None:
        self.encoder.emit("response.output_item.done", output_index=self.output_index, item=item)


class TextEvents:
    """Emits a text of an item: `KIND.delta` for everything that is appended, then `KIND.done`."""

    __slots__ = ("_delta_head", "_encoder", "_kind", "_position", "_texts")

    def __init__(self, encoder: EventEncoder, kind: str, position: dict[str, Any], **delta_fields: Any) -> None:
        self._encoder = encoder
        self._kind = kind
        self._position = position
        self._delta_head = encoder.build_delta_head(f"{kind}.delta", **position, **delta_fields)
        self._texts: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not self._texts

    @property
    def text(self) -> str:
        """Everything that was appended. Joined anew each time."""
        return "".join(self._texts)

    def append(self, text: str) -> None:
        if text:
            self._texts.append(text)
            if self._delta_head:
                self._encoder.emit_delta(self._delta_head, text)

    def append_all(self, texts: Sequence[str]) -> None:
        """Append texts, each as a delta of its own."""
        texts = [text for text in texts if text]
        self._texts += texts
        if self._delta_head:
            self._encoder.emit_deltas(self._delta_head, texts)

    def finish(self, **fields: Any) -> None:
        """End the text. `fields`: the whole text under the name that this kind of event has for it, and others."""
        self._encoder.emit(f"{self._kind}.done", **self._position, **fields)


class PartEvents(TextEvents):
    """Emits a content part of an item: the part without its text, the text, then the whole part."""

    __slots__ = ("_empty_fields", "_part_event", "key", "logprobs")

    def __init__(
        self,
        item: ItemEvents,
        kind: PartKind,
        index: int = 0,
        client_kind: ClientKind = "openai",
        *,
        has_logprobs: bool = False,
    ) -> None:
        """`has_logprobs`: the text is appended with `append_tokens` only."""
        event, self._part_event, self.key = "response.output_text", "response.content_part", "text"
        position = {**item.position, "summary_index" if kind == "summary_text" else "content_index": index}
        if kind == "refusal":
            event, self.key = "response.refusal", "refusal"
        elif kind == "reasoning_text":
            event = REASONING_EVENT_NAMES[client_kind]
        elif kind == "summary_text":
            event, self._part_event = "response.reasoning_summary_text", "response.reasoning_summary_part"
        self._empty_fields: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        self.logprobs: list[WireItem] = []
        super().__init__(item.encoder, event, position, **({} if has_logprobs else self._empty_fields))

    def start(self, part: WireItem) -> None:
        empty = {**part, self.key: "", **self._empty_fields}
        self._encoder.emit(f"{self._part_event}.added", **self._position, part=empty)

    def append_tokens(self, text: str, logprobs: Sequence[WireItem] = ()) -> None:
        """Append a text with the log probabilities of its tokens."""
        if text:
            self._texts.append(text)
            self.logprobs += logprobs
            if self._delta_head:
                self._encoder.emit_delta(self._delta_head, text, logprobs)

    def finish_part(self, part: WireItem) -> None:
        more = {name: part.get(name, empty) for name, empty in self._empty_fields.items()}
        self.finish(**{self.key: part[self.key]}, **more)
        self._encoder.emit(f"{self._part_event}.done", **self._position, part=part)
