"""Terminal output of commands that run agents: the answer on stdout, everything else on stderr.

`Terminal` is the only writer while an agent runs. It tracks where a line is unfinished, so that no output begins in the
middle of another line; it hides the progress line before it writes; and while a question to the user is open it defers
all output until the answer. Prints of the project's own code arrive from any thread: a lock orders them.
`Screen` is the part of this interface that the live view of `holodeck chat` implements as well.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

import click

from holodeck.cli.output import stdin
from holodeck.cli.output.progress import Progress
from holodeck.cli.output.stdout_guard import can_use_colours, take_over_stdout, write_stderr
from holodeck.cli.output.tables import show_table
from holodeck.lib.escape import escape_unprintable

# Outputs deferred while a question is open; older ones are dropped. More than a terminal scrolls back.
MAX_BUFFERED_LINES = 10_000
# Seconds to wait for another thread to finish its line; an abandoned thread may never do so.
LINE_LOCK_TIMEOUT = 1.0
# Columns of a table in a file or a pipe, where no terminal bounds them.
PIPE_WIDTH = 200


class Screen(Protocol):
    """The terminal interface that commands use to run agents."""

    is_quiet: bool
    is_verbose: bool
    can_ask: bool

    def guard_stdout(self) -> None:
        """Keep what the project's own code prints apart from what is written here."""
        ...

    def note(self, text: str, *, always: bool = False, **style: Any) -> None: ...

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def show_waiting(self, what: str) -> None: ...

    def pause_output(self) -> AbstractContextManager[None]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Terminal:
    """Writes to stdout and stderr, and never begins a line in the middle of another."""

    def __init__(self, *, is_quiet: bool = False, is_verbose: bool = False) -> None:
        self.is_quiet = is_quiet
        self.is_verbose = is_verbose
        self._out: TextIO = sys.stdout
        self.is_stdout_terminal = sys.stdout.isatty()
        """The answer is streamed, because a user reads it as it comes."""
        self.can_ask = stdin.is_terminal() and sys.stderr.isatty()
        """Questions can be put to the user."""
        self._has_colours = sys.stderr.isatty() and can_use_colours()
        self._progress = Progress()
        self._open_line: TextIO | None = None
        """The stream whose last line is unfinished."""
        self._waiting_for = ""
        self._lock = threading.RLock()
        self._deferred: deque[Callable[[], None]] | None = None
        """Output deferred until the user has answered; None while no question is open."""
        for stream in (sys.stdout, sys.stderr):
            _escape_unencodable(stream)

    def write(self, text: str) -> None:
        """Append to the answer: escaped on a terminal, unchanged in a file or a pipe."""
        if text:
            self._write_or_defer(lambda: self._write(text))

    def _write_or_defer(self, draw: Callable[[], None]) -> None:
        """Draw now, or after the answer to the question that is open."""
        with self._lock_output():
            if self._deferred is None:
                draw()
            else:
                self._deferred.append(draw)

    def _write(self, text: str) -> None:
        if self._open_line is not self._out:
            self.end_line()
        self._open_line = self._out if self.is_stdout_terminal and not text.endswith("\n") else None
        self._progress.restart("" if self._open_line else self._waiting_for)
        self._out.write(escape_unprintable(text) if self.is_stdout_terminal else text)
        self._out.flush()

    def print_line(self, text: str = "") -> None:
        """Print a line of the result on stdout."""
        self._write_or_defer(lambda: self._print_line(text))

    def _print_line(self, text: str) -> None:
        self.end_line()
        self._progress.clear()
        click.echo(text, file=self._out)

    def guard_stdout(self) -> None:
        """Reserve stdout for what is written here; what the project's own code prints goes to stderr from now on."""
        if self._out is sys.stdout:
            self._out = take_over_stdout(self._write_printed)

    def _write_printed(self, printed: bytes) -> None:
        # Called from any thread, with any part of a line.
        self._write_or_defer(lambda: self._write_printed_now(printed))

    def _write_printed_now(self, printed: bytes) -> None:
        if self._open_line is not sys.stderr:
            self.end_line()
        self._progress.clear()
        self._open_line = None if printed.endswith(b"\n") else sys.stderr
        write_stderr(printed)

    @contextmanager
    def _lock_output(self) -> Iterator[None]:
        """Order the output of threads. After `LINE_LOCK_TIMEOUT` it goes on without the lock."""
        is_ours = self._lock.acquire(timeout=LINE_LOCK_TIMEOUT)
        try:
            yield
        finally:
            if is_ours:
                self._lock.release()

    def end_line(self) -> None:
        """End an unfinished line, so that the next output begins on a line of its own."""
        # A function of the project may print at this moment, from its own thread.
        with self._lock_output():
            line, self._open_line = self._open_line, None
            if line is not None:
                line.write("\n")
                line.flush()
                self._progress.restart(self._waiting_for)

    def note(self, text: str, *, always: bool = False, **style: Any) -> None:
        """Print a line about the run on stderr. `always`: also with `--quiet`."""
        if self.is_quiet and not always:
            return
        shown = escape_unprintable(text)
        line = click.style(shown, **style) if self._has_colours else shown
        self._write_or_defer(lambda: self._note(line))

    def _note(self, line: str) -> None:
        self.end_line()
        self._progress.clear()
        # A full disk behind stderr must not lose the answer.
        with suppress(OSError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table on stdout."""
        from rich.console import Console

        self.end_line()
        width = None if self.is_stdout_terminal else PIPE_WIDTH
        console = Console(file=self._out, highlight=False, markup=False, emoji=False, width=width)
        show_table(console, columns, rows)

    def show_waiting(self, what: str) -> None:
        """Show what the run waits for, once it takes over `PROGRESS_DELAY`. An empty text ends it."""
        self._waiting_for = what
        if self._open_line is None:
            self._progress.restart(what)

    def update_waiting(self, what: str) -> None:
        """Show another text for the same wait: its seconds go on."""
        self._waiting_for = self._progress.phase = what

    @contextmanager
    def pause_output(self) -> Iterator[None]:
        """Defer all output inside the block, while the user answers a question; it follows afterwards.

        Beyond `MAX_BUFFERED_LINES` the oldest is dropped.
        """
        with self._lock_output():
            self.end_line()
            self._deferred = deque(maxlen=MAX_BUFFERED_LINES)
        try:
            with self._progress.pause():
                yield
        finally:
            with self._lock_output():
                deferred, self._deferred = self._deferred, None
                for draw in deferred:
                    draw()

    async def __aenter__(self) -> Self:
        if not self.is_quiet:
            await self._progress.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._progress.__aexit__(kind, error, traceback)
        self.end_line()


def _escape_unencodable(stream: TextIO) -> None:
    # A character that the terminal cannot encode must not end a run.
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
