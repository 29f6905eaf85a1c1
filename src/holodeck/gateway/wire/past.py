"""What clients have heard of a response whose process died: it is not said again, and not taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from holodeck.gateway.wire.output import WireItem

_DONE = b'{"type":"response.output_item.done"'
_ONCE = ("response.created", "response.queued", "response.in_progress")


class Past:
    """The stream so far. Items that were done in it stand as they were told."""

    def __init__(self, payloads: Sequence[bytes] = ()) -> None:
        self.count = len(payloads)
        self._once = {kind for kind in _ONCE if any(_is(payload, kind) for payload in payloads)}
        told = [orjson.loads(payload) for payload in payloads if payload.startswith(_DONE)]
        self._items: dict[int, WireItem] = {event["output_index"]: event["item"] for event in told}

    def knows(self, kind: str, body: Mapping[str, Any]) -> bool:
        """True for an event that would only repeat what was told."""
        return body.get("output_index") in self._items or kind in self._once

    def item(self, place: int) -> WireItem | None:
        """The item that was told for a place of the output."""
        return self._items.get(place)

    def forget_from(self, place: int) -> None:
        """What was told from here on was said in a turn that nobody kept: it is said anew."""
        self._items = {index: item for index, item in self._items.items() if index < place}


def _is(payload: bytes, kind: str) -> bool:
    return payload.startswith(b'{"type":"%b"' % kind.encode())
