"""What clients have heard of a response whose process died: it is not said again, and not taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from holodeck.gateway.wire.response.event_encoder import WireItem

_ITEM_ADDED = "response.output_item.added"
_ITEM_DONE = "response.output_item.done"
_ONCE_PER_STREAM = ("response.created", "response.queued", "response.in_progress")


@dataclass(kw_only=True)
class _StartedItem:
    """What was told of one item."""

    id: str
    event_types: set[str]
    sent_chars: Counter[str] = field(default_factory=Counter)
    """By the kinds of its deltas, how many characters."""


class SentEvents:
    """The stream so far. Items that were done in it stand as they were told."""

    def __init__(self, events: Sequence[bytes] = ()) -> None:
        self.count = len(events)
        self._sent_once = {
            kind for kind in _ONCE_PER_STREAM if any(_is_event_type(payload, kind) for payload in events)
        }
        self._finished: dict[int, WireItem] = {}
        self._started: dict[int, _StartedItem] = {}
        for payload in events:
            if b'"output_index":' in payload:
                self._add_event(orjson.loads(payload))

    def has_event(self, kind: str, body: Mapping[str, Any]) -> bool:
        """True for an event that would only repeat what was told."""
        if body.get("output_index") in self._finished or kind in self._sent_once:
            return True
        begun = self._find_started(body)
        return begun is not None and kind in begun.event_types

    def count_sent_chars(self, kind: str, body: Mapping[str, Any]) -> int:
        """How many characters of a content were told in deltas of this kind."""
        begun = self._find_started(body)
        return 0 if begun is None else begun.sent_chars[kind]

    def find_item(self, index: int) -> WireItem | None:
        """The item that was told for a place of the output."""
        return self._finished.get(index)

    def discard_from(self, first_index: int) -> None:
        """What was told from here on was said in a turn that nobody kept: it is said anew."""
        self._finished = {index: item for index, item in self._finished.items() if index < first_index}
        self._started = {index: begun for index, begun in self._started.items() if index < first_index}

    def _add_event(self, event: Mapping[str, Any]) -> None:
        kind, place = event["type"], event["output_index"]
        if kind == _ITEM_DONE:
            self._finished[place] = event["item"]
        elif kind == _ITEM_ADDED:
            self._started[place] = _StartedItem(id=_item_id_of(event), event_types={kind})
        elif kind.endswith(".delta"):
            self._started[place].sent_chars[kind] += len(event["delta"])
        else:
            self._started[place].event_types.add(kind)

    def _find_started(self, body: Mapping[str, Any]) -> _StartedItem | None:
        """What was told of an item that was not done. Another item at its place is another matter."""
        begun = self._started.get(body.get("output_index", -1))
        return begun if begun is not None and begun.id == _item_id_of(body) else None


def _item_id_of(body: Mapping[str, Any]) -> str:
    return str(body["item"]["id"] if "item" in body else body["item_id"])


def _is_event_type(event: bytes, kind: str) -> bool:
    return event.startswith(b'{"type":"%b"' % kind.encode())
