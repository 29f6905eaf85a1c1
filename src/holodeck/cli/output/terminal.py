"""The one door to the terminal while an agent runs: the answer on stdout, everything else on stderr."""

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
from holodeck.cli.output.colours import can_use_colours
from holodeck.cli.output.progress import Progress
from holodeck.cli.output.stdout_guard import take_over_stdout, write_stderr
from holodeck.lib.escape import escape_unprintable

# Written while a person thinks about a question: more than anybody scrolls back.
MAX_BUFFERED_LINES = 10_000
# Seconds for another thread to end its line; one that was left behind may never do so.
LINE_LOCK_TIMEOUT = 1.0
# Columns of a table that no terminal bounds.
PIPE_WIDTH = 200


class Screen(Protocol):
    """What commands that run agents need of a terminal."""

    is_quiet: bool
    can_ask: bool

    def guard_stdout(self) -> None:
        """See to it that what the project's own code prints does not get between what is written here."""
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
    """Knows where the cursor is, so that a line never begins in the middle of another."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self.is_quiet = is_quiet
        self._out: TextIO = sys.stdout
        self.is_stdout_terminal = sys.stdout.isatty()
        """Somebody reads the answer as it comes."""
        self.can_ask = stdin.is_terminal() and sys.stderr.isatty()
        """Somebody can be asked."""
        self._has_colours = sys.stderr.isatty() and can_use_colours()
        self._progress = Progress()
        self._open_line: TextIO | None = None
        """Where a line has begun that is not at its end."""
        self._waiting_for = ""
        self._lock = threading.RLock()
        self._deferred: deque[Callable[[], None]] | None = None
        """What waits until a person has answered; None while nothing is asked."""
        for stream in (sys.stdout, sys.stderr):
            _escape_unencodable(stream)

    def write(self, text: str) -> None:
        """More of the answer. A terminal gets it harmless, a file or a pipe gets it as it is."""
        if text:
            self._write_or_defer(lambda: self._write(text))

    def _write_or_defer(self, draw: Callable[[], None]) -> None:
        """Draw now, or once a question that is on the screen has its answer."""
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
        """A line that was asked for, on stdout: part of a result, or all of it."""
        self._write_or_defer(lambda: self._print_line(text))

    def _print_line(self, text: str) -> None:
        self.end_line()
        self._progress.clear()
        click.echo(text, file=self._out)

    def guard_stdout(self) -> None:
        """From now on stdout is for what is written here, and what the project's own code prints goes to stderr."""
        if self._out is sys.stdout:
            self._out = take_over_stdout(self._write_printed)

    def _write_printed(self, printed: bytes) -> None:
        """It comes from any thread, in any pieces."""
        self._write_or_defer(lambda: self._write_printed_now(printed))

    def _write_printed_now(self, printed: bytes) -> None:
        if self._open_line is not sys.stderr:
            self.end_line()
        self._progress.clear()
        self._open_line = None if printed.endswith(b"\n") else sys.stderr
        write_stderr(printed)

    @contextmanager
    def _lock_output(self) -> Iterator[None]:
        """One after the other, so that none begins in another's line. Who is stuck is not waited for long."""
        is_ours = self._lock.acquire(timeout=LINE_LOCK_TIMEOUT)
        try:
            yield
        finally:
            if is_ours:
                self._lock.release()

    def end_line(self) -> None:
        """Whatever comes next begins on a line of its own."""
        line, self._open_line = self._open_line, None
        if line is not None:
            line.write("\n")
            line.flush()
            self._progress.restart(self._waiting_for)

    def note(self, text: str, *, always: bool = False, **style: Any) -> None:
        """A line about the run, on stderr. `always`: also when the person wants quiet."""
        if self.is_quiet and not always:
            return
        shown = escape_unprintable(text)
        line = click.style(shown, **style) if self._has_colours else shown
        self._write_or_defer(lambda: self._note(line))

    def _note(self, line: str) -> None:
        self.end_line()
        self._progress.clear()
        with suppress(OSError):  # a full disk behind stderr is no reason to lose the answer
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows of text, on stdout: they are what was asked for."""
        from rich.console import Console

        from holodeck.cli.output.tables import show_table

        self.end_line()
        width = None if self.is_stdout_terminal else PIPE_WIDTH
        console = Console(file=self._out, highlight=False, markup=False, emoji=False, width=width)
        show_table(console, columns, rows)

    def show_waiting(self, what: str) -> None:
        """Say what everybody is waiting for, if it takes longer than a moment. Nothing: the end of waiting."""
        self._waiting_for = what
        if self._open_line is None:
            self._progress.restart(what)

    @contextmanager
    def pause_output(self) -> Iterator[None]:
        """Keep the screen as it is while a person answers a question: what is written meanwhile follows the answer.

        Of very much the oldest is dropped.
        """
        with self._lock_output():
            self.end_line()
            self._deferred = deque(maxlen=MAX_BUFFERED_LINES)
        try:
            with self._progress.pause():
                yield
        finally:
            with self._lock_output():
                held, self._deferred = self._deferred, None
                for draw in held:
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
    """A character that the terminal cannot show must not end a run."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
