"""A conversation folded into one item that the client keeps and cannot read, and unfolded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holodeck.gateway.wire.seal import Seal
from holodeck.lib.ids import new_id
from holodeck.models.items import Item
from holodeck.models.items_codec import decode_items, encode_items

PURPOSE = "compaction"


def fold(items: Sequence[Item], seal: Seal) -> dict[str, Any]:
    """The `compaction` item that stands for these items."""
    return {"id": new_id("cmp"), "type": "compaction", "encrypted_content": seal.close(PURPOSE, encode_items(items))}


def unfold(encrypted: str, seal: Seal) -> tuple[Item, ...] | None:
    """The items again; None when the content is from elsewhere. Raises `BrokenSealError`."""
    content = seal.open(PURPOSE, encrypted)
    return None if content is None else decode_items(content)
