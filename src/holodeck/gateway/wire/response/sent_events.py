"""Events of a response that were sent by a process which died.

The process that takes the response over emits the same events again from the stored steps. `SentEvents`
knows which of them clients have received, so that none is sent twice and no finished item changes.

An item is void when its turn was begun anew: by this process (`void_from`), or by the one before, which said so with
another `response.in_progress` that does not have the item. Its index is not used again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from holodeck.gateway.wire.response.event_encoder import WireItem

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
        """The item as it is to be finished when nothing more follows: with the texts that were sent of it."""
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
        self.voided: set[int] = set()
        """The indexes of items that are void."""
        is_begun = False
        for payload in events:
            if _is_event_type(payload, _IN_PROGRESS):
                if is_begun:
                    self._void_all_but(orjson.loads(payload)["response"]["output"])
                is_begun = True
            elif b'"output_index":' in payload:
                self._add_event(orjson.loads(payload))

    def has_event(self, kind: str, body: Mapping[str, Any]) -> bool:
        """True for an event that was sent."""
        if body.get("output_index") in self._finished or kind in self._sent_once:
            return True
        started = self._find_started(body)
        return started is not None and kind in started.event_types

    def count_sent_chars(self, kind: str, body: Mapping[str, Any]) -> int:
        """Number of characters that were sent in deltas of this type for the item of `body`."""
        started = self._find_started(body)
        return 0 if started is None else started.sent_chars[kind]

    def count_sent_logprobs(self, body: Mapping[str, Any]) -> int:
        """Number of log probabilities that were sent in deltas of the item of `body`."""
        started = self._find_started(body)
        return 0 if started is None else started.sent_logprobs

    def find_item(self, index: int) -> WireItem | None:
        """The finished item that was sent for an index of the output."""
        return self._finished.get(index)

    def void_from(self, first_index: int) -> dict[int, WireItem]:
        """Void the items from an index on: they are of a turn that was not stored, and is asked for again.

        Returns those that were not finished, as they are to be finished, by index.
        """
        begun = {
            index: started.build_incomplete()
            for index, started in self._started.items()
            if index >= first_index and index not in self.voided and index not in self._finished
        }
        self.voided |= {index for index in (*self._started, *self._finished) if index >= first_index}
        self._forget_voided()
        if begun:
            self._sent_once.discard(_IN_PROGRESS)
        return begun

    def _void_all_but(self, output: Sequence[WireItem]) -> None:
        standing = {item["id"] for item in output}
        self.voided |= {index for index, started in self._started.items() if started.id not in standing}
        self._forget_voided()

    def _forget_voided(self) -> None:
        self._finished = {index: item for index, item in self._finished.items() if index not in self.voided}
        self._started = {index: started for index, started in self._started.items() if index not in self.voided}

    def _add_event(self, event: Mapping[str, Any]) -> None:
        kind, index = event["type"], event["output_index"]
        if kind == _ITEM_DONE:
            self._finished[index] = event["item"]
        elif kind == _ITEM_ADDED:
            self._started[index] = _StartedItem(id=_item_id_of(event), item=dict(event["item"]), event_types={kind})
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
