"""A cache in memory with limits of bytes, entries and age, which evicts its oldest entries."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    value: V
    size: int
    stored_at: float


class BoundedCache(Generic[K, V]):
    """Entries in the order in which they were stored or refreshed. The caller gives the size of each.

    When a limit is exceeded, entries are deleted from the oldest on.
    """

    def __init__(
        self,
        *,
        max_bytes: float = math.inf,
        max_entries: float = math.inf,
        max_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        keeps_latest: bool = False,
        on_delete: Callable[[K, V], None] | None = None,
    ) -> None:
        """`max_seconds`: age at which an entry expires.

        `keeps_latest`: the latest entry is stored even if it alone is larger than `max_bytes`.
        `on_delete` is called for each entry that is deleted, replaced or evicted.
        """
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._max_seconds = max_seconds
        self._clock = clock
        self._keeps_latest = keeps_latest
        self._on_delete = on_delete
        self._entries: dict[K, _Entry[V]] = {}
        self.size = 0
        """The sizes of all entries together."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None or self._is_expired(entry) else entry.value

    def set(self, key: K, value: V, size: int) -> bool:
        """Store an entry as the latest one, in place of an older one. Returns False if it is too large to be stored."""
        self.delete(key)
        if size > self._max_bytes and not self._keeps_latest:
            return False
        self._entries[key] = _Entry(value, size, self._clock())
        self.size += size
        while self._is_over_limit():
            self.delete_oldest()
        return True

    def refresh(self, key: K) -> None:
        """Make an entry the latest one. It must be there."""
        self._entries[key] = self._entries.pop(key)._replace(stored_at=self._clock())

    def delete(self, key: K) -> None:
        """Delete an entry, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.size -= entry.size
        if self._on_delete is not None:
            self._on_delete(key, entry.value)

    def delete_oldest(self) -> None:
        self.delete(next(iter(self._entries)))

    def delete_where(self, is_deleted: Callable[[K], bool]) -> None:
        """Delete the entries of these keys."""
        for key in [key for key in self._entries if is_deleted(key)]:
            self.delete(key)

    def clear(self) -> None:
        while self._entries:
            self.delete_oldest()

    def _is_over_limit(self) -> bool:
        # An entry that is too large by itself is only there if it is to be kept.
        if len(self._entries) > self._max_entries or (self.size > self._max_bytes and len(self._entries) > 1):
            return True
        oldest = next(iter(self._entries.values()), None)
        return oldest is not None and self._is_expired(oldest)

    def _is_expired(self, entry: _Entry[V]) -> bool:
        return entry.stored_at <= self._clock() - self._max_seconds
