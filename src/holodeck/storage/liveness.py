"""Liveness of the processes that share a folder, by file locks.

Each process has a random number, and holds an exclusive lock on a file of that name for as long as it lives. Another
process is alive when its file is locked. The kernel releases the lock when a process is killed, so there are neither
heartbeats nor comparisons of clocks.

`start` removes the files of dead processes. A lock on the whole folder serializes that with the creation of files, so
that a file that is created and not locked yet is not removed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holodeck.lib.system.files import make_private_folder, open_private_file

# The file whose lock is the lock on the whole folder.
_FOLDER_LOCK_FILE = "lock"


class FileLiveness:
    """The lock of this process, and checks of the locks of others. No method waits for long; all raise `OSError`."""

    def __init__(self, folder: Path) -> None:
        self.number = secrets.randbelow(2**31 - 1) + 1
        self._folder = folder
        self._handle: int | None = None

    def start(self) -> None:
        """Acquire the lock of this process, and remove the files of dead ones. Does nothing the second time."""
        if self._handle is not None:
            return
        make_private_folder(self._folder)
        with self._lock_folder():
            self._remove_stale_files()
            handle = open_private_file(self._lock_file_of(self.number), os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                raise
            self._handle = handle

    def stop(self) -> None:
        """Release the lock and remove its file. Does nothing the second time."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._lock_file_of(self.number).unlink(missing_ok=True)
            os.close(handle)

    def is_alive(self, number: int) -> bool:
        """Return whether the process of this number is alive; it may be this one."""
        if number == self.number:
            return self._handle is not None
        return _is_locked(self._lock_file_of(number))

    def _lock_file_of(self, number: int) -> Path:
        return self._folder / str(number)

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        handle = open_private_file(self._folder / _FOLDER_LOCK_FILE, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _remove_stale_files(self) -> None:
        for file in self._folder.iterdir():
            if file.name.isdecimal() and not _is_locked(file):
                # The file may belong to another user. Unlocked, it means the same as a missing one.
                with suppress(PermissionError):
                    file.unlink(missing_ok=True)


class SoleLiveness:
    """Liveness where no other process can exist, such as for a database in memory."""

    def __init__(self) -> None:
        self.number = secrets.randbelow(2**31 - 1) + 1

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def is_alive(self, number: int) -> bool:
        return number == self.number


def _is_locked(file: Path) -> bool:
    try:
        handle = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:
        # The lock of another user cannot be checked. Counting the process as alive takes nothing away from it.
        return True
    try:
        # A shared lock, so that two processes that check the same file at once do not see each other's lock.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)
