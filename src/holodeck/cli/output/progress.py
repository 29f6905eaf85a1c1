"""Progress line on stderr: the current phase and its duration, once it takes over a second; on a terminal only."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from holodeck.lib.escape import one_line
from holodeck.lib.limits import PROGRESS_DELAY
from holodeck.lib.tasks import TaskSet

# Seconds between two redraws: often enough to look alive.
PROGRESS_STEP = 0.2
# Seconds for the drawing task to end: it only sleeps and writes a line.
_CLOSE_TIMEOUT = 1.0

_FRAMES = "|/-\\"
_CLEAR = "\r\x1b[K"


class Progress:
    """Draws the current phase while the block runs: `async with Progress() as progress: progress.phase = "starting"`.

    Owns one task, which `__aexit__` cancels and awaits.
    """

    def __init__(self, phase: str = "") -> None:
        self.phase = phase
        """The text that is shown. It may contain text from a server: it is escaped when it is drawn."""
        self._started_at = time.monotonic()
        self._tasks = TaskSet()
        self._is_drawn = False
        self._is_paused = False

    async def __aenter__(self) -> Self:
        self._started_at = time.monotonic()
        if sys.stderr.isatty():
            self._tasks.start(self._draw(), name="progress")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._tasks.close(_CLOSE_TIMEOUT)
        self.clear()

    def restart(self, phase: str) -> None:
        """Begin another phase and count its seconds from zero; an empty one is not shown."""
        self.clear()
        self.phase = phase
        self._started_at = time.monotonic()

    def clear(self) -> None:
        """Erase the line, so that output can be written; the next redraw shows it again below."""
        if self._is_drawn:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_drawn = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Draw nothing inside the block, even if the phase changes; then count from zero."""
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
            columns = shutil.get_terminal_size().columns - 1
            tail = f" {seconds:.0f} s"
            line = f"{_FRAMES[frame % len(_FRAMES)]} {one_line(self.phase, columns - len(tail) - 2)}{tail}"
            sys.stderr.write(f"{_CLEAR}{line[:columns]}")
            sys.stderr.flush()
            self._is_drawn = True
            frame += 1
