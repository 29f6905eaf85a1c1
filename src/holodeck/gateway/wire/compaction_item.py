"""The `compaction` item: a conversation, compressed and encrypted, which the client stores and sends back."""

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
    """Build the `compaction` item of these items. Takes seconds for many items: run it off the event loop."""
    content = b"\n".join(orjson.dumps(encode_item(item)) for item in items)
    return {
        "id": new_id("cmp"),
        "type": "compaction",
        "encrypted_content": seal.seal_compressed(COMPACTION_PURPOSE, content),
    }


def decode_compaction(content: bytes) -> tuple[Item, ...]:
    """Decode the content of a compaction item, which has one line for each item.

    Line by line, so that the JSON parser holds the interpreter lock for one item at a time.
    """
    return tuple(decode_item(orjson.loads(line)) for line in content.split(b"\n") if line)
