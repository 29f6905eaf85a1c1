"""What a query asks for: a page of a list, as the API pages everything, a number, or yes or no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from holodeck.gateway.problems import WireError
from holodeck.lib.limits import MAX_SHOWN_CHARS

_LIST_LIMIT = 20
_MAX_LIST_LIMIT = 100
_ORDERS: dict[str, Literal["asc", "desc"]] = {"asc": "asc", "desc": "desc"}
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def page_of(entries: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """The page of a list that a query asks for."""
    listed = list(entries) if order_of(query) == "asc" else list(reversed(entries))
    after = query.get("after")
    if after is not None:
        place = next((index for index, entry in enumerate(listed) if entry.get("id") == after), None)
        if place is None:
            raise not_listed(after)
        listed = listed[place + 1 :]
    limit = limit_of(query)
    return page(listed[:limit], has_more=len(listed) > limit)


def order_of(query: Mapping[str, str]) -> Literal["asc", "desc"]:
    """The newest first, unless the query says otherwise."""
    order = query.get("order", "desc")
    if order in _ORDERS:
        return _ORDERS[order]
    shown = order[:MAX_SHOWN_CHARS]
    raise _wrong("order", f"Invalid value for 'order': {shown!r}. Supported values are: 'asc' and 'desc'.")


def limit_of(query: Mapping[str, str]) -> int:
    """How many a page has at most."""
    return integer_of(query, "limit", _LIST_LIMIT, least=1, most=_MAX_LIST_LIMIT)


def not_listed(after: str) -> WireError:
    """For a page behind an item that is not there."""
    shown = after[:MAX_SHOWN_CHARS]
    return _wrong("after", f"There is no item with id {shown!r} in this list.", "item_not_found")


def page(entries: Sequence[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    """A list, or a page of one."""
    return {
        "object": "list",
        "data": entries,
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
        "has_more": has_more,
    }


def integer_of(
    query: Mapping[str, str], name: str, default: int, *, least: int | None = None, most: int | None = None
) -> int:
    text = query.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise _wrong(name, f"Invalid type for '{name}': expected an integer.", "invalid_type") from None
    if least is not None and number < least:
        message = f"Invalid '{name}': integer below minimum value. Expected at least {least}, but got {number}."
        raise _wrong(name, message, "integer_below_min_value")
    if most is not None and number > most:
        message = f"Invalid '{name}': integer above maximum value. Expected at most {most}, but got {number}."
        raise _wrong(name, message, "integer_above_max_value")
    return number


def flag_of(query: Mapping[str, str], name: str) -> bool:
    """Yes or no, in the words of all the languages that clients are written in. No, when nothing is said."""
    text = query.get(name, "false")
    if text.lower() not in _FLAGS:
        raise _wrong(name, f"Invalid value for '{name}': {text!r}. Supported values are: 'true' and 'false'.")
    return _FLAGS[text.lower()]


def _wrong(param: str, message: str, code: str = "invalid_value") -> WireError:
    return WireError(400, message, kind="invalid_request", code=code, param=param)
