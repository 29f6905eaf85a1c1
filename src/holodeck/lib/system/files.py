"""Files that several processes may use: drafts, private files, regular files, and files replaced while open.

- `read_regular_file` reads a bounded part of a file, and refuses folders, pipes, devices and sockets. -
`make_private_folder`, `open_private_file`, `create_private_file` and `replace_private_file` make what only its owner
can read, whatever the umask of the process: everything that is stored for a user is made by them. - `draft_of` provides
a path at which one process builds a SQLite file before it is moved into place; `remove_stale_drafts` removes those of
processes that were killed. - `warn_if_waiting` logs that a lock of another process delays this one. -
`ReplacedFileCheck` detects that an open file was deleted or replaced. Writes to such a file succeed and are lost with
the process that has it open; SQLite detects that only without a write-ahead log.

A file that other programs use, too, is replaced whole or not at all, with its mode, and with a copy beside it. One
behind a symbolic link is replaced where it is, and the link stays. `lock_folder` orders processes of ours that change
files of one folder; it leaves nothing in the folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from holodeck.lib import log
from holodeck.lib.limits import PROGRESS_DELAY

FILE_REPLACED = (
    "The database cannot be used: its file was deleted or replaced while the gateway had it open, and nothing more is "
    "written. Put that very file back. If it is gone for good, copy it and its '-wal' from /proc/PID/fd, as root, "
    "stop the gateway, remove what is left of them, put the copies or the right file in their place and start it again."
)
_OWNER_ONLY = 0o600
_OWNER_FOLDER = 0o700
# The files of one SQLite database.
_SQLITE_SUFFIXES = ("", "-journal", "-wal", "-shm")
_KINDS = {
    stat.S_IFDIR: "this is a folder, not a file",
    stat.S_IFIFO: "this is a pipe, not a file",
    stat.S_IFCHR: "this is a device, not a file",
    stat.S_IFBLK: "this is a device, not a file",
    stat.S_IFSOCK: "this is a socket, not a file",
}
# Seconds to wait for another process, whose write takes milliseconds.
LOCK_TIMEOUT = 10.0
_LOCK_POLL = 0.02
_NEW_FILE_MODE = 0o600
# Copies of one file. More is a sign of a program that runs in a loop.
MAX_BACKUPS = 1000


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


def user_cache_folder() -> Path:
    """Return the folder of files that can be made again: `$XDG_CACHE_HOME/holodeck`, else `~/.cache/holodeck`."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache") / "holodeck"


def user_state_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of what a user's runs leave behind, which may not exist yet.

    It is `$HOLODECK_STATE`, else `$XDG_STATE_HOME/holodeck`, else `~/.local/state/holodeck`.
    """
    folder = environ.get("HOLODECK_STATE")
    if folder:
        return Path(folder).expanduser()
    return Path(environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "holodeck"


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner can enter, and each missing one above it. Existing ones are not changed."""
    if path.is_dir():
        return
    make_private_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=_OWNER_FOLDER)
        path.chmod(_OWNER_FOLDER)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def open_private_file(path: Path, flags: int) -> int:
    """Open a file with these flags, and return its descriptor. A missing one is created, for its owner only.

    The permissions of an existing file are not changed. Raises `FileExistsError` for one if the flags have `O_EXCL`.
    """
    flags |= os.O_CLOEXEC | os.O_CREAT
    try:
        handle = os.open(path, flags | os.O_EXCL, _OWNER_ONLY)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        # A link to a missing file exists as well.
        return os.open(path, flags, _OWNER_ONLY)
    # A umask may have taken rights from the owner, too.
    os.fchmod(handle, _OWNER_ONLY)
    return handle


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read. The permissions of an existing file are not changed."""
    with suppress(FileExistsError):
        os.close(open_private_file(path, os.O_WRONLY | os.O_EXCL))


def replace_private_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole, or make it, for its owner only. Readers see the old content or the new one."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    handle = open_private_file(draft, os.O_WRONLY | os.O_EXCL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Provide the path at which this process builds the file. The draft is removed before and after the block."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    _remove_draft(draft)
    try:
        yield draft
    finally:
        _remove_draft(draft)


def remove_stale_drafts(path: Path) -> None:
    """Remove drafts of this file whose processes have ended."""
    for draft in path.parent.glob(f"{path.name}.*.new"):
        number = draft.name.removeprefix(f"{path.name}.").removesuffix(".new")
        if number.isdecimal() and not _is_process_alive(int(number)):
            # A draft of another user or on a read-only disk stays, and does no harm.
            with suppress(OSError):
                _remove_draft(draft)


@contextmanager
def warn_if_waiting(file: Path | str, *, timeout: float | None = None) -> Iterator[None]:
    """Log a warning if the block, which waits for another process's lock on `file`, takes over `PROGRESS_DELAY`.

    `timeout`: seconds after which the wait inside the block ends, for the text of the warning; None: unlimited.
    """
    bound = "until it is done" if timeout is None else f"for up to {timeout:g} s"
    notice = f"Waiting for {file}, to which another process is writing, {bound}."

    def log_waiting() -> None:
        log.warning("storage.waiting", file=file, notice=notice)

    # A thread: the caller is blocked in a database or in the kernel.
    timer = threading.Timer(PROGRESS_DELAY, log_waiting)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class ReplacedFileCheck:
    """Compares the file at a path with the one that was opened there. A check takes microseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._was_replaced = False

    def remember_identity(self) -> None:
        """Record the file that was just opened. Only the first call counts: a later file may be a replacement."""
        if self._identity is None:
            with suppress(OSError):
                self._identity = self._read_identity()

    def check_replaced(self) -> bool:
        """Return whether the opened file is no longer at its path, and log each change.

        Returns the last result if the path cannot be examined.
        """
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
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_dev, status.st_ino


def _remove_draft(draft: Path) -> None:
    for suffix in _SQLITE_SUFFIXES:
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _is_process_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        # A process of another user.
        return True
    # A draft with our own number is from an earlier process with the same one, such as 1 in a container.
    return process != os.getpid()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes that use this lock from changing files of the folder. Raises `TimeoutError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    end = time.monotonic() + LOCK_TIMEOUT
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(errno.ETIMEDOUT, "another process changes it and does not end") from None
                time.sleep(_LOCK_POLL)
        yield
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file, or make it, private to its owner. The mode of an existing one is kept."""
    real = path.resolve()
    mode = _NEW_FILE_MODE
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(real.stat().st_mode)
        # A file that its owner has made read-only stays as it is, although its folder would allow it.
        if not os.access(real, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(real))
    draft = real.with_name(f".{real.name}.{secrets.token_hex(8)}.new")
    _write_new(draft, content, mode)
    try:
        draft.replace(real)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def make_backup(path: Path, content: bytes) -> Path:
    """Write the content to a new file beside the file: `NAME.bak`, or `NAME.bak.2` and so on. An older one stays."""
    real = path.resolve()
    mode = stat.S_IMODE(real.stat().st_mode)
    for number in range(1, MAX_BACKUPS + 1):
        backup = real.with_name(f"{real.name}.bak" + (f".{number}" if number > 1 else ""))
        try:
            _write_new(backup, content, mode)
        except FileExistsError:
            continue
        return backup
    raise FileExistsError(errno.EEXIST, f"there are {MAX_BACKUPS} copies already", str(real))


def _write_new(path: Path, content: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _NEW_FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
