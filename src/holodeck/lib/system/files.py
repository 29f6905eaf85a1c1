"""Whether a file is still the one that was opened. Deleted or replaced, it can be written to all the same, and is lost
with the process that has it open: SQLite notices that only where it keeps no log beside the file.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from holodeck.lib import log

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
