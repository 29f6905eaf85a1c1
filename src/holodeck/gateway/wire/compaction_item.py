"""The `compaction` item: a compacted context, compressed and encrypted, which the client stores and sends back.

Its content has one line of JSON for each item. A line before them has what else there is to say, if anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson

from holodeck.gateway.sealing import Seal
from holodeck.lib.ids import new_id
from holodeck.lib.record import record
from holodeck.models.items import Item, Message, decode_item, encode_item

COMPACTION_PURPOSE = "compaction"
SUMMARY_HEADING = "[Summary of the earlier conversation]"
"""Begins a message that stands for what was left out of a conversation."""


_HEAD_TYPE = "head"


@record
class CompactionContent:
    """The content of a compaction item."""

    items: tuple[Item, ...]
    replaces_before: bool = False
    """True when it is of a response: it then replaces all items that come before it in the same input."""
    approval_targets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The server and the tool of each of its calls that still waits for an approval, by call id."""


def is_summary(item: Item) -> bool:
    """Return whether an item is a message that stands for what was left out of a conversation."""
    return isinstance(item, Message) and item.role == "user" and item.text.startswith(SUMMARY_HEADING)


def list_kept_questions(content: CompactionContent) -> list[Message]:
    """Return the messages of users that a content keeps as they were, without summaries."""
    messages = [item for item in content.items if isinstance(item, Message) and item.role == "user"]
    return [message for message in messages if not is_summary(message)]


def build_compaction_item(content: CompactionContent, seal: Seal) -> dict[str, Any]:
    """Build the `compaction` item of a content. Takes seconds for many items: run it off the event loop."""
    lines: list[dict[str, Any]] = []
    if content.replaces_before or content.approval_targets:
        targets = {call_id: list(target) for call_id, target in content.approval_targets.items()}
        lines.append({"type": _HEAD_TYPE, "replaces_before": content.replaces_before, "approval_targets": targets})
    lines += [encode_item(item) for item in content.items]
    return {
        "id": new_id("cmp"),
        "type": "compaction",
        "encrypted_content": seal.seal_compressed(COMPACTION_PURPOSE, b"\n".join(map(orjson.dumps, lines))),
    }


def decode_compaction(encoded: bytes) -> CompactionContent:
    """Decode the content of a compaction item.

    Line by line, so that the JSON parser holds the interpreter lock for one item at a time.
    """
    head: dict[str, Any] = {}
    items: list[Item] = []
    for line in encoded.split(b"\n") if encoded else ():
        entry = orjson.loads(line)
        if entry["type"] == _HEAD_TYPE:
            head = entry
        else:
            items.append(decode_item(entry))
    return CompactionContent(
        items=tuple(items),
        replaces_before=head.get("replaces_before", False),
        approval_targets={key: (label, tool) for key, (label, tool) in head.get("approval_targets", {}).items()},
    )
