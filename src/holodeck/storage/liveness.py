"""Which processes that share a folder are there: each holds a lock on a file of its own for as long as it lives.

The kernel lets go of the lock when a process is killed, so no clock is asked and nothing is beaten.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK_FILE = (
    "door"  # held while somebody comes in or clears away, so that a file nobody has locked yet is not cleared away
)

_LOCK_FILE_MODE = 0o666  # less the umask: whoever may write to the folder may look at who is there; the files are empty


class FileLiveness:
    """This process's own lock, in a folder where others look for it. Everything is quick; `OSError` says what fails."""

    def __init__(self, folder: Path) -> None:
        self.number = secrets.randbelow(2**31 - 1) + 1
        self._folder = folder
        self._handle: int | None = None

    def start(self) -> None:
        """Be there, from now on. What the dead have left is cleared away."""
        if self._handle is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock_folder():
            self._remove_stale_files()
            handle = os.open(self._lock_file_of(self.number), os.O_RDWR | os.O_CREAT, _LOCK_FILE_MODE)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                raise
            self._handle = handle

    def stop(self) -> None:
        """Be gone. Done twice, it is done once."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._lock_file_of(self.number).unlink(missing_ok=True)
            os.close(handle)

    def is_alive(self, number: int) -> bool:
        """Whether the process of this number is alive; it may be this one."""
        if number == self.number:
            return self._handle is not None
        return _is_locked(self._lock_file_of(number))

    def _lock_file_of(self, number: int) -> Path:
        return self._folder / str(number)

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        handle = os.open(self._folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT, _LOCK_FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _remove_stale_files(self) -> None:
        for file in self._folder.iterdir():
            if file.name.isdecimal() and not _is_locked(file):
                with suppress(PermissionError):  # another user's: unlocked, it says no more than if it were gone
                    file.unlink(missing_ok=True)


class SoleLiveness:
    """The presence of the only process there can be, for what no other one can open."""

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
    except PermissionError:  # somebody's who cannot be asked: nothing of theirs is taken from them
        return True
    try:
        # Shared: two that look at the same file at once do not take each other for its owner.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)
