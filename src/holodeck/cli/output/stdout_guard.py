"""Standard output of a command: its errors, its colours, and what the project's own code prints beside it.

A failed write raises `OutputError`, which ends the command with a sentence. `NO_COLOR` and `TERM=dumb` forbid colours.

A function of the project, or a module that it imports, may print at any time and from any thread. For a command whose
stdout is the answer, `take_over_stdout` moves the real stdout to a private stream and sends prints elsewhere. For a
gateway, `redirect_prints_to_log` makes each printed line an event of a JSON log.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from holodeck.lib.log_handler import Format

# Characters of one printed line in a JSON log: a longer one is a document, not a log line.
MAX_PRINTED_CHARS = 16_384
_STDOUT, _STDERR = 1, 2


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


def can_use_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def take_over_stdout(on_output: Callable[[bytes], None]) -> TextIO:
    """Return a stream to the real standard output, which from now on only the owner of the stream writes to.

    What Python code prints goes to `on_output`, from any thread; descriptor 1, which child processes inherit, becomes
    standard error.
    """
    sys.stdout.flush()
    own = open_checked(os.dup(_STDOUT), sys.stdout.encoding)
    os.dup2(_STDERR, _STDOUT)
    sys.stdout = _open_text_stream(on_output, _STDERR)
    return own


def redirect_prints_to_log(log_format: Format) -> None:
    """Make each printed line an event of a JSON log, which carries the id of its request.

    With a text log, prints stay on standard output unchanged, and are flushed after each line also without a terminal.
    """
    if log_format == "json":
        sys.stdout.flush()
        sys.stdout = _open_text_stream(_LineLogger().write, _STDOUT)
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def write_stderr(data: bytes) -> None:
    """Write to standard error without its buffer, whose lock an abandoned thread might hold until the end."""
    with suppress(OSError):
        while data:
            data = data[os.write(_STDERR, data) :]


def _open_text_stream(on_output: Callable[[bytes], None], descriptor: int) -> TextIO:
    # Without a buffer and its lock, for the reason that `write_stderr` has none.
    raw: Any = _CallbackStream(on_output, descriptor)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class _CallbackStream(io.RawIOBase):
    """Raw stream that passes what is written to a callback. `fileno` is a descriptor that is safe to write to."""

    def __init__(self, on_output: Callable[[bytes], None], descriptor: int) -> None:
        self._on_output = on_output
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: bytes) -> int:  # type: ignore[override] # accepts any buffer
        self._on_output(bytes(data))
        return len(data)


class _LineLogger:
    """Cuts printed text into lines and logs each as `function.printed`."""

    def __init__(self) -> None:
        self._partial_line = b""

    def write(self, data: bytes) -> None:
        from holodeck.lib import log

        *lines, rest = (self._partial_line + data).split(b"\n")
        self._partial_line = rest[:MAX_PRINTED_CHARS]
        for line in lines:
            text = line[:MAX_PRINTED_CHARS].decode("utf-8", "replace").rstrip("\r")
            if text:
                log.info("function.printed", text=text)
