"""A connection of the serving thread itself: a small row that nobody else waits for is written on the spot.

Handing a row to the writing thread, waking it and hearing of it costs an eighth of a plain request. Among many requests
that is shared, and so is the transaction; for one that is alone it is all there is.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Sequence

from holodeck.lib.limits import AT_HAND_BYTES, AT_HAND_IN_A_ROW, AT_HAND_REST, AT_HAND_SECONDS


class AtHand:
    """Never waits for another writer, and leaves the long work of the file to the writing thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._in_a_row = 0
        self._rests_until = 0.0

    def use(self, connection: sqlite3.Connection) -> None:
        """From now on. It may come from another thread, which does not use it any more."""
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._connection = connection

    def add(self, sql: str, values: Sequence[object]) -> bool:
        """Whether one row was added. If not, nothing was, for whatever reason: the writing thread waits or explains."""
        if self._connection is None or sum(len(value) for value in values if type(value) is bytes) > AT_HAND_BYTES:
            return False
        self._in_a_row += 1
        if self._in_a_row > AT_HAND_IN_A_ROW:
            self._in_a_row = 0  # the writing thread looks whether the journal has grown long
            return False
        began = self._clock()
        if began < self._rests_until:
            return False
        try:
            is_added = self._connection.execute(sql, values).rowcount == 1
        except sqlite3.Error:
            return False
        if (now := self._clock()) - began > AT_HAND_SECONDS:
            self._rests_until = now + AT_HAND_REST  # a slow disk must not hold up who comes next
        return is_added

    def pause(self, *, is_over: bool) -> None:
        """Leave all rows to the writing thread, or no longer."""
        self._rests_until = 0.0 if is_over else math.inf

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
