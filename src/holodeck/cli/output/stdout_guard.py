"""Separation of what the project's own code prints from what a command writes.

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

from holodeck.cli.output.output_errors import open_checked
from holodeck.lib import log

if TYPE_CHECKING:
    from holodeck.lib.log_handler import Format

# Characters of one printed line in a JSON log: a longer one is a document, not a log line.
MAX_PRINTED_CHARS = 16_384

_STDOUT, _STDERR = 1, 2


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
        *lines, rest = (self._partial_line + data).split(b"\n")
        self._partial_line = rest[:MAX_PRINTED_CHARS]
        for line in lines:
            text = line[:MAX_PRINTED_CHARS].decode("utf-8", "replace").rstrip("\r")
            if text:
                log.info("function.printed", text=text)
