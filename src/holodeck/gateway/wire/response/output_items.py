"""The `output` of a response, and the event grammar of its items.

The API announces an item with `response.output_item.added`, streams its texts and parts, and ends it with
`response.output_item.done`. The classes here emit these events in that order, both for items that are written while a
run goes on (`text_items`, `call_items`) and for those of a finished response (`replay`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from holodeck.gateway.wire.client_kind import REASONING_EVENT_NAMES, ClientKind
from holodeck.gateway.wire.response.event_encoder import EventEncoder, WireItem

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
