"""Whether a file is still the one that was opened. Deleted or replaced, it can be written to all the same, and is lost
with the process that has it open: SQLite notices that only where it keeps no log beside the file.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holodeck.lib import log
from holodeck.lib.limits import PROGRESS_DELAY

FILE_REPLACED = (
    "The database cannot be used: its file was deleted or replaced while the gateway had it open, and nothing more is "
    "written. Put that very file back. If it is gone for good, copy it and its '-wal' from /proc/PID/fd, as root, "
    "stop the gateway, remove what is left of them, put the copies or the right file in their place and start it again."
)


class ReplacedFileCheck:
    """A file by its name, and what that name meant at first. A look at it takes microseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._was_replaced = False

    def remember_identity(self) -> None:
        """It has just been opened. What is opened later under its name may be another one."""
        if self._identity is None:
            with suppress(OSError):
                self._identity = self._read_identity()

    def check_replaced(self) -> bool:
        """True when what was opened is no longer there; the log hears of it. Where nobody may look, it is there."""
        try:
            is_lost = self._identity is not None and self._read_identity() != self._identity
        except OSError:
            return self._was_replaced
        if is_lost and not self._was_replaced:
            log.error("storage.file_lost", file=self._path, error=FILE_REPLACED)
        elif self._was_replaced and not is_lost:
            log.info("storage.file_back", file=self._path)
        self._was_replaced = is_lost
        return is_lost

    def _read_identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino


_SQLITE_SUFFIXES = ("", "-journal", "-wal", "-shm")  # what SQLite has of one database


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Where this process makes the file. Nothing is left there."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    _remove_draft(draft)
    try:
        yield draft
    finally:
        _remove_draft(draft)


def remove_stale_drafts(path: Path) -> None:
    """Remove what processes that were killed had made of this file."""
    for draft in path.parent.glob(f"{path.name}.*.new"):
        number = draft.name.removeprefix(f"{path.name}.").removesuffix(".new")
        if number.isdecimal() and not _is_process_alive(int(number)):
            with suppress(OSError):  # another user's, or on a disk that is read-only: it is in nobody's way
                _remove_draft(draft)


def _remove_draft(draft: Path) -> None:
    for ending in _SQLITE_SUFFIXES:
        draft.with_name(draft.name + ending).unlink(missing_ok=True)


def _is_process_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return process != os.getpid()  # ours is from a process that had this number before, as 1 in a container


@contextmanager
def warn_if_waiting(file: Path | str, *, timeout: float | None = None) -> Iterator[None]:
    """While another process may keep us from a file; `timeout` is how many seconds that is borne."""
    bound = "until it is done" if timeout is None else f"for up to {timeout:g} s"
    notice = f"Waiting for {file}, to which another process is writing, {bound}."

    def log_waiting() -> None:
        log.warning("storage.waiting", file=file, notice=notice)

    timer = threading.Timer(PROGRESS_DELAY, log_waiting)  # whoever waits is held by a database or by the kernel
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_OWNER_ONLY = 0o600


def create_private_file(path: Path) -> None:
    """Make an empty file that only its owner may read; one that is there stays as its owner has set it."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY))


_KINDS = {
    stat.S_IFDIR: "this is a folder, not a file",
    stat.S_IFIFO: "this is a pipe, not a file",
    stat.S_IFCHR: "this is a device, not a file",
    stat.S_IFBLK: "this is a device, not a file",
    stat.S_IFSOCK: "this is a socket, not a file",
}


class NotRegularFileError(OSError):
    """The path leads to a folder, pipe, device or socket."""

    def __str__(self) -> str:
        return str(self.strerror)


def read_regular_file(path: Path, limit: int) -> bytes:
    """Return at most `limit` bytes of a regular file.

    Raises `NotRegularFileError` for anything else, and `OSError` where it cannot be opened. Never waits for a writer.
    """
    # O_NONBLOCK: opening a pipe would wait for its other end. O_NOCTTY: a terminal must not become this process's.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        kind = stat.S_IFMT(os.fstat(handle).st_mode)
        if kind != stat.S_IFREG:
            raise NotRegularFileError(errno.EINVAL, _KINDS.get(kind, "this is not a regular file"))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(handle)
