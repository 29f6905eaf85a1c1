"""A line that shows what is going on and for how long, once it takes over a second; on a terminal only."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from holodeck.lib.escape import one_line
from holodeck.lib.limits import PROGRESS_DELAY

# Often enough to look alive.
PROGRESS_STEP = 0.2


_FRAMES = "|/-\\"
_CLEAR = "\r\x1b[K"


class Progress:
    """`async with Progress() as progress: progress.phase = "starting files"`."""

    def __init__(self, phase: str = "") -> None:
        self.phase = phase
        """What is being done now. It may hold text from a server: it is made harmless here."""
        self._started_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._is_drawn = False
        self._is_paused = False

    async def __aenter__(self) -> Self:
        self._started_at = time.monotonic()
        if sys.stderr.isatty():
            self._task = asyncio.create_task(self._draw(), name="progress")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self.clear()

    def restart(self, phase: str) -> None:
        """Count anew for another phase; an empty one is not shown."""
        self.clear()
        self.phase = phase
        self._started_at = time.monotonic()

    def clear(self) -> None:
        """Make room for a line of output; the progress comes back below it."""
        if self._is_drawn:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_drawn = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Draw nothing until the end of the block, whatever the phase becomes meanwhile; then count anew."""
        self.clear()
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self._started_at = time.monotonic()

    async def _draw(self) -> None:
        frame = 0
        while True:
            await asyncio.sleep(PROGRESS_STEP)
            seconds = time.monotonic() - self._started_at
            if self._is_paused or not self.phase or seconds < PROGRESS_DELAY:
                continue
            room = shutil.get_terminal_size().columns - 1
            tail = f" {seconds:.0f} s"
            line = f"{_FRAMES[frame % len(_FRAMES)]} {one_line(self.phase, room - len(tail) - 2)}{tail}"
            sys.stderr.write(f"{_CLEAR}{line[:room]}")
            sys.stderr.flush()
            self._is_drawn = True
            frame += 1
