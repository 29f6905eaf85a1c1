"""What the gateway did before a model called a function of the client, for clients that send nothing of it back.

Those of `/v1/chat/completions` have no place for it, and some others drop what they did not do themselves. The model
would not know what it has learnt, or done, and would ask for it again. It is in memory for a while, and no promise.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from holodeck.gateway.continuation.pending_calls import PendingCalls
from holodeck.gateway.wire.item_ids import stem_of
from holodeck.lib.limits import MIB
from holodeck.lib.types import record
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message
from holodeck.models.items_json import decode_items, encode_items

# Of calls that wait in responses which nobody stores; each has a few hundred.
MAX_PENDING_CALL_BYTES = 16 * MIB
# Of what was done before clients' functions were called, which they do not send back.
MAX_TOOL_HISTORY_BYTES = 64 * MIB
# That they are remembered: as long as a connection would be.
PENDING_CALL_SECONDS = 3_600.0
# That a WebSocket remembers: an agent goes on from its last one, and may go back a little.
MAX_RECENT_RESPONSES = 8
# Of them together, unless the latest alone is more.
MAX_RECENT_BYTES = 8 * MIB


_HistoryKey = tuple[str, str, bytes]
"""Whose it is, the call before which it was done, and what had been said by then."""


class ToolHistoryCache:
    """Of all callers. What was not used for longest is forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_bytes: int = MAX_TOOL_HISTORY_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: dict[_HistoryKey, tuple[bytes, float]] = {}
        self._entry_counts: Counter[tuple[str, str]] = Counter()
        """How much is kept for each caller and call id: most requests need to look no further."""

    def store(
        self,
        caller_id: str,
        client_items: Sequence[Item],
        run_items: Sequence[Item],
        *,
        is_client: Callable[[str], bool],
    ) -> None:
        """Remember what a run did that ended with calls of the client's functions; `client_items` is what the client
        sent.

        `run_items`: all that came of it, with the calls that had waited for it.
        """
        first = next((item for item in run_items if isinstance(item, FunctionCall) and is_client(item.name)), None)
        if first is None:
            return
        about = [item for item in run_items if isinstance(item, FunctionCall | FunctionCallOutput)]
        about = [item for item in about if not (isinstance(item, FunctionCall) and is_client(item.name))]
        called = {item.call_id for item in about if isinstance(item, FunctionCall)}
        whole = {item.call_id for item in about if isinstance(item, FunctionCallOutput)} & called
        ours = [item for item in about if item.call_id in whole]
        if ours:
            *_, (key, _) = _history_keys(caller_id, (*client_items, first))
            self._store_entry(key, encode_items(ours))

    def restore_calls(self, caller_id: str, client_items: Sequence[Item]) -> list[Item]:
        """What a client sent, with what it did not know where it was done."""
        calls = [item for item in client_items if isinstance(item, FunctionCall)] if self._entries else []
        if not any((caller_id, call.call_id) in self._entry_counts for call in calls):
            return list(client_items)
        known = {stem_of(call) for call in calls} | {_call_key_of(call) for call in calls}
        found: list[Item] = []
        keys = {index: key for key, index in _history_keys(caller_id, client_items)}
        for index, item in enumerate(client_items):
            if index in keys:
                found += _without_known_calls(known, self._read_entry(keys[index]))
            found.append(item)
        return found

    def _read_entry(self, key: _HistoryKey) -> tuple[Item, ...]:
        kept = self._entries.pop(key, None)
        if kept is None:
            return ()
        self._entries[key] = (kept[0], self._clock())
        return decode_items(kept[0])

    def _store_entry(self, key: _HistoryKey, encoded: bytes) -> None:
        if len(encoded) > self._max_bytes:
            return
        if key in self._entries:
            self._delete_entry(key)
        self._entries[key] = (encoded, self._clock())
        self._entry_counts[key[:2]] += 1
        self._size += len(encoded)
        while self._entries:
            oldest = next(iter(self._entries))
            since = self._entries[oldest][1]
            if self._size <= self._max_bytes and since > self._clock() - PENDING_CALL_SECONDS:
                return
            self._delete_entry(oldest)

    def _delete_entry(self, key: _HistoryKey) -> None:
        encoded, _ = self._entries.pop(key)
        self._size -= len(encoded)
        self._entry_counts[key[:2]] -= 1
        if not self._entry_counts[key[:2]]:
            del self._entry_counts[key[:2]]


def _history_keys(caller_id: str, items: Sequence[Item]) -> Iterator[tuple[_HistoryKey, int]]:
    """A key for each call, and its place: what people and tools had said by then, and which call it is.

    Call ids alone are not enough, because there are models that number them. What the model itself has said is left
    out, because clients write that anew.
    """
    said = hashlib.blake2b(digest_size=16)
    for index, item in enumerate(items):
        if isinstance(item, FunctionCall):
            own = said.copy()
            own.update(item.name.encode("utf-8", "surrogatepass"))
            yield (caller_id, item.call_id, own.digest()), index
        elif isinstance(item, FunctionCallOutput) or (isinstance(item, Message) and item.role == "user"):
            words = "\0".join(part.text for part in item.content if isinstance(part, TextContent))
            said.update(f"\0{item.type} {words}".encode("utf-8", "surrogatepass"))


def _without_known_calls(known: Collection[str], items: Sequence[Item]) -> Iterator[Item]:
    """Calls and outputs but those of the calls that the client has sent after all."""
    told: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall) and (stem_of(item) in known or _call_key_of(item) in known):
            told.add(item.call_id)
        elif not (isinstance(item, FunctionCallOutput) and item.call_id in told):
            yield item


def _call_key_of(call: FunctionCall) -> str:
    return f"{call.call_id} {call.name}"


@record
class ResponseContext:
    """A response with all that came before it."""

    items: tuple[Item, ...]
    size: int
    """Their bytes."""
    pending: PendingCalls
    is_stored: bool
    """Whether all of it is stored."""


class SocketHistory:
    """What one connection remembers of its own latest responses, those that nobody stores included."""

    def __init__(self, caller_id: str, histories: SocketHistories) -> None:
        self.caller_id = caller_id
        self.size = 0
        self._histories = histories
        self._contexts: dict[str, ResponseContext] = {}

    def __len__(self) -> int:
        return len(self._contexts)

    def store(self, response_id: str, context: ResponseContext) -> None:
        """Remember one more. Only the latest may be large: it may always be gone on from."""
        self._contexts[response_id] = context
        self.size += context.size
        while len(self._contexts) > MAX_RECENT_RESPONSES or (len(self._contexts) > 1 and self.size > MAX_RECENT_BYTES):
            self.delete_oldest()
        self._histories.trim(self)

    def get(self, response_id: str) -> ResponseContext | None:
        return self._contexts.get(response_id)

    def delete(self, response_id: str) -> None:
        kept = self._contexts.pop(response_id, None)
        self.size -= 0 if kept is None else kept.size

    def delete_oldest(self) -> None:
        self.delete(next(iter(self._contexts)))


class SocketHistories:
    """That of all connections."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: bytes."""
        self._max_bytes = max_bytes
        self._histories: dict[SocketHistory, None] = {}
        """In the order in which they were last used."""

    @contextmanager
    def open_history(self, caller_id: str) -> Iterator[SocketHistory]:
        """That of a connection, for as long as it lasts."""
        recent = SocketHistory(caller_id, self)
        try:
            yield recent
        finally:
            self._histories.pop(recent, None)

    def trim(self, history: SocketHistory) -> None:
        """Forget what is too much: older responses before those that a client goes on from next."""
        self._histories.pop(history, None)
        self._histories[history] = None
        while sum(each.size for each in self._histories) > self._max_bytes:
            sizes: dict[str, int] = {}
            for each in self._histories:
                sizes[each.caller_id] = sizes.get(each.caller_id, 0) + each.size
            most = max(sizes, key=sizes.__getitem__)
            own = [each for each in self._histories if each.caller_id == most and each.size]
            next((each for each in own if len(each) > 1), own[0]).delete_oldest()


class PendingCallCache:
    """What waits in such responses, of all callers. The oldest is forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_bytes: int = MAX_PENDING_CALL_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: dict[tuple[str, str], tuple[PendingCalls, int, float]] = {}

    def store(self, caller_id: str, response_id: str, pending: PendingCalls) -> None:
        size, now = len(pending.encode()), self._clock()
        self._entries[caller_id, response_id] = (pending, size, now)
        self._size += size
        while self._entries:
            oldest = next(iter(self._entries))
            _, size, since = self._entries[oldest]
            if self._size <= self._max_bytes and since > now - PENDING_CALL_SECONDS:
                return
            del self._entries[oldest]
            self._size -= size

    def find(self, caller_id: str, response_id: str) -> PendingCalls | None:
        kept = self._entries.get((caller_id, response_id))
        return None if kept is None else kept[0]
