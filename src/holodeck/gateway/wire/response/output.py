"""The output of a response: items in the order in which they began, each at the place that was announced for it."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.wire.response.event_encoder import EventEncoder

WireItem = dict[str, Any]


class OutputItems:
    """Places are given when an item begins; what stands there is seen only when the item is done."""

    def __init__(self, encoder: EventEncoder) -> None:
        self.encoder = encoder
        self._items: list[WireItem | None] = []

    def reserve(self) -> int:
        """The place of the next item."""
        self._items.append(None)
        return len(self._items) - 1

    def put(self, index: int, item: WireItem) -> None:
        """The item is whole. What a client was told of it before stands."""
        past = self.encoder.sent_events
        self._items[index] = item if past is None else past.find_item(index) or item

    def discard_sent_beyond(self) -> None:
        """Whatever was told beyond this point came to nothing."""
        if self.encoder.sent_events is not None:
            self.encoder.sent_events.discard_from(len(self._items))

    def write(self, item: WireItem) -> None:
        """An item that is whole from the start."""
        place = self.reserve()
        self.encoder.emit("response.output_item.added", output_index=place, item=item)
        self.encoder.emit("response.output_item.done", output_index=place, item=item)
        self.put(place, item)

    def list_finished(self) -> list[WireItem]:
        """All items that are whole by now."""
        return [item for item in self._items if item is not None]
