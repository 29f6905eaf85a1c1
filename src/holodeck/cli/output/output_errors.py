"""Failed writes to standard output, such as to a full disk, as one error for every command.

`raise_output_errors` replaces `sys.stdout` before a command runs: `click.echo`, tables, help texts and raw bytes all go
through `_CheckedFile`. Each failed write raises `OutputError`, a `click.ClickException`: `main` prints it in one line
and exits with code 1, and no handler of `HoloDeckError` mistakes it for a failure of an agent or a server. A reader
that closed its end of a pipe remains a `BrokenPipeError`.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

import click


class OutputError(click.ClickException):
    """Standard output cannot be written."""

    def __init__(self, reason: str, file: _CheckedFile) -> None:
        super().__init__(f"Cannot write to standard output: {reason}.")
        self._file = file

    def discard_output(self) -> None:
        """Discard what is left in the buffer, for a process that is about to exit."""
        self._file.discard_output()


def raise_output_errors() -> None:
    """Make each failed write to `sys.stdout` raise `OutputError` from now on."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        file = _CheckedFile(stream.fileno(), "w", closefd=False)
        # Under PYTHONUNBUFFERED there is no buffer below the text layer.
        binary: Any = file if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(file)
        sys.stdout = io.TextIOWrapper(
            binary,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )


def open_checked(descriptor: int, encoding: str) -> TextIO:
    """Open a text stream on `descriptor`, which it owns. A failed write raises `OutputError`."""
    file = _CheckedFile(descriptor, "w")
    return io.TextIOWrapper(
        io.BufferedWriter(file), encoding=encoding, errors="backslashreplace", line_buffering=file.isatty()
    )


class _CheckedFile(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self.discard_output()
            raise
        except OSError as error:
            raise OutputError(str(error.strerror), self) from None

    def discard_output(self) -> None:
        # Closing the stream writes what is left in its buffer once more, and Python 3.13 reports that failure.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
