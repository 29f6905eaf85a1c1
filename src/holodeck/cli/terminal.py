"""The one door to the terminal while an agent runs: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

import click

from holodeck.cli import standard_input
from holodeck.cli.colours import are_welcome
from holodeck.cli.progress import Progress
from holodeck.lib.display import printable
from holodeck.lib.errors import ExecutionError
from holodeck.lib.limits import PIPE_WIDTH


class Screen(Protocol):
    """What commands that run agents need of a terminal."""

    is_quiet: bool
    can_ask: bool

    def note(self, text: str, *, always: bool = False, **style: Any) -> None: ...

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def wait_for(self, what: str) -> None: ...

    def asking(self) -> AbstractContextManager[None]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Terminal:
    """Knows where the cursor is, so that a line never begins in the middle of another."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self.is_quiet = is_quiet
        self.is_watched = sys.stdout.isatty()
        """Somebody reads the answer as it comes."""
        self.can_ask = standard_input.is_terminal() and sys.stderr.isatty()
        """Somebody can be asked."""
        self._has_colours = sys.stderr.isatty() and are_welcome()
        self._progress = Progress()
        self._is_inside_line = False
        self._waiting_for = ""
        for stream in (sys.stdout, sys.stderr):
            _never_fail(stream)

    def write(self, text: str) -> None:
        """More of the answer. A terminal gets it harmless, a file or a pipe gets it as it is."""
        if not text:
            return
        self._is_inside_line = self.is_watched and not text.endswith("\n")
        self._progress.restart("" if self._is_inside_line else self._waiting_for)
        try:
            sys.stdout.write(printable(text) if self.is_watched else text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the end would try to write it again
            raise ExecutionError(f"The answer cannot be written: {error.strerror}.") from None

    def end_line(self) -> None:
        """Whatever comes next begins on a line of its own."""
        if self._is_inside_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._is_inside_line = False
            self._progress.restart(self._waiting_for)

    def note(self, text: str, *, always: bool = False, **style: Any) -> None:
        """A line about the run, on stderr. `always`: also when the person wants quiet."""
        if self.is_quiet and not always:
            return
        self.end_line()
        self._progress.clear()
        shown = printable(text)
        with suppress(OSError):  # a full disk behind stderr is no reason to lose the answer
            sys.stderr.write((click.style(shown, **style) if self._has_colours else shown) + "\n")
            sys.stderr.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows of text, on stdout: they are what was asked for."""
        from rich.console import Console

        from holodeck.cli.screen import show_table

        self.end_line()
        show_table(Console(highlight=False, markup=False, width=None if self.is_watched else PIPE_WIDTH), columns, rows)

    def wait_for(self, what: str) -> None:
        """Say what everybody is waiting for, if it takes longer than a moment. Nothing: the end of waiting."""
        self._waiting_for = what
        if not self._is_inside_line:
            self._progress.restart(what)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Keep the line free while a person answers a question."""
        self.end_line()
        self._progress.restart("")
        try:
            yield
        finally:
            self._progress.restart(self._waiting_for)

    async def __aenter__(self) -> Self:
        if not self.is_quiet:
            await self._progress.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._progress.__aexit__(kind, error, traceback)
        self.end_line()


def _never_fail(stream: TextIO) -> None:
    """A character that the terminal cannot show must not end a run."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
