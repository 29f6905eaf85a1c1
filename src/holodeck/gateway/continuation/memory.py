"""In-memory state between requests. All of it is bounded, lost at a restart, and never the only copy of stored data.

`ToolHistoryCache` remembers the gateway's own tool calls before and beside a call of a client function, for clients
that do not send them back: `/v1/chat/completions` has no field for them, and some other clients drop calls that they
did not run. Without it, as after a restart, the model would not see what it has learnt or done, and would call the
tools again.

`ReasoningCache` remembers what providers of models sent with their reasoning, for clients of the Messages API, which
send back its id only.

`SocketHistory` is the latest responses of one WebSocket with their contexts, so that a client can continue from
responses that are not stored. `SocketHistories` bounds all of them together.

`PendingCallCache` remembers the pending calls of responses that are not stored, for clients that send the turn again on
another connection.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from holodeck.gateway.continuation.pending_calls import PendingCalls
from holodeck.gateway.wire.item_ids import stem_of
from holodeck.lib.bounded_cache import BoundedCache
from holodeck.lib.limits import MIB
from holodeck.lib.record import record
from holodeck.models.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    TextContent,
    decode_items,
    encode_items,
)

# Bytes of pending calls of responses that are not stored, of all callers. A response has a few hundred bytes of them.
MAX_PENDING_CALL_BYTES = 16 * MIB
# Bytes of tool calls and outputs that clients do not send back, of all callers: whole tool results, so more than above.
MAX_TOOL_HISTORY_BYTES = 64 * MIB
# Bytes of what providers sent with reasoning, of all callers: signatures and encrypted texts of a few kilobytes.
MAX_REASONING_BYTES = 16 * MIB
# Seconds until an entry of these caches expires: as long as a WebSocket may last, which would remember the same.
PENDING_CALL_SECONDS = 3_600.0
# Responses that one WebSocket remembers: an agent continues from the last one, and rarely from a few before it.
MAX_RECENT_RESPONSES = 8
# Bytes of these responses with their contexts. The latest is remembered even if it alone is larger.
MAX_RECENT_BYTES = 8 * MIB

_HistoryKey = tuple[str, str, bytes]
"""Caller id, id of the client's call, and a digest of the user messages and outputs before that call."""


class ToolHistoryCache:
    """The gateway's tool calls in runs that ended with a client's call, for all callers.

    Evicts the least recently used first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_bytes: int = MAX_TOOL_HISTORY_BYTES) -> None:
        self._entries = BoundedCache[_HistoryKey, bytes](
            max_bytes=max_bytes, max_seconds=PENDING_CALL_SECONDS, clock=clock, on_delete=self._count_deleted
        )
        self._entry_counts: Counter[tuple[str, str]] = Counter()
        """Entries by caller and call id: a cheap check that spares most requests the digests."""

    def store(
        self,
        caller_id: str,
        client_items: Sequence[Item],
        run_items: Sequence[Item],
        *,
        is_client: Callable[[str], bool],
        shown_calls: Collection[str] = (),
    ) -> None:
        """Remember the tool calls of a run that ended with a call of a client function; else do nothing.

        `client_items`: the input as the client sent it. `run_items`: all items of the run, with the calls that it
        resumed. Of the client's calls only the places are stored; the gateway's calls without an output are left out.
        `shown_calls`: ids of calls in the input that the gateway has run.
        """
        first = next((item for item in run_items if isinstance(item, FunctionCall) and is_client(item.name)), None)
        if first is None:
            return
        ours = [item for item in run_items if isinstance(item, FunctionCall) and not is_client(item.name)]
        called = {call.call_id for call in ours}
        answered = {item.call_id for item in run_items if isinstance(item, FunctionCallOutput)} & called
        remembered: list[Item] = []
        for item in run_items:
            if isinstance(item, FunctionCall) and is_client(item.name):
                remembered.append(replace(item, arguments=""))
            elif isinstance(item, FunctionCall | FunctionCallOutput) and item.call_id in answered:
                remembered.append(item)
        if answered:
            *_, (key, _) = _history_keys(caller_id, (*client_items, first), shown_calls)
            encoded = encode_items(remembered)
            if self._entries.set(key, encoded, len(encoded)):
                self._entry_counts[key[:2]] += 1

    def restore_calls(
        self, caller_id: str, client_items: Sequence[Item], shown_calls: Collection[str] = ()
    ) -> list[Item]:
        """Return the input of a client, with the remembered calls and outputs where the model made the calls.

        Calls of one turn stay together, in their order, whether the gateway or the client ran them. Calls that are no
        longer remembered are missing. `shown_calls`: ids of calls in the input that the gateway has run.
        """
        calls = [item for item in client_items if isinstance(item, FunctionCall)] if self._entries else []
        if not any((caller_id, call.call_id) in self._entry_counts for call in calls):
            return list(client_items)
        known = {stem_of(call) for call in calls} | {_call_key_of(call) for call in calls}
        found: list[Item] = []
        keys = {index: key for key, index in _history_keys(caller_id, client_items, shown_calls)}
        moved: set[int] = set()
        for index, item in enumerate(client_items):
            if index in moved:
                continue
            remembered = self._read_entry(keys[index]) if index in keys else ()
            if not remembered:
                found.append(item)
                continue
            sent = _match_calls(remembered, client_items, index)
            moved.update(sent.values())
            unsent = dict(_list_unsent(remembered, known))
            for place in sorted(sent.keys() | unsent.keys()):
                found.append(client_items[sent[place]] if place in sent else unsent[place])
        return found

    def _read_entry(self, key: _HistoryKey) -> tuple[Item, ...]:
        encoded = self._entries.get(key)
        if encoded is None:
            return ()
        self._entries.refresh(key)
        return decode_items(encoded)

    def forget_caller(self, caller_id: str) -> None:
        self._entries.delete_where(lambda key: key[0] == caller_id)

    def _count_deleted(self, key: _HistoryKey, _encoded: bytes) -> None:
        self._entry_counts[key[:2]] -= 1
        if not self._entry_counts[key[:2]]:
            del self._entry_counts[key[:2]]


def _history_keys(
    caller_id: str, items: Sequence[Item], shown_calls: Collection[str]
) -> Iterator[tuple[_HistoryKey, int]]:
    """Yield a key for each call, with the index of the call: see `_HistoryKey`.

    Call ids alone are not enough, because some models number their calls. Messages of the model are not part of the
    digest, because clients rewrite them, nor are the outputs of the gateway's own calls: the client has them only after
    the run that is remembered.
    """
    history = hashlib.blake2b(digest_size=16)
    for index, item in enumerate(items):
        if isinstance(item, FunctionCall):
            own = history.copy()
            own.update(item.name.encode("utf-8", "surrogatepass"))
            yield (caller_id, item.call_id, own.digest()), index
        elif (isinstance(item, FunctionCallOutput) and item.call_id not in shown_calls) or (
            isinstance(item, Message) and item.role == "user"
        ):
            text = "\0".join(part.text for part in item.content if isinstance(part, TextContent))
            history.update(f"\0{item.type} {text}".encode("utf-8", "surrogatepass"))


def _match_calls(remembered: Sequence[Item], client_items: Sequence[Item], start: int) -> dict[int, int]:
    """Return the indexes of a client's items that are calls of a remembered run, by their places in the run.

    Looks from `start` on, as far as there are only such calls and outputs: some clients send an output after each call.
    """
    places: dict[str, int] = {}
    for place, item in enumerate(remembered):
        if isinstance(item, FunctionCall):
            places[stem_of(item)] = places[_call_key_of(item)] = place
    indexes: dict[int, int] = {}
    for index in range(start, len(client_items)):
        item = client_items[index]
        if isinstance(item, FunctionCall):
            place = places.get(stem_of(item), places.get(_call_key_of(item), -1))
            if place < 0 or place in indexes:
                break
            indexes[place] = index
        elif not isinstance(item, FunctionCallOutput):
            break
    return indexes


def _list_unsent(remembered: Sequence[Item], known: Collection[str]) -> Iterator[tuple[int, Item]]:
    """Yield the remembered calls of the gateway that the client did not send, and their outputs, with their places."""
    outputs_to_come = Counter(item.call_id for item in remembered if isinstance(item, FunctionCallOutput))
    unsent: set[str] = set()
    for place, item in enumerate(remembered):
        if isinstance(item, FunctionCallOutput):
            outputs_to_come[item.call_id] -= 1
            if item.call_id in unsent:
                yield place, item
        elif isinstance(item, FunctionCall):
            unsent.discard(item.call_id)
            # A call without an output is only the place of a client's call.
            if outputs_to_come[item.call_id] and stem_of(item) not in known and _call_key_of(item) not in known:
                unsent.add(item.call_id)
                yield place, item


def _call_key_of(call: FunctionCall) -> str:
    return f"{call.call_id} {call.name}"


class ReasoningCache:
    """`Reasoning.opaque` by caller and item id, of all callers. Evicts the least recently used first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_bytes: int = MAX_REASONING_BYTES) -> None:
        self._entries = BoundedCache[tuple[str, str], bytes](
            max_bytes=max_bytes, max_seconds=PENDING_CALL_SECONDS, clock=clock
        )

    def store(self, caller_id: str, items: Iterable[Item]) -> None:
        """Remember the reasoning among the items of a run."""
        for item in items:
            if isinstance(item, Reasoning) and item.opaque:
                encoded = encode_items((item,))
                self._entries.set((caller_id, item.id), encoded, len(encoded))

    def restore(self, caller_id: str, items: Iterable[Item]) -> list[Item]:
        """Return the items, with the remembered reasoning for each that has only its id. The others stay."""
        return [self._find(caller_id, item) if isinstance(item, Reasoning) and item.id else item for item in items]

    def forget_caller(self, caller_id: str) -> None:
        self._entries.delete_where(lambda key: key[0] == caller_id)

    def _find(self, caller_id: str, item: Reasoning) -> Item:
        key = (caller_id, item.id)
        encoded = self._entries.get(key)
        if encoded is None:
            return item
        self._entries.refresh(key)
        return decode_items(encoded)[0]


@record
class ResponseContext:
    """A response with the items before it, as the context of the next request."""

    items: tuple[Item, ...]
    size: int
    """Bytes of the items."""
    pending: PendingCalls
    is_stored: bool
    """Whether all of it is in a stored chain of responses."""


class SocketHistory:
    """The latest responses of one WebSocket, stored or not. Create it with `SocketHistories.open_history`."""

    def __init__(self, caller_id: str, histories: SocketHistories) -> None:
        self.caller_id = caller_id
        self._histories = histories
        self._contexts = BoundedCache[str, ResponseContext](
            max_bytes=MAX_RECENT_BYTES, max_entries=MAX_RECENT_RESPONSES, keeps_latest=True
        )

    def __len__(self) -> int:
        return len(self._contexts)

    @property
    def size(self) -> int:
        return self._contexts.size

    def store(self, response_id: str, context: ResponseContext) -> None:
        """Remember a response, and drop older ones over the limits. The latest stays, whatever its size."""
        self._contexts.set(response_id, context, context.size)
        self._histories.trim(self)

    def get(self, response_id: str) -> ResponseContext | None:
        return self._contexts.get(response_id)

    def delete(self, response_id: str) -> None:
        self._contexts.delete(response_id)

    def delete_oldest(self) -> None:
        self._contexts.delete_oldest()


class SocketHistories:
    """The histories of all open WebSockets, within one byte limit."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: limit for the sizes of all histories together."""
        self._max_bytes = max_bytes
        self._histories: dict[SocketHistory, None] = {}
        """Ordered by their last use, the oldest first."""

    @contextmanager
    def open_history(self, caller_id: str) -> Iterator[SocketHistory]:
        """Open the history of a new connection. It is dropped when the context ends."""
        history = SocketHistory(caller_id, self)
        try:
            yield history
        finally:
            self._histories.pop(history, None)

    def trim(self, history: SocketHistory) -> None:
        """Mark a history as used, and drop responses until all histories are within the limit.

        The caller with the largest total loses first: its older responses, before the latest one of a connection.
        """
        self._histories.pop(history, None)
        self._histories[history] = None
        while sum(each.size for each in self._histories) > self._max_bytes:
            sizes: dict[str, int] = {}
            for each in self._histories:
                sizes[each.caller_id] = sizes.get(each.caller_id, 0) + each.size
            largest = max(sizes, key=sizes.__getitem__)
            own = [each for each in self._histories if each.caller_id == largest and each.size]
            next((each for each in own if len(each) > 1), own[0]).delete_oldest()


class PendingCallCache:
    """Pending calls of responses that are not stored, of all callers. Evicts the oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_bytes: int = MAX_PENDING_CALL_BYTES) -> None:
        self._entries = BoundedCache[tuple[str, str], PendingCalls](
            max_bytes=max_bytes, max_seconds=PENDING_CALL_SECONDS, clock=clock
        )

    def store(self, caller_id: str, response_id: str, pending: PendingCalls) -> None:
        self._entries.set((caller_id, response_id), pending, len(pending.encode()))

    def find(self, caller_id: str, response_id: str) -> PendingCalls | None:
        return self._entries.get((caller_id, response_id))

    def forget_caller(self, caller_id: str) -> None:
        self._entries.delete_where(lambda key: key[0] == caller_id)
