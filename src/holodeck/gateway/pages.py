"""Lists a page at a time, as the API pages everything: after, limit, order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.gateway.problems import WireError
from holodeck.lib.limits import MAX_SHOWN_CHARS

_LIST_LIMIT = 20
_MAX_LIST_LIMIT = 100


def page_of(entries: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """The page of a list that a query asks for."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise _wrong("order", f"Invalid value for 'order': {order[:MAX_SHOWN_CHARS]!r}. Use 'asc' or 'desc'.")
    listed = list(entries) if order == "asc" else list(reversed(entries))
    after = query.get("after")
    if after is not None:
        place = next((index for index, entry in enumerate(listed) if entry.get("id") == after), None)
        if place is None:
            raise _wrong("after", f"There is no item with id '{after[:MAX_SHOWN_CHARS]}' to go on after.")
        listed = listed[place + 1 :]
    limit = min(max(integer_of(query, "limit", _LIST_LIMIT), 1), _MAX_LIST_LIMIT)
    chosen = listed[:limit]
    return {
        "object": "list",
        "data": chosen,
        "first_id": chosen[0]["id"] if chosen else None,
        "last_id": chosen[-1]["id"] if chosen else None,
        "has_more": len(listed) > limit,
    }


def _wrong(param: str, message: str) -> WireError:
    return WireError(400, message, kind="invalid_request", code="invalid_value", param=param)


def integer_of(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        message = f"Invalid type for '{name}': expected an integer."
        raise WireError(400, message, kind="invalid_request", code="invalid_type", param=name) from None
