"""A conversation folded into one item that the client keeps and cannot read, and unfolded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from holodeck.gateway.sealing import Seal
from holodeck.lib.ids import new_id
from holodeck.models.items import Item
from holodeck.models.items_json import decode_item, encode_item

COMPACTION_PURPOSE = "compaction"


def build_compaction_item(items: Sequence[Item], seal: Seal) -> dict[str, Any]:
    """The `compaction` item that stands for these items. Takes seconds for large ones: not for the event loop."""
    content = b"\n".join(orjson.dumps(encode_item(item)) for item in items)
    return {
        "id": new_id("cmp"),
        "type": "compaction",
        "encrypted_content": seal.seal_compressed(COMPACTION_PURPOSE, content),
    }


def decode_compaction(content: bytes) -> tuple[Item, ...]:
    """The items again, one line each: the JSON parser holds the interpreter for one item, not for all of them."""
    return tuple(decode_item(orjson.loads(line)) for line in content.split(b"\n") if line)
