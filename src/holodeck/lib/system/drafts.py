"""Files that will be, once they are whole: each is a process's own, and goes with the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
