"""Reading files that a person or a configuration names. Only regular files are read, so that reading never waits.

A named pipe, a terminal or a device blocks its reader, or never ends. Symbolic links are followed: Kubernetes mounts
secrets as links to regular files.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

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
