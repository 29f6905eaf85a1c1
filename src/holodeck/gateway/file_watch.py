"""Notices that files have changed, by their time, size and identity.

Files are found by their paths each time, so that a file which is replaced by another one counts as changed: an editor
that saves by a rename, or a symbolic link on the way that points elsewhere now, as in a mounted ConfigMap. A change
counts once two looks in a row find the same: before that, a program may still be writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

FileStamps = dict[Path, tuple[int, int, int, int] | None]
"""Time, size, inode and device of each file. None: there is no such file."""


class FileWatch:
    """Compares files with how they were when they were read. It has no task of its own: `find_change` looks once."""

    def __init__(self) -> None:
        self._read: FileStamps = {}
        self._latest: FileStamps = {}

    @property
    def paths(self) -> Collection[Path]:
        return self._read.keys()

    def mark_read(self, stamps: FileStamps) -> None:
        """Watch these files from now on. `stamps`: from before they were read."""
        self._read = stamps
        self._latest = {}

    async def find_change(self) -> bool:
        """Look at the files, in a thread. True when they differ from what was read, and are as at the last look."""
        stamps = await asyncio.to_thread(take_stamps, self._read)
        is_settled, self._latest = stamps == self._latest, stamps
        return is_settled and stamps != self._read


def take_stamps(paths: Collection[Path]) -> FileStamps:
    """The stamps of files as they are now."""
    return {path: _stamp_of(path) for path in paths}


def _stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev
