"""What WebSockets remember of their latest responses, so that a client goes on from them although nobody stores them.

There is a limit to what all of them remember together. Beyond it the caller with the most forgets first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holodeck.gateway.waiting import Waiting
from holodeck.lib.limits import MAX_RECENT_BYTES, MAX_RECENT_RESPONSES
from holodeck.lib.record import record
from holodeck.models.items import Item


@record
class Kept:
    """A response with all that came before it."""

    items: tuple[Item, ...]
    size: int
    """Their bytes."""
    waiting: Waiting
    is_chain: bool
    """Whether all of it is stored."""


class Recent:
    """What one connection remembers of its own latest responses, those that nobody stores included."""

    def __init__(self, owner: str, memory: Memory) -> None:
        self.owner = owner
        self.size = 0
        self._memory = memory
        self._kept: dict[str, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, response_id: str, kept: Kept) -> None:
        """Remember one more. Only the latest may be large: it may always be gone on from."""
        self._kept[response_id] = kept
        self.size += kept.size
        while len(self._kept) > MAX_RECENT_RESPONSES or (len(self._kept) > 1 and self.size > MAX_RECENT_BYTES):
            self.forget_oldest()
        self._memory.grew(self)

    def get(self, response_id: str) -> Kept | None:
        return self._kept.get(response_id)

    def forget(self, response_id: str) -> None:
        kept = self._kept.pop(response_id, None)
        self.size -= 0 if kept is None else kept.size

    def forget_oldest(self) -> None:
        self.forget(next(iter(self._kept)))


class Memory:
    """That of all connections."""

    def __init__(self, most: int) -> None:
        """`most`: bytes."""
        self._most = most
        self._recents: dict[Recent, None] = {}
        """In the order in which they were last used."""

    @contextmanager
    def of_one(self, owner: str) -> Iterator[Recent]:
        """That of a connection, for as long as it lasts."""
        recent = Recent(owner, self)
        try:
            yield recent
        finally:
            self._recents.pop(recent, None)

    def grew(self, recent: Recent) -> None:
        """Forget what is too much: older responses before those that a client goes on from next."""
        self._recents.pop(recent, None)
        self._recents[recent] = None
        while sum(each.size for each in self._recents) > self._most:
            sizes: dict[str, int] = {}
            for each in self._recents:
                sizes[each.owner] = sizes.get(each.owner, 0) + each.size
            most = max(sizes, key=sizes.__getitem__)
            own = [each for each in self._recents if each.owner == most and each.size]
            next((each for each in own if len(each) > 1), own[0]).forget_oldest()
