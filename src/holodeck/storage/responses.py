"""A stored response: its record, its columns, its values as both databases store them, and the search for items in it.

A request may refer to an item by its id alone, and items have no index. The search reads a caller's responses from
the newest on, within a limit on their number and their bytes, and stops when every id is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson

from holodeck.lib.limits import MIB
from holodeck.lib.record import record
from holodeck.storage.checked_values import decode_optional, decode_value, encode_value
from holodeck.storage.runs import StoredRun


@record
class StoredResponse:
    """A response with everything that a later request may need of it. The bytes are JSON, encoded by the gateway."""

    id: str
    caller_id: str
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
    *("id", "caller_id", "created_at", "status", "previous_id", "conversation_id"),
    *("resource", "input_items", "items", "pending", "events", "trace"),
)
COLUMNS = ", ".join(COLUMN_NAMES)
_FIRST_BYTES = COLUMN_NAMES.index("resource")
_plain_of = attrgetter(*COLUMN_NAMES[:_FIRST_BYTES])


# About what the gateway writes around the texts of a response: the base of what is stored of it, before its items. It
# is never changed, because stored values refer to it; another one would be another form of values.
_SAMPLE = Path(__file__).with_name("sample_response.txt").read_bytes()


def values_of(response: StoredResponse, gateway_id: int) -> tuple[object, ...]:
    """Return the values of a row, with the gateway that the response is assigned to as the last one.

    Takes a few milliseconds per megabyte: see `size_of`.
    """
    base = _SAMPLE + response.items
    return (
        *_plain_of(response),
        encode_value(response.resource, base=base),
        encode_value(response.input_items, base=base),
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
    response_id, stored = row[0], row[_FIRST_BYTES:]
    data = (
        *decode_texts(response_id, *stored[:3]),
        *(decode_optional(each, response_id) for each in stored[3:]),
    )
    return StoredResponse(**dict(zip(COLUMN_NAMES, (*row[:_FIRST_BYTES], *data), strict=True)))


def decode_texts(response_id: str, resource: object, input_items: object, items: object) -> tuple[bytes, bytes, bytes]:
    """Return the stored values of a response's resource, input and items. Raises `DamagedValueError`."""
    context = decode_value(items, response_id)
    base = _SAMPLE + context
    return decode_value(resource, response_id, base=base), decode_value(input_items, response_id, base=base), context


# Responses of a caller that one search covers, newest first.
MAX_SEARCHED_RESPONSES = 1_000
# Bytes that one search reads. That takes about a tenth of a second, in which other readers of the database wait.
MAX_SEARCHED_BYTES = 64 * MIB

READ_TEXT_SIZES = f"""
SELECT id, length(resource) + length(input_items) FROM responses WHERE caller_id = $1
ORDER BY created_at DESC LIMIT {MAX_SEARCHED_RESPONSES}"""  # noqa: S608 - a number of our own
"""The ids and sizes of the responses, read first, so that no bytes over the limit are read."""
_ID_FIELD = b'"id":"'
ResponseTexts = tuple[bytes, bytes]
"""The resource and the input of a response."""


def choose_newest(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """Return the ids of the responses to search: the newest in any case, then older ones within
    `MAX_SEARCHED_BYTES`."""
    chosen: list[str] = []
    total = 0
    for response_id, size in sizes:
        total += size
        if chosen and total > MAX_SEARCHED_BYTES:
            break
        chosen.append(response_id)
    return chosen


class ItemSearch:
    """Collects the responses that contain any of the ids; each id is searched for until its first match."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._missing = {orjson.dumps(each)[1:] for each in ids}
        self.found: list[ResponseTexts] = []

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def search_response(self, resource: bytes, input_items: bytes) -> None:
        here = self._missing.intersection((*_ids_in(resource), *_ids_in(input_items)))
        if here:
            self._missing -= here
            self.found.append((resource, input_items))


def _ids_in(text: bytes) -> Iterator[bytes]:
    """Return all ids in a JSON text, each with its closing quote. The cost does not depend on the number wanted."""
    field = text.find(_ID_FIELD)
    while field >= 0:
        start = field + len(_ID_FIELD)
        end = text.find(b'"', start)
        while end > 0 and text[end - 1 : end] == b"\\":
            end = text.find(b'"', end + 1)
        yield text[start : end + 1]
        field = text.find(_ID_FIELD, start)
