"""A byte budget that several components share, so that what all of them hold in memory has one limit.

A counting semaphore over bytes that never waits: `acquire` raises `OverBudgetError`. Whatever is acquired is released
by the same component; a `Reservation` remembers how much that is, and releases it at the end of a `with` block, or
when its owner calls `release`, also after a cancellation. Not for use by several threads.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from holodeck.lib.errors import HoloDeckError


class OverBudgetError(HoloDeckError):
    """There is no room for more bytes now; what is in memory has to go first."""


class ByteBudget:
    """Bytes that may be in memory at once. Without a limit it only counts."""

    __slots__ = ("available", "limit")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.limit = limit
        self.available = limit

    @property
    def used(self) -> int:
        """Bytes that are acquired now."""
        return self.limit - self.available

    def acquire(self, size: int) -> None:
        """Take so many bytes. Raises `OverBudgetError`, and then takes none."""
        if size > self.available:
            raise OverBudgetError(f"there is no room for {size} bytes: {self.available} of {self.limit} are left")
        self.available -= size

    def release(self, size: int) -> None:
        """So many bytes are not in memory any more."""
        self.available += size


class Reservation:
    """The bytes of a budget that one component holds."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.size = 0

    @property
    def limit(self) -> int:
        """Of the whole budget."""
        return self._budget.limit

    def extend(self, size: int) -> None:
        """Hold so many bytes more. Raises `OverBudgetError`, and then holds what it held."""
        self._budget.acquire(size)
        self.size += size

    def resize(self, size: int) -> None:
        """Hold this many bytes in all. Raises `OverBudgetError`, and then holds what it held."""
        self.extend(size - self.size)

    def release(self) -> None:
        """Hold nothing. May be called twice."""
        self._budget.release(self.size)
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
