"""What clients have heard of a response whose process died: it is not said again, and not taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from holodeck.gateway.wire.output import WireItem

_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
_ONCE = ("response.created", "response.queued", "response.in_progress")


@dataclass(kw_only=True)
class _Begun:
    """What was told of one item."""

    id: str
    kinds: set[str]
    texts: Counter[str] = field(default_factory=Counter)
    """By the kinds of its deltas, how many characters."""


class Past:
    """The stream so far. Items that were done in it stand as they were told."""

    def __init__(self, payloads: Sequence[bytes] = ()) -> None:
        self.count = len(payloads)
        self._once = {kind for kind in _ONCE if any(_is(payload, kind) for payload in payloads)}
        self._items: dict[int, WireItem] = {}
        self._begun: dict[int, _Begun] = {}
        for payload in payloads:
            if b'"output_index":' in payload:
                self._learn(orjson.loads(payload))

    def knows(self, kind: str, body: Mapping[str, Any]) -> bool:
        """True for an event that would only repeat what was told."""
        if body.get("output_index") in self._items or kind in self._once:
            return True
        begun = self._half(body)
        return begun is not None and kind in begun.kinds

    def told(self, kind: str, body: Mapping[str, Any]) -> int:
        """How many characters of a content were told in deltas of this kind."""
        begun = self._half(body)
        return 0 if begun is None else begun.texts[kind]

    def item(self, place: int) -> WireItem | None:
        """The item that was told for a place of the output."""
        return self._items.get(place)

    def forget_from(self, place: int) -> None:
        """What was told from here on was said in a turn that nobody kept: it is said anew."""
        self._items = {index: item for index, item in self._items.items() if index < place}
        self._begun = {index: begun for index, begun in self._begun.items() if index < place}

    def _learn(self, event: Mapping[str, Any]) -> None:
        kind, place = event["type"], event["output_index"]
        if kind == _DONE:
            self._items[place] = event["item"]
        elif kind == _ADDED:
            self._begun[place] = _Begun(id=_id(event), kinds={kind})
        elif kind.endswith(".delta"):
            self._begun[place].texts[kind] += len(event["delta"])
        else:
            self._begun[place].kinds.add(kind)

    def _half(self, body: Mapping[str, Any]) -> _Begun | None:
        """What was told of an item that was not done. Another item at its place is another matter."""
        begun = self._begun.get(body.get("output_index", -1))
        return begun if begun is not None and begun.id == _id(body) else None


def _id(body: Mapping[str, Any]) -> str:
    return str(body["item"]["id"] if "item" in body else body["item_id"])


def _is(payload: bytes, kind: str) -> bool:
    return payload.startswith(b'{"type":"%b"' % kind.encode())
