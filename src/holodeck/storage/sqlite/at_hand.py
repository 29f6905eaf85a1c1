"""A connection of the serving thread itself: a small row that nobody else waits for is written on the spot.

Handing a row to the writing thread, waking it and hearing of it costs an eighth of a plain request. Among many requests
that is shared, and so is the transaction; for one that is alone it is all there is.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Sequence

from holodeck.lib.limits import INLINE_WRITE_BYTES, INLINE_WRITE_PAUSE, INLINE_WRITE_SECONDS, INLINE_WRITES_IN_A_ROW


class InlineWriter:
    """Never waits for another writer, and leaves the long work of the file to the writing thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._consecutive = 0
        self._paused_until = 0.0

    def attach(self, connection: sqlite3.Connection) -> None:
        """From now on. It may come from another thread, which does not use it any more."""
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._connection = connection

    def insert(self, sql: str, values: Sequence[object]) -> bool:
        """Whether one row was added. If not, nothing was, for whatever reason: the writing thread waits or explains."""
        if self._connection is None or sum(len(value) for value in values if type(value) is bytes) > INLINE_WRITE_BYTES:
            return False
        self._consecutive += 1
        if self._consecutive > INLINE_WRITES_IN_A_ROW:
            self._consecutive = 0  # the writing thread looks whether the journal has grown long
            return False
        began = self._clock()
        if began < self._paused_until:
            return False
        try:
            is_added = self._connection.execute(sql, values).rowcount == 1
        except sqlite3.Error:
            return False
        if (now := self._clock()) - began > INLINE_WRITE_SECONDS:
            self._paused_until = now + INLINE_WRITE_PAUSE  # a slow disk must not hold up who comes next
        return is_added

    def pause(self, *, is_over: bool) -> None:
        """Leave all rows to the writing thread, or no longer."""
        self._paused_until = 0.0 if is_over else math.inf

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
