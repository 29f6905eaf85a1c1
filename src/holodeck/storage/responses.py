"""A stored response: its record, its columns, and its values as both databases store them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from holodeck.lib.record import record
from holodeck.storage.checked_values import decode_optional, encode_value
from holodeck.storage.runs import StoredRun


@record
class StoredResponse:
    """A response with everything that a later request may need of it. The bytes are JSON, encoded by the gateway."""

    id: str
    owner: str
    created_at: float
    status: str
    previous_id: str | None = None
    conversation_id: str | None = None
    resource: bytes = b"{}"
    """The response exactly as it is returned."""
    input_items: bytes = b"[]"
    """Its input as it is listed, each item with an id."""
    items: bytes = b"[]"
    """What it added to the context: its input, then its output."""
    pending: bytes = b"{}"
    """Its pending calls."""
    events: bytes = b""
    """Its stream, one event per line; empty when it was not streamed."""
    trace: bytes | None = None
    """When its steps began and how long they took; JSON."""
    run: StoredRun | None = None
    """Its row in the index of runs, which is stored with it. None: that row is not changed; what is read has none."""


COLUMN_NAMES = (
    *("id", "owner", "created_at", "status", "previous_id", "conversation_id"),
    *("resource", "input_items", "items", "pending", "events", "trace"),
)
COLUMNS = ", ".join(COLUMN_NAMES)
_FIRST_BYTES = COLUMN_NAMES.index("resource")
_plain_of = attrgetter(*COLUMN_NAMES[:_FIRST_BYTES])


def values_of(response: StoredResponse, gateway_id: int) -> tuple[object, ...]:
    """Return the values of a row, with the gateway that the response is assigned to as the last one.

    Takes a few milliseconds per megabyte: see `size_of`.
    """
    return (
        *_plain_of(response),
        encode_value(response.resource),
        encode_value(response.input_items),
        encode_value(response.items),
        encode_value(response.pending),
        encode_value(response.events, may_compress=True),
        None if response.trace is None else encode_value(response.trace),
        gateway_id,
    )


def size_of(response: StoredResponse) -> int:
    """Return the number of bytes that `values_of` encodes."""
    sent = len(response.resource) + len(response.input_items) + len(response.items) + len(response.events)
    return sent + len(response.pending) + len(response.trace or b"")


def response_of(row: Sequence[Any]) -> StoredResponse:
    """Return the response of a row of `COLUMNS`. Raises `DamagedValueError`."""
    plain, stored = row[:_FIRST_BYTES], row[_FIRST_BYTES:]
    data = (decode_optional(each, row[0]) for each in stored)
    return StoredResponse(**dict(zip(COLUMN_NAMES, (*plain, *data), strict=True)))
