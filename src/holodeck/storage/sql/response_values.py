"""The columns of a response, and its values as both databases store them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from holodeck.storage.base import StoredResponse
from holodeck.storage.checked_values import decode_optional, encode_optional, encode_value

COLUMN_NAMES = (
    *("id", "owner", "created_at", "status", "previous_id", "conversation_id"),
    *("resource", "input_items", "items", "pending", "events", "trace"),
)
COLUMNS = ", ".join(COLUMN_NAMES)
_FIRST_BYTES = COLUMN_NAMES.index("resource")
_plain_of = attrgetter(*COLUMN_NAMES[:_FIRST_BYTES])


def values_of(record: StoredResponse, gateway_id: int) -> tuple[object, ...]:
    """The values of a row, with the gateway that the response is assigned to as the last one.

    Takes a few milliseconds per megabyte: see `size_of`.
    """
    return (
        *_plain_of(record),
        encode_value(record.resource),
        encode_value(record.input_items),
        encode_value(record.items),
        encode_value(record.pending),
        encode_value(record.events, may_compress=True),
        encode_optional(record.trace),
        gateway_id,
    )


def size_of(record: StoredResponse) -> int:
    """The bytes of a response that `values_of` encodes, without the few of its pending calls and its trace."""
    return len(record.resource) + len(record.input_items) + len(record.items) + len(record.events)


def response_of(row: Sequence[Any]) -> StoredResponse:
    """The response of a row of `COLUMNS`. Raises `DamagedValueError`."""
    plain, stored = row[:_FIRST_BYTES], row[_FIRST_BYTES:]
    data = (decode_optional(each, row[0]) for each in stored)
    return StoredResponse(**dict(zip(COLUMN_NAMES, (*plain, *data), strict=True)))
