"""A byte budget that several components share, so that their memory has one common limit.

`ByteBudget` is a counting semaphore over bytes that never waits: `acquire` raises `OverBudgetError`. The component
that acquires bytes releases them; a `Reservation` counts its own bytes and releases them at the end of a `with` block,
or when its owner calls `release`, also after a cancellation. A component that keeps bytes which it could do without
adds a reclaimer, which is asked to release them before bytes are refused to another. Not thread-safe.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holodeck.lib.errors import HoloDeckError


class OverBudgetError(HoloDeckError):
    """The budget has too few free bytes. A later attempt succeeds once other reservations are released."""


class ByteBudget:
    """A limit on the bytes in memory at one time. Without a limit it only counts them."""

    __slots__ = ("_reclaimers", "available", "limit", "released")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.limit = limit
        self.available = limit
        self.released = 0
        """Bytes released so far."""
        self._reclaimers: list[Callable[[int], None]] = []

    def add_reclaimer(self, reclaim: Callable[[int], None]) -> None:
        """Call `reclaim` with the number of missing bytes, to release as many as it can, whenever too few are free."""
        self._reclaimers.append(reclaim)

    def has_room(self, size: int) -> bool:
        """Return whether `size` bytes are free, after what is only kept was released for them."""
        for reclaim in self._reclaimers:
            if size > self.available:
                reclaim(size - self.available)
        return size <= self.available

    @property
    def used(self) -> int:
        """Bytes acquired and not yet released."""
        return self.limit - self.available

    def acquire(self, size: int) -> None:
        """Acquire `size` bytes, or raise `OverBudgetError` and acquire none."""
        if size > self.available and not self.has_room(size):
            raise OverBudgetError(f"{size} bytes exceed the budget: {self.available} of {self.limit} are free")
        self.available -= size

    def release(self, size: int) -> None:
        """Return `size` bytes to the budget."""
        self.available += size
        self.released += size


class Reservation:
    """The bytes of a budget that one component has acquired."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.size = 0

    @property
    def limit(self) -> int:
        """The limit of the whole budget."""
        return self._budget.limit

    def extend(self, size: int) -> None:
        """Acquire `size` more bytes, or raise `OverBudgetError` and change nothing."""
        budget = self._budget
        # As `acquire` does it, which is called for every read of a socket.
        if size > budget.available:
            budget.acquire(size)
        else:
            budget.available -= size
        self.size += size

    def add_existing(self, size: int) -> None:
        """Count bytes that are in memory already, also over the limit: others wait for them to be released."""
        self._budget.available -= size
        self.size += size

    def resize(self, size: int) -> None:
        """Grow or shrink to `size` bytes in total, or raise `OverBudgetError` and change nothing."""
        if size > self.size:
            self.extend(size - self.size)
        else:
            self._budget.available += self.size - size
            self.size = size

    def release(self) -> None:
        """Release all bytes. Idempotent."""
        budget, size, self.size = self._budget, self.size, 0
        budget.available += size
        budget.released += size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
