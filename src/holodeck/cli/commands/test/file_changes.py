"""Changes of the files that a run depends on, for `--watch`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holodeck.cli.dev.file_watcher import FileWatcher, WatchedPath


class FileChanges:
    """Notices changes of files from `begin` on, also of those that are not there yet."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._watcher = FileWatcher([WatchedPath(path=path) for path in paths], self._on_change)
        self._changed: Sequence[Path] = ()

    async def begin(self) -> None:
        await self._watcher.scan_first()

    async def wait(self) -> Sequence[Path]:
        """Wait until files have changed, and return them."""
        self._is_changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watcher.run())
            await self._is_changed.wait()
            watching.cancel()
        return self._changed

    def _on_change(self, changed: Sequence[Path]) -> None:
        self._changed = changed
        self._is_changed.set()
