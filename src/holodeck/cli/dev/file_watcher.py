"""A watcher of source files, which polls their modification times.

`FileWatcher.run` scans in a thread, so that a slow file system does not block the event loop, and calls `on_change` in
the event loop. Several files that are saved together are one change: it is reported when one scan after it has found
nothing new. Folders of version control, packages and caches are left out. The number of files is bounded; the summary
of the first scan says when the bound was reached.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holodeck.lib.record import record

# Seconds between two scans: soon enough for a person who has just saved, and cheap.
POLL_INTERVAL = 0.5
# A scan may take at most this share of the time: on a slow file system there are fewer of them.
MAX_SCAN_SHARE = 0.05
# Files that are watched: more than a server has, and a scan of them takes 10 to 50 ms.
MAX_WATCHED_FILES = 2_000
# Folders that are read in one scan, however few files they have.
MAX_WATCHED_FOLDERS = 1_000

# Code only: many servers write their data (JSON, text, databases) into their own folder.
SOURCE_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *(
            "py",
            "pyi",
            "js",
            "mjs",
            "cjs",
            "jsx",
            "ts",
            "mts",
            "cts",
            "tsx",
            "go",
            "rs",
            "rb",
            "php",
            "lua",
            "pl",
            "sh",
        ),
        *("java", "kt", "scala", "cs", "fs", "ex", "exs", "swift", "c", "cc", "cpp", "h", "hpp", "zig", "dart"),
    )
)
IGNORED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
_IGNORED_SUFFIXES = frozenset({".pyc", ".pyo", ".swp", ".tmp"})
# A file of this name marks a virtual environment, whatever its folder is called.
VENV_MARK = "pyvenv.cfg"

Stamp = tuple[int, int, int]
"""Modification time, size and inode: an editor that replaces a file changes the last one."""


@record
class WatchedPath:
    """A file, or a folder with everything below it."""

    path: Path
    is_sources_only: bool = False
    """Only files of `SOURCE_SUFFIXES` count. A file that is named itself always counts."""


@record
class Scan:
    """The watched files at one moment."""

    stamps: Mapping[str, Stamp]
    """By path of a file."""
    is_cut: bool
    """Whether a bound was reached, so that some files are not watched."""


class FileWatcher:
    """Reports changes of files. `scan_first` comes before `run`."""

    def __init__(self, watched: Sequence[WatchedPath], on_change: Callable[[Sequence[Path]], None]) -> None:
        self._watched = watched
        self._on_change = on_change
        self._interval = POLL_INTERVAL
        self._known: Mapping[str, Stamp] = {}

    async def scan_first(self) -> Scan:
        """Scan, and return the files whose changes count from now on."""
        scan = await self._scan()
        self._known = scan.stamps
        return scan

    async def run(self) -> None:
        """Poll until cancelled."""
        changed: set[str] = set()
        while True:
            await asyncio.sleep(self._interval)
            found = (await self._scan()).stamps
            new = find_changes(self._known, found)
            self._known = found
            changed |= new
            if changed and not new:
                self._on_change([Path(path) for path in sorted(changed)])
                changed = set()

    async def _scan(self) -> Scan:
        began = time.monotonic()
        scan = await asyncio.to_thread(scan_paths, self._watched)
        self._interval = max(POLL_INTERVAL, (time.monotonic() - began) / MAX_SCAN_SHARE)
        return scan


def scan_paths(watched: Sequence[WatchedPath]) -> Scan:
    """Return the stamps of all files. A file that cannot be read counts as absent."""
    stamps: dict[str, Stamp] = {}
    folders = 0
    for root in watched:
        if (stamp := _find_stamp(root.path)) is not None:
            stamps[str(root.path)] = stamp
            continue
        # Breadth first: where a bound is reached, the files near the root are watched.
        waiting = deque([str(root.path)])
        while waiting:
            folders += 1
            if folders > MAX_WATCHED_FOLDERS:
                return Scan(stamps=stamps, is_cut=True)
            folder = waiting.popleft()
            entries = _list_folder(folder, is_root=folder == str(root.path))
            waiting += [entry.path for entry in entries if _is_watched_folder(entry)]
            for entry in entries:
                if not _is_watched_file(entry, root):
                    continue
                if len(stamps) >= MAX_WATCHED_FILES:
                    return Scan(stamps=stamps, is_cut=True)
                if (stamp := _read_stamp(entry)) is not None:
                    stamps[entry.path] = stamp
    return Scan(stamps=stamps, is_cut=False)


def find_changes(before: Mapping[str, Stamp], now: Mapping[str, Stamp]) -> set[str]:
    """Return the files that are new, gone or different."""
    return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def _find_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a path that is no folder; None for a folder, and for nothing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return None if path.is_dir() else (status.st_mtime_ns, status.st_size, status.st_ino)


def _list_folder(folder: str, *, is_root: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            # In order: where the bound is reached, the same files are watched in every scan.
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []
    is_environment = not is_root and any(entry.name == VENV_MARK for entry in entries)
    return [] if is_environment else entries


def _is_watched_folder(entry: os.DirEntry[str]) -> bool:
    # Hidden folders are those of version control, editors, caches and virtual environments.
    if entry.name.startswith(".") or entry.name in IGNORED_FOLDERS:
        return False
    try:
        # A symbolic link could lead in a circle.
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_watched_file(entry: os.DirEntry[str], root: WatchedPath) -> bool:
    # Not by `Path`: this runs for each file of a scan.
    name, dot, ending = entry.name.lower().rpartition(".")
    suffix = f".{ending}" if name and dot else ""
    if suffix in _IGNORED_SUFFIXES or entry.name.endswith("~"):
        return False
    if root.is_sources_only and suffix not in SOURCE_SUFFIXES:
        return False
    try:
        return entry.is_file()
    except OSError:
        return False


def _read_stamp(entry: os.DirEntry[str]) -> Stamp | None:
    try:
        status = entry.stat()
    # It was deleted in this moment.
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
