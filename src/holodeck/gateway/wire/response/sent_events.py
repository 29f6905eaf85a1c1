"""Events of a response that were sent by a process which died.

The process that takes the response over emits the same events again from the stored steps. `SentEvents`
knows which of them clients have received, so that none is sent twice and no finished item changes.

An item that is written again has the index with which it was announced (`claim_index`); a new one comes after all of
them. An item is void when its turn was begun anew: by this process, or by the one before, which said so with another
`response.in_progress` that does not have the item. Where that one died before it could, the item is not written again
(`void_unclaimed`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from holodeck.gateway.wire.response.output_items import WireItem

_ITEM_ADDED = "response.output_item.added"
_ITEM_DONE = "response.output_item.done"
_IN_PROGRESS = "response.in_progress"
_ONCE_PER_STREAM = ("response.created", "response.queued", _IN_PROGRESS)

_TextPlace = tuple[str, int | None]
"""The type of the deltas of a text, and the number of its part; None for a text that is no part."""


@dataclass(kw_only=True)
class _StartedItem:
    """The sent events of an item that was not finished."""

    id: str
    item: WireItem
    """As it was announced, with the parts that were announced after it."""
    event_types: set[str]
    sent_chars: Counter[str] = field(default_factory=Counter)
    """Number of characters in its deltas, by the type of the delta."""
    sent_logprobs: int = 0
    """Number of log probabilities in its deltas."""
    texts: defaultdict[_TextPlace, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The deltas of each of its texts."""

    def add_part(self, event: Mapping[str, Any]) -> None:
        parts = "summary" if "summary_index" in event else "content"
        self.item[parts] = [*self.item.get(parts, ()), dict(event["part"])]

    def add_delta(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        self.sent_chars[kind] += len(event["delta"])
        self.sent_logprobs += len(event.get("logprobs", ()))
        self.texts[kind, event.get("summary_index", event.get("content_index"))].append(event["delta"])

    def build_incomplete(self) -> WireItem:
        """Return the item as it is to be finished when nothing more follows: with the texts that were sent of it."""
        for (kind, index), deltas in self.texts.items():
            if index is None:
                self.item["arguments" if "arguments" in self.item else "input"] = "".join(deltas)
            else:
                part = self.item["summary" if "summary" in kind else "content"][index]
                part["refusal" if "refusal" in part else "text"] = "".join(deltas)
        return {**self.item, "status": "incomplete"}


class SentEvents:
    """The stream so far. `count` is the number of its events; items that were finished in it stay as they were sent."""

    def __init__(self, events: Sequence[bytes] = ()) -> None:
        self.count = len(events)
        self._sent_once = {
            kind for kind in _ONCE_PER_STREAM if any(_is_event_type(payload, kind) for payload in events)
        }
        self._finished: dict[int, WireItem] = {}
        self._started: dict[int, _StartedItem] = {}
        self._indexes: dict[str, int] = {}
        """The index of each announced item that is neither void nor written again."""
        self._next_index = 0
        """The first index at which no item was announced."""
        is_begun = False
        for payload in events:
            if _is_event_type(payload, _IN_PROGRESS):
                if is_begun:
                    self._void_all_but(orjson.loads(payload)["response"]["output"])
                is_begun = True
            elif b'"output_index":' in payload:
                self._add_event(orjson.loads(payload))

    def has_event(self, kind: str, body: Mapping[str, Any]) -> bool:
        """Return True for an event that was sent."""
        if body.get("output_index") in self._finished or kind in self._sent_once:
            return True
        started = self._find_started(body)
        return started is not None and kind in started.event_types

    def count_sent_chars(self, kind: str, body: Mapping[str, Any]) -> int:
        """Count the characters that were sent in deltas of this type for the item of `body`."""
        started = self._find_started(body)
        return 0 if started is None else started.sent_chars[kind]

    def count_sent_logprobs(self, body: Mapping[str, Any]) -> int:
        """Count the log probabilities that were sent in deltas of the item of `body`."""
        started = self._find_started(body)
        return 0 if started is None else started.sent_logprobs

    def find_item(self, index: int) -> WireItem | None:
        """Return the finished item that was sent for an index of the output."""
        return self._finished.get(index)

    def claim_index(self, item_id: str, after: int) -> int:
        """Return the index of an item that is written: its own, or the first free one. `after`: the first unused."""
        return self._indexes.pop(item_id, max(after, self._next_index))

    def void_unclaimed(self) -> dict[int, WireItem]:
        """Void the items that are not written again: they are of an answer that was not stored, and was asked for anew.

        Returns those that were not finished, as they are to be finished, by index.
        """
        unclaimed, self._indexes = self._indexes.values(), {}
        return {index: self._started[index].build_incomplete() for index in unclaimed if index not in self._finished}

    def allow_restart(self) -> None:
        """Let the next `response.in_progress` be sent, which says that a turn begins anew."""
        self._sent_once.discard(_IN_PROGRESS)

    def _void_all_but(self, output: Sequence[WireItem]) -> None:
        standing = {item["id"] for item in output}
        self._indexes = {item_id: index for item_id, index in self._indexes.items() if item_id in standing}

    def _add_event(self, event: Mapping[str, Any]) -> None:
        kind, index = event["type"], event["output_index"]
        if kind == _ITEM_DONE:
            self._finished[index] = event["item"]
        elif kind == _ITEM_ADDED:
            item_id = _item_id_of(event)
            self._started[index] = _StartedItem(id=item_id, item=dict(event["item"]), event_types={kind})
            self._indexes[item_id] = index
            self._next_index = max(self._next_index, index + 1)
        elif kind.endswith(".delta"):
            self._started[index].add_delta(event)
        else:
            self._started[index].event_types.add(kind)
            if "part" in event and kind.endswith(".added"):
                self._started[index].add_part(event)

    def _find_started(self, body: Mapping[str, Any]) -> _StartedItem | None:
        # Another item at the same index is a new one.
        started = self._started.get(body.get("output_index", -1))
        return started if started is not None and started.id == _item_id_of(body) else None


def _item_id_of(body: Mapping[str, Any]) -> str:
    return str(body["item"]["id"] if "item" in body else body["item_id"])


def _is_event_type(event: bytes, kind: str) -> bool:
    return event.startswith(b'{"type":"%b"' % kind.encode())
