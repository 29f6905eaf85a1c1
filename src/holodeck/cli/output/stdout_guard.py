"""What the project's own code prints, by itself or while it is imported, is kept apart from what we write."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from holodeck.cli.output.output_errors import open_checked
from holodeck.lib import log

if TYPE_CHECKING:
    from holodeck.lib.log_handler import Format

# Of a line that a function prints: more is a document, and no line of a log.
MAX_PRINTED_CHARS = 16_384


_STDOUT, _STDERR = 1, 2


def take_over_stdout(on_output: Callable[[bytes], None]) -> TextIO:
    """The standard output of this process, from now on for who has it from here.

    What others print goes to `on_output`; what the processes that they start do, to standard error.
    """
    sys.stdout.flush()
    own = open_checked(os.dup(_STDOUT), sys.stdout.encoding)
    os.dup2(_STDERR, _STDOUT)
    sys.stdout = _open_text_stream(on_output, _STDERR)
    return own


def redirect_prints_to_log(log_format: Format) -> None:
    """A program reads a log of JSON: what is printed is a line of it, and says for whose request. A person, who reads
    text, has it as it is, on standard output; at once, also where that is no terminal.
    """
    if log_format == "json":
        sys.stdout.flush()
        sys.stdout = _open_text_stream(_LineLogger().write, _STDOUT)
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def write_stderr(data: bytes) -> None:
    """Write to standard error, past its buffer: a thread that is left behind would hold its lock to the end."""
    with suppress(OSError):
        while data:
            data = data[os.write(_STDERR, data) :]


def _open_text_stream(on_output: Callable[[bytes], None], descriptor: int) -> TextIO:
    outlet: Any = _CallbackStream(on_output, descriptor)  # without a buffer and its lock, for the same reason
    return io.TextIOWrapper(outlet, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class _CallbackStream(io.RawIOBase):
    """The lower end of a stream. Who asks for its descriptor gets one that does no harm."""

    def __init__(self, on_output: Callable[[bytes], None], descriptor: int) -> None:
        self._on_output = on_output
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: bytes) -> int:  # type: ignore[override] # all that has a buffer is taken
        self._on_output(bytes(data))
        return len(data)


class _LineLogger:
    """Cuts what is printed into lines."""

    def __init__(self) -> None:
        self._partial_line = b""

    def write(self, data: bytes) -> None:
        *lines, rest = (self._partial_line + data).split(b"\n")
        self._partial_line = rest[:MAX_PRINTED_CHARS]
        for line in lines:
            text = line[:MAX_PRINTED_CHARS].decode("utf-8", "replace").rstrip("\r")
            if text:
                log.info("function.printed", text=text)
