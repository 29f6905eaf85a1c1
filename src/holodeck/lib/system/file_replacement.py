"""Replacement of a file that other programs use, too: whole or not at all, with its mode, and with a copy beside it.

A file behind a symbolic link is replaced where it is, and the link stays. `lock_folder` orders processes of ours that
change files of one folder; it leaves nothing in the folder. All functions raise `OSError`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Seconds to wait for another process, whose write takes milliseconds.
LOCK_TIMEOUT = 10.0
_LOCK_POLL = 0.02
_NEW_FILE_MODE = 0o600
# Copies of one file. More is a sign of a program that runs in a loop.
MAX_BACKUPS = 1000


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
