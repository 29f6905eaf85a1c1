"""Notice of a lost end of the write-ahead log.

SQLite reads its log up to the first frame that is not whole. What a loss of power, a broken disk or a forgotten `-wal`
file takes from the end is gone without an error, and looks as if it had never been stored. So the number of the last
commit is known at two places: in a row of the database, and in a file beside it (`holodeck.db.tail`), which is written
after the row was committed. A database whose number is behind that of the file has lost commits.

Both are written at most once a second, by `mark`: what was stored in the last second before a loss may be missing
without notice. The file is not synced: a loss of power may take it as well.

A loss is reported until an operator acknowledges it by deleting the file. Until then the file is not changed.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from holodeck.lib import log
from holodeck.storage.jobs import Connection

TAIL_LOST = (
    "The database has lost what was stored last: it is older than '{file}' says. Look for its '-wal' file, or restore "
    "a newer copy. To go on without what is lost, delete '{file}'."
)
LOST_REASON = "the database has lost what was stored last"
"""The public reason of the same error."""
_OWNER_ONLY = 0o600
_COUNT_MARK = "INSERT INTO tail (id, number) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET number = number + 1"
_READ_MARK = "SELECT COALESCE(MAX(number), 0) FROM tail"


class Tail:
    """The number of the last commit of one database, in the database and in the file beside it."""

    def __init__(self, database: Path | None) -> None:
        """`database`: None for one in memory, which has no file."""
        self._path = None if database is None else database.with_name(f"{database.name}.tail")
        self._is_checked = False
        self._is_failing = False
        self.loss = ""
        """What is to be said of a loss. Empty: none is known, or it is acknowledged."""

    def check_loss(self, db: sqlite3.Connection) -> None:
        """Compare the numbers of a database that was just opened, the first time."""
        if self._path is None or self._is_checked:
            return
        self._is_checked = True
        # The file first: another process may commit between the two.
        expected = self._read_file()
        found = db.execute(_READ_MARK).fetchone()[0]
        if found < expected:
            self.loss = TAIL_LOST.format(file=self._path)
            log.error("storage.tail_lost", file=self._path, found=found, expected=expected, error=self.loss)

    def check_acknowledged(self) -> None:
        """End the report of a loss if an operator has deleted the file."""
        if self.loss and self._path is not None and not self._path.exists():
            self.loss = ""
            log.info("storage.tail_acknowledged", file=self._path)

    async def count_mark(self, db: Connection) -> int:
        """Count one more in the database, in the open transaction, and return the number for `write_mark`. A job."""
        await db.write(_COUNT_MARK)
        row = await db.fetch_row(_READ_MARK)
        return 0 if row is None else int(row[0])

    def write_mark(self, number: int) -> None:
        """Write a number that is committed to the file. One that cannot be written is left to the next time."""
        if self._path is None or self.loss:
            return
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, _OWNER_ONLY)
            try:
                # Of one length and in one write: there is no moment with half a number.
                os.pwrite(handle, b"%020d\n" % number, 0)
            finally:
                os.close(handle)
        except OSError as error:
            self._report_failure(error)
        else:
            self._is_failing = False

    def _read_file(self) -> int:
        """Return the number in the file. 0 if there is none, or no number in it."""
        try:
            return int(self._path.read_bytes()) if self._path is not None else 0
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            self._report_failure(error)
            return 0

    def _report_failure(self, error: Exception) -> None:
        """Log, once until it is written again, that a loss would not be noticed."""
        if not self._is_failing:
            self._is_failing = True
            log.warning("storage.tail_failed", file=self._path, error=error)
