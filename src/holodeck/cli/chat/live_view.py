"""A conversation on a terminal: finished blocks of an answer are rendered for good, the rest is drawn live below."""

from __future__ import annotations

import asyncio
import io
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from types import TracebackType
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from holodeck.cli.output import stdin
from holodeck.cli.output.tables import show_table
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import PROGRESS_DELAY

# The same in a chat.
MAX_BUFFERED_CHARS = 1_000_000
# Seconds between two pictures of an answer that is being written: fluent, and cheap.
LIVE_STEP = 0.08
# Characters of a block in progress that are rendered each time; a longer one is shown plain.
MAX_LIVE_MARKDOWN = 4_000


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def finished_blocks(text: str) -> tuple[str, str]:
    """What is finished, and the rest. A block ends at a blank line outside code, before a line without indentation."""
    fence = ""
    end = 0
    position = 0
    is_after_blank = False
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        else:
            if is_after_blank and line.strip() and not line[0].isspace():
                end = position
            if mark:
                fence = mark.group(1)
        is_after_blank = not fence and not line.strip()
        position += len(line)
    return text[:end], text[end:]


_FRAMES = "|/-\\"
_LINES_BELOW = 4  # lines that are left free under a block in progress


class LiveScreen:
    """Draws while an answer is written. Text from outside is made harmless here."""

    def __init__(self) -> None:
        self.is_quiet = False
        self.can_ask = stdin.is_terminal()
        self.console = Console(highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._tail = ""
        self._has_block = False
        self._running_calls: dict[str, tuple[str, float]] = {}
        self._waiting_for = ""
        self._waiting_since = time.monotonic()

    def guard_stdout(self) -> None:
        """The conversation and what functions print are on the same terminal; each in its place, while it is drawn."""

    # Lines that stay

    def note(self, text: str, *, always: bool = False, **style: Any) -> None:
        """A line about what happens."""
        shown = Style(color=style.get("fg"), dim=style.get("dim"), bold=style.get("bold"))
        self.console.print(Text(escape_unprintable(text), style=shown), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows of text."""
        show_table(self.console, columns, rows)

    # An answer in progress

    def write(self, text: str) -> None:
        """More of the answer."""
        begins_line = "\n" in text or self._tail.endswith("\n")
        self._tail += escape_unprintable(text)
        if begins_line:  # a block ends only where another line begins
            done, self._tail = finished_blocks(self._tail)
            self._print_block(done)

    def end_text(self) -> None:
        """The message is whole: all of it stays."""
        done, self._tail = self._tail, ""
        self._print_block(done)
        self._has_block = False

    def show_waiting(self, what: str) -> None:
        self._waiting_for, self._waiting_since = what, time.monotonic()

    def start_call(self, call_id: str, title: str) -> None:
        """A call is running."""
        self._running_calls[call_id] = (title, time.monotonic())

    def update_call(self, call_id: str, text: str) -> None:
        if call_id in self._running_calls:
            title, began = self._running_calls[call_id]
            self._running_calls[call_id] = (f"{title.partition(':')[0]}: {text}", began)

    def finish_call(self, call_id: str) -> None:
        self._running_calls.pop(call_id, None)

    @contextmanager
    def draw_live(self) -> Iterator[None]:
        """Draw live until the end of the block; what was written by then stays, whatever happened."""
        self._start_live()
        try:
            yield
        finally:
            self._stop_live()
            self.end_text()
            self._running_calls.clear()
            self._waiting_for = ""

    @contextmanager
    def pause_output(self) -> Iterator[None]:
        """Keep the screen as it is while a person answers a question: what is printed meanwhile follows the answer."""
        was_drawing = self._live is not None
        self._stop_live()
        held = _DeferredOutput()
        try:
            with redirect_stdout(held):
                yield
        finally:
            sys.stdout.write(held.getvalue())
            sys.stdout.flush()
            if was_drawing:
                self._start_live()

    def _start_live(self) -> None:
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=True,  # what the project's own code prints is shown above the picture
            redirect_stderr=True,
            vertical_overflow="crop",
        )
        self._live.start()
        self._ticker = asyncio.get_running_loop().create_task(self._tick(self._live), name="live screen")

    def _stop_live(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    async def _tick(self, live: Live) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                live.update(self._render(), refresh=True)
                await asyncio.sleep(LIVE_STEP)

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = []
        now = time.monotonic()
        if self._tail.strip():
            parts.append(_Tail(self._tail))
        for title, began in self._running_calls.values():
            parts.append(self._spinner_line(title, now - began))
        waited = now - self._waiting_since
        if not parts and self._waiting_for and waited >= PROGRESS_DELAY:
            parts.append(self._spinner_line(self._waiting_for, waited))
        return Group(*parts)

    def _spinner_line(self, what: str, seconds: float) -> Text:
        frame = _FRAMES[int(time.monotonic() / LIVE_STEP / 2) % len(_FRAMES)]
        room = self.console.width - 12
        return Text(f"{frame} {one_line(what, room)} {seconds:.0f} s", style="dim", no_wrap=True, overflow="crop")

    def _print_block(self, text: str) -> None:
        if text.strip():
            if self._has_block:
                self.console.print()
            self._has_block = True
            self.console.print(_Block(text), end="")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_live()


class _DeferredOutput(io.StringIO):
    """A terminal's output that is shown later; of very much the rest is dropped."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.tell() < MAX_BUFFERED_CHARS:
            super().write(text)
        return len(text)


class _Block:
    """A finished block without the empty lines around it: those between blocks are the screen's own."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(_render_markdown(self._text), options.update(height=None), pad=False)
        while lines and _is_blank(lines[0]):
            lines.pop(0)
        while lines and _is_blank(lines[-1]):
            lines.pop()
        for line in lines:
            yield from line
            yield Segment.line()


class _Tail:
    """The last lines of a block that is being written: what is new is at its end."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = (
            _render_markdown(self._text)
            if len(self._text) <= MAX_LIVE_MARKDOWN
            else Text(self._text[-MAX_LIVE_MARKDOWN:])
        )
        lines = console.render_lines(shown, options.update(height=None), pad=False)
        for line in lines[-max(console.height - _LINES_BELOW, 1) :]:
            yield from line
            yield Segment.line()


def _is_blank(line: Sequence[Segment]) -> bool:
    return not "".join(segment.text for segment in line).strip()


def _render_markdown(text: str) -> Markdown:
    """Links show where they lead."""
    return Markdown(text, hyperlinks=False, code_theme="ansi_dark")
