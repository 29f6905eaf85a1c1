"""Detection of damage in a SQLite file by a check of the whole file, and of a lost end of its write-ahead log.

SQLite raises an error for a lost or changed page only where it cannot interpret the page. Otherwise a value may have
other bytes, which its checksum tells (`storage.jobs`), or an index may miss a row, which then looks as if it had
never been written. Therefore a missing row is reported as missing only after a recent check of the file (`FileCheck`)
that found no damage.

Damage is final for the process: the store writes nothing more until an operator has restored the file and restarted
the gateway.

SQLite reads its write-ahead log up to the first frame that is not whole. What a loss of power, a broken disk or a
forgotten `-wal` file takes from the end is gone without an error, and looks as if it had never been stored. So the
number of the last commit is known at two places (`Tail`): in a row of the database, and in a file beside it
(`holodeck.db.tail`), which is written after the row was committed. A database whose number is behind that of the file
has lost commits. Both are written at most once a second, by `mark`: what was stored in the last second before a loss
may be missing without notice. The file is not synced: a loss of power may take it as well. A loss is reported until an
operator acknowledges it by deleting the file. Until then the file is not changed.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from holodeck.lib import log
from holodeck.lib.tasks import TaskSet
from holodeck.storage.jobs import Connection

# Seconds after the start of a check before the next one, at least.
FILE_CHECK_AGE = 300.0
# Longest time of one check, in seconds. The rest of a larger file is not checked.
FILE_CHECK_SECONDS = 120.0
# Pause between two checks, as a multiple of the duration of the last one: checks use a small part of the machine.
FILE_CHECK_SPACING = 30.0
# Seconds that a request for a missing row waits for a check: a large file takes longer than a client waits.
FILE_CHECK_WAIT = 10.0

FILE_DAMAGED = (
    "The database cannot be used: its file is damaged, and nothing more is written. Stop the gateway, then restore a "
    "backup or recover what is left: see 'A damaged file' in docs/operate/backup-and-restore.md."
)
DAMAGED_REASON = "the file of the database is damaged"
"""The public reason of the same error."""
# Instructions of SQLite's virtual machine between two calls of the progress handler.
_STEPS_BETWEEN_CHECKS = 10_000

TAIL_LOST = (
    "The database has lost what was stored last: it is older than '{file}' says. Look for its '-wal' file, or restore "
    "a newer copy. To go on without what is lost, delete '{file}'."
)
LOST_REASON = "the database has lost what was stored last"
"""The public reason of the same error."""
_OWNER_ONLY = 0o600
_COUNT_MARK = "INSERT INTO tail (id, number) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET number = number + 1"
_READ_MARK = "SELECT COALESCE(MAX(number), 0) FROM tail"


class FileCheck:
    """Runs SQLite's integrity check of one file, on a thread and a connection of its own, one check at a time."""

    def __init__(self, path: Path | None) -> None:
        """`path`: None for a database in memory, which is never checked."""
        self._path = path
        self._tasks = TaskSet()
        self._next_check = float("-inf")
        self._is_closing = False
        self.damage = ""
        """The first damage that was reported; never reset."""

    def report(self, damage: str) -> None:
        """Set `damage` and log it, the first time. Called from any thread."""
        if not self.damage:
            self.damage = damage
            log.error("storage.file_damaged", file=self._path, found=damage, error=FILE_DAMAGED)

    def start(self) -> None:
        """Start a check, unless one is in progress or the last one is recent."""
        if self._path is None or self.damage or self._is_closing or self._tasks:
            return
        if time.monotonic() > self._next_check:
            self._tasks.start(asyncio.to_thread(self._check_file), name="check the database")

    async def wait_checked(self) -> None:
        """Start a check if none is recent, and wait for it, at most `FILE_CHECK_WAIT` seconds."""
        self.start()
        await self._tasks.wait(FILE_CHECK_WAIT)

    async def close(self) -> None:
        """Interrupt a check, and wait until its thread has closed its connection."""
        self._is_closing = True
        await self._tasks.wait(FILE_CHECK_SECONDS)

    def _check_file(self) -> None:
        started_at = time.monotonic()
        deadline = started_at + FILE_CHECK_SECONDS
        try:
            connection = sqlite3.connect(f"file:{quote(str(self._path))}?mode=rw", uri=True, isolation_level=None)
            try:
                connection.execute("PRAGMA query_only = ON")
                connection.set_progress_handler(
                    lambda: self._is_closing or time.monotonic() > deadline, _STEPS_BETWEEN_CHECKS
                )
                (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
                if found != "ok":
                    self.report(str(found).splitlines()[-1])
            finally:
                connection.close()
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                self.report(str(error))
            else:
                # The check was interrupted or took too long, or another process has locked the file.
                log.debug("storage.file_not_checked", file=self._path, error=error)
        finally:
            duration = time.monotonic() - started_at
            self._next_check = started_at + max(FILE_CHECK_AGE, duration * FILE_CHECK_SPACING)


def is_damage(error: Exception) -> bool:
    """Return whether an error of SQLite reports damage of the file."""
    text = str(error)
    return isinstance(error, sqlite3.DatabaseError) and ("malformed" in text or text.startswith("Could not decode"))


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
            # Opened each time, once a second: an operator may have deleted it, and a handle would go on with that one.
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
