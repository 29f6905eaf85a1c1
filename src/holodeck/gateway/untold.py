"""What the gateway did before a model called a function of the client, for clients that send nothing of it back.

Those of `/v1/chat/completions` have no place for it, and some others drop what they did not do themselves. The model
would not know what it has learnt, or done, and would ask for it again. It is in memory for a while, and no promise.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from holodeck.gateway.wire.ids import stem_of
from holodeck.lib.limits import MAX_UNTOLD_BYTES, UNSTORED_SECONDS
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message
from holodeck.models.items_codec import decode_items, encode_items

_Key = tuple[str, str, bytes]
"""Whose it is, the call before which it was done, and what had been said by then."""


class Untold:
    """Of all callers. What was not used for longest is forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, most: int = MAX_UNTOLD_BYTES) -> None:
        self._clock = clock
        self._most = most
        self._size = 0
        self._kept: dict[_Key, tuple[bytes, float]] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        """How much is kept for each caller and call id: most requests need to look no further."""

    def keep(
        self, owner: str, given: Sequence[Item], made: Sequence[Item], *, is_client: Callable[[str], bool]
    ) -> None:
        """Remember what a run did that ended with calls of the client's functions; `given` is what the client sent.

        `made`: all that came of it, with the calls that had waited for it.
        """
        first = next((item for item in made if isinstance(item, FunctionCall) and is_client(item.name)), None)
        if first is None:
            return
        about = [item for item in made if isinstance(item, FunctionCall | FunctionCallOutput)]
        about = [item for item in about if not (isinstance(item, FunctionCall) and is_client(item.name))]
        called = {item.call_id for item in about if isinstance(item, FunctionCall)}
        whole = {item.call_id for item in about if isinstance(item, FunctionCallOutput)} & called
        ours = [item for item in about if item.call_id in whole]
        if ours:
            *_, (key, _) = _keys(owner, (*given, first))
            self._put(key, encode_items(ours))

    def recall(self, owner: str, given: Sequence[Item]) -> list[Item]:
        """What a client sent, with what it did not know where it was done."""
        calls = [item for item in given if isinstance(item, FunctionCall)] if self._kept else []
        if not any((owner, call.call_id) in self._calls for call in calls):
            return list(given)
        known = {stem_of(call) for call in calls} | {_named(call) for call in calls}
        found: list[Item] = []
        keys = {index: key for key, index in _keys(owner, given)}
        for index, item in enumerate(given):
            if index in keys:
                found += _without(known, self._get(keys[index]))
            found.append(item)
        return found

    def _get(self, key: _Key) -> tuple[Item, ...]:
        kept = self._kept.pop(key, None)
        if kept is None:
            return ()
        self._kept[key] = (kept[0], self._clock())
        return decode_items(kept[0])

    def _put(self, key: _Key, encoded: bytes) -> None:
        if len(encoded) > self._most:
            return
        if key in self._kept:
            self._drop(key)
        self._kept[key] = (encoded, self._clock())
        self._calls[key[:2]] += 1
        self._size += len(encoded)
        while self._kept:
            oldest = next(iter(self._kept))
            since = self._kept[oldest][1]
            if self._size <= self._most and since > self._clock() - UNSTORED_SECONDS:
                return
            self._drop(oldest)

    def _drop(self, key: _Key) -> None:
        encoded, _ = self._kept.pop(key)
        self._size -= len(encoded)
        self._calls[key[:2]] -= 1
        if not self._calls[key[:2]]:
            del self._calls[key[:2]]


def _keys(owner: str, items: Sequence[Item]) -> Iterator[tuple[_Key, int]]:
    """A key for each call, and its place: what people and tools had said by then, and which call it is.

    Call ids alone are not enough, because there are models that number them. What the model itself has said is left
    out, because clients write that anew.
    """
    said = hashlib.blake2b(digest_size=16)
    for index, item in enumerate(items):
        if isinstance(item, FunctionCall):
            own = said.copy()
            own.update(item.name.encode("utf-8", "surrogatepass"))
            yield (owner, item.call_id, own.digest()), index
        elif isinstance(item, FunctionCallOutput) or (isinstance(item, Message) and item.role == "user"):
            words = "\0".join(part.text for part in item.content if isinstance(part, TextContent))
            said.update(f"\0{item.type} {words}".encode("utf-8", "surrogatepass"))


def _without(known: Collection[str], items: Sequence[Item]) -> Iterator[Item]:
    """Calls and outputs but those of the calls that the client has sent after all."""
    told: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall) and (stem_of(item) in known or _named(item) in known):
            told.add(item.call_id)
        elif not (isinstance(item, FunctionCallOutput) and item.call_id in told):
            yield item


def _named(call: FunctionCall) -> str:
    return f"{call.call_id} {call.name}"
