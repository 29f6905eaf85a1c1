"""Calls that wait in a conversation for the client's own: an item of it that clients are never shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from holodeck.storage.store import ConversationItem

_TYPE = "holodeck:waiting"
_HEAD = b'{"type":"%b"' % _TYPE.encode()
_GIVEN_ROLES = ("user", "system", "developer")


def unseen(response_id: str, waiting: bytes) -> ConversationItem:
    """The item for what waits after a response, as its own record keeps it."""
    item_id = f"wait_{response_id}"
    data = {"type": _TYPE, "id": item_id, "waiting": waiting.decode()}
    return ConversationItem(id=item_id, data=orjson.dumps(data))


def is_unseen(item: ConversationItem) -> bool:
    return item.data.startswith(_HEAD)


def waiting_last(items: Sequence[ConversationItem]) -> bytes | None:
    """What waits at the end of a conversation. Once a model has spoken again, it does not wait any more."""
    for item in reversed(items):
        plain = orjson.loads(item.data)
        if plain["type"] == _TYPE:
            return str(plain["waiting"]).encode()
        if not _is_given(plain):
            return None
    return None


def _is_given(item: Mapping[str, Any]) -> bool:
    if item["type"] == "message":
        return item["role"] in _GIVEN_ROLES
    return item["type"] in ("function_call_output", "mcp_approval_response")
