"""The output of a response: items in the order in which they began, each at the place that was announced for it."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.wire.encoder import Encoder

WireItem = dict[str, Any]


class Output:
    """Places are given when an item begins; what stands there is seen only when the item is done."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._items: list[WireItem | None] = []

    def reserve(self) -> int:
        """The place of the next item."""
        self._items.append(None)
        return len(self._items) - 1

    def put(self, place: int, item: WireItem) -> None:
        """The item is whole. What a client was told of it before stands."""
        past = self.encoder.past
        self._items[place] = item if past is None else past.item(place) or item

    def begin_anew(self) -> None:
        """Whatever was told beyond this point came to nothing."""
        if self.encoder.past is not None:
            self.encoder.past.forget_from(len(self._items))

    def write(self, item: WireItem) -> None:
        """An item that is whole from the start."""
        place = self.reserve()
        self.encoder.emit("response.output_item.added", output_index=place, item=item)
        self.encoder.emit("response.output_item.done", output_index=place, item=item)
        self.put(place, item)

    def done(self) -> list[WireItem]:
        """All items that are whole by now."""
        return [item for item in self._items if item is not None]
