"""Search for items by id in the latest responses of a caller.

A request may refer to an item by its id alone, and items have no index. The search reads a caller's responses from
the newest on, within a limit on their number and their bytes, and stops when every id is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from holodeck.lib.limits import MIB

# Responses of a caller that one search covers, newest first.
MAX_SEARCHED_RESPONSES = 1_000
# Bytes that one search reads. That takes about a tenth of a second, in which other readers of the database wait.
MAX_SEARCHED_BYTES = 64 * MIB

READ_SIZES = f"""
SELECT id, length(resource) + length(input_items) FROM responses WHERE owner = $1
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
