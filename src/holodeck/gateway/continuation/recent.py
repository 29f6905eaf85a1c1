"""What WebSockets remember of their latest responses, so that a client goes on from them although nobody stores them.

There is a limit to what all of them remember together. Beyond it the caller with the most forgets first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holodeck.gateway.continuation.waiting import PendingCalls
from holodeck.lib.limits import MAX_RECENT_BYTES, MAX_RECENT_RESPONSES
from holodeck.lib.types import record
from holodeck.models.items import Item


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
