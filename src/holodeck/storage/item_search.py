"""Which of a caller's responses an item stands in: the newest are looked through, and only so much of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from holodeck.lib.limits import MIB

# Of a caller, newest first, for an item that a request only refers to.
MAX_SEARCHED_RESPONSES = 1_000
# Of those: a search takes a tenth of a second, and others wait for it.
MAX_SEARCHED_BYTES = 64 * MIB


READ_SIZES = f"""
SELECT id, length(resource) + length(input_items) FROM responses WHERE owner = $1
ORDER BY created_at DESC LIMIT {MAX_SEARCHED_RESPONSES}"""  # noqa: S608 - a number of our own
"""Sizes first: what is too much is not read."""
_ID_FIELD = b'"id":"'
ResponseTexts = tuple[bytes, bytes]
"""The resource and the input of a response."""


def choose_newest(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """The newest, and those behind it as long as they are not too many bytes together."""
    chosen: list[str] = []
    total = 0
    for response_id, size in sizes:
        total += size
        if chosen and total > MAX_SEARCHED_BYTES:
            break
        chosen.append(response_id)
    return chosen


class ItemSearch:
    """Looks for ids in one response after the other, until each of them was found."""

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
    """All ids that stand in JSON, each with the quote behind it. One pass, however many are looked for."""
    place = text.find(_ID_FIELD)
    while place >= 0:
        start = place + len(_ID_FIELD)
        end = text.find(b'"', start)
        while end > 0 and text[end - 1 : end] == b"\\":
            end = text.find(b'"', end + 1)
        yield text[start : end + 1]
        place = text.find(_ID_FIELD, start)
