"""Detection of damage in a SQLite file by a check of the whole file.

SQLite raises an error for a lost or changed page only where it cannot interpret the page. Otherwise a value may have
other bytes, which its checksum tells (`checked_values`), or an index may miss a row, which then looks as if it had
never been written. Therefore a missing row is reported as missing only after a recent check of the file (`FileCheck`)
that found no damage.

Damage is final for the process: the store writes nothing more until an operator has restored the file and restarted
the gateway.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from holodeck.lib import log
from holodeck.lib.tasks import TaskSet

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
