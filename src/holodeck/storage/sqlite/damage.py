"""Damage in a SQLite file: what of it a read can tell, and a check of the whole file for what no read can.

A page that the disk has lost or changed is an error only where SQLite cannot make sense of it. Where it can, an index
misses a row, which looks as if the row had never been, or a value has other bytes. So every value that is read is
looked at, and that a row is missing is believed only after a recent check of the file has found nothing wrong.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from holodeck.lib import log

# Seconds for which a check of a database file is believed.
FILE_CHECK_AGE = 300.0
# For one check; a file that takes longer is checked as far as that.
FILE_CHECK_SECONDS = 120.0
# Times as long as a check took, until the next.
FILE_CHECK_SPACING = 30.0
# For a check, by who asks for what does not seem to be there.
FILE_CHECK_WAIT = 10.0


FILE_DAMAGED = (
    "The database cannot be used: its file is damaged, and nothing more is written. Stop the gateway, then restore a "
    "backup or recover what is left: see 'A damaged database' in deploy/README.md."
)
_STEPS_BETWEEN_CHECKS = 10_000  # of SQLite's machine, between two looks at the clock


def check_json(data: object, row: str) -> bytes:
    """A stored value as it was written. Raises `sqlite3.DatabaseError` for bytes that are no JSON text, naming `row`.

    Ten times as fast as parsing it. JSON is UTF-8, and has no zeros, of which a lost page is full.
    """
    if not isinstance(data, bytes) or b"\0" in data:
        raise _malformed_error(row)
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError:
        raise _malformed_error(row) from None
    return data


def _malformed_error(row: str) -> sqlite3.DatabaseError:
    return sqlite3.DatabaseError(f"malformed value in {row}")


class FileCheck:
    """Checks one file, on a thread and a connection of its own: at the start, and again before a miss is believed."""

    def __init__(self, path: Path | None) -> None:
        """None: there is no file, and nothing to check."""
        self._path = path
        self._task: asyncio.Task[None] | None = None
        self._next_check = float("-inf")
        self._is_closing = False
        self.damage = ""
        """What is wrong with the file, once that is known; it stays until the process ends."""

    def report(self, damage: str) -> None:
        """Note that the file is damaged, and log it. From any thread."""
        if not self.damage:
            self.damage = damage
            log.error("storage.file_damaged", file=self._path, found=damage, error=FILE_DAMAGED)

    def start(self) -> None:
        """Check the file unless it was checked a short while ago."""
        if self._path is None or self.damage or self._is_closing:
            return
        is_running = self._task is not None and not self._task.done()
        if time.monotonic() > self._next_check and not is_running:
            self._task = asyncio.create_task(asyncio.to_thread(self._check_file), name="check the database")

    async def wait_checked(self) -> None:
        """Wait for a recent check, but not for ever: a large file takes longer than a client waits."""
        self.start()
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=FILE_CHECK_WAIT)

    async def close(self) -> None:
        self._is_closing = True
        if self._task is not None:
            await asyncio.wait({self._task})

    def _check_file(self) -> None:
        began = time.monotonic()
        until = began + FILE_CHECK_SECONDS
        try:
            connection = sqlite3.connect(f"file:{quote(str(self._path))}?mode=rw", uri=True, isolation_level=None)
            try:
                connection.execute("PRAGMA query_only = ON")
                connection.set_progress_handler(
                    lambda: self._is_closing or time.monotonic() > until, _STEPS_BETWEEN_CHECKS
                )
                (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
                if found != "ok":
                    self.report(str(found).splitlines()[-1])
            finally:
                connection.close()
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                self.report(str(error))
            else:  # it took too long, or another process has the file for itself
                log.debug("storage.file_not_checked", file=self._path, error=error)
        finally:
            # A large file is checked less often, so that checks take a small part of the machine.
            took = time.monotonic() - began
            self._next_check = began + max(FILE_CHECK_AGE, took * FILE_CHECK_SPACING)


def is_damage(error: Exception) -> bool:
    """Whether an error says that what is in the file is not what was written."""
    text = str(error)
    return isinstance(error, sqlite3.DatabaseError) and ("malformed" in text or text.startswith("Could not decode"))
