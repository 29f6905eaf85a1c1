"""Query parameters: pages of lists, integers and flags. Every function raises the `APIError` of an invalid value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from holodeck.gateway.http.errors import APIError
from holodeck.lib.limits import MAX_SHOWN_CHARS

LIST_LIMIT = 20
MAX_LIST_LIMIT = 100
# The latest time that a query may name, in seconds since 1970: the year 9999, the last one of many calendars.
MAX_TIME = 253_402_300_799
_ORDERS: dict[str, Literal["asc", "desc"]] = {"asc": "asc", "desc": "desc"}
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def page_of(entries: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Build the page of `entries` that `order`, `after` and `limit` select. `entries` are the oldest first."""
    listed = list(entries) if order_of(query) == "asc" else list(reversed(entries))
    after = query.get("after")
    if after is not None:
        index = next((index for index, entry in enumerate(listed) if entry.get("id") == after), None)
        if index is None:
            raise item_not_listed_error(after)
        listed = listed[index + 1 :]
    limit = limit_of(query)
    return build_page(listed[:limit], has_more=len(listed) > limit)


def order_of(query: Mapping[str, str]) -> Literal["asc", "desc"]:
    """The order of a list; the newest first by default."""
    order = query.get("order", "desc")
    if order in _ORDERS:
        return _ORDERS[order]
    shown = order[:MAX_SHOWN_CHARS]
    raise _invalid_query_error(
        "order", f"Invalid value for 'order': {shown!r}. Supported values are: 'asc' and 'desc'."
    )


def limit_of(query: Mapping[str, str]) -> int:
    """The largest number of entries in a page."""
    return integer_of(query, "limit", LIST_LIMIT, minimum=1, maximum=MAX_LIST_LIMIT)


def item_not_listed_error(after: str) -> APIError:
    """For an `after` that is the id of no item in the list."""
    shown = after[:MAX_SHOWN_CHARS]
    return _invalid_query_error("after", f"There is no item with id {shown!r} in this list.", "item_not_found")


def build_page(entries: Sequence[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    """Build the list object of the API, of all entries or of one page of them."""
    return {
        "object": "list",
        "data": entries,
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
        "has_more": has_more,
    }


def integer_of(
    query: Mapping[str, str], name: str, default: int, *, minimum: int | None = None, maximum: int | None = None
) -> int:
    text = query.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise _invalid_query_error(name, f"Invalid type for '{name}': expected an integer.", "invalid_type") from None
    if minimum is not None and number < minimum:
        message = f"Invalid '{name}': integer below minimum value. Expected at least {minimum}, but got {number}."
        raise _invalid_query_error(name, message, "integer_below_min_value")
    if maximum is not None and number > maximum:
        message = f"Invalid '{name}': integer above maximum value. Expected at most {maximum}, but got {number}."
        raise _invalid_query_error(name, message, "integer_above_max_value")
    return number


def time_of(query: Mapping[str, str], name: str) -> float | None:
    """A time in seconds since 1970. None: it is left out."""
    text = query.get(name)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_TIME:
        message = f"Invalid value for '{name}': expected seconds since 1970, from 0 to {MAX_TIME}."
        raise _invalid_query_error(name, message)
    return seconds


def flag_of(query: Mapping[str, str], name: str) -> bool:
    """A boolean parameter, as client languages spell it (`true`, `True`, `1`); false by default."""
    text = query.get(name, "false")
    if text.lower() not in _FLAGS:
        raise _invalid_query_error(
            name, f"Invalid value for '{name}': {text!r}. Supported values are: 'true' and 'false'."
        )
    return _FLAGS[text.lower()]


def _invalid_query_error(param: str, message: str, code: str = "invalid_value") -> APIError:
    return APIError(400, message, kind="invalid_request", code=code, param=param)
