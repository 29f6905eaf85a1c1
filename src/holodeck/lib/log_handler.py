"""Writes the log to standard error, as text for people or as one JSON object per line for log collectors.

`write_log` replaces the handlers of the process by one `LogLineWriter`. It queues formatted, masked lines and writes
them in batches from a thread of its own. The queue is bounded: lines beyond it are dropped, and counted in an event
`log.lost`. Standard logging flushes the handler at the end of the process.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TextIO

import orjson

from holodeck.lib.log import ROOT, LogLine, LogWriter, format_event, line_of, set_writer
from holodeck.lib.redaction import LOG_SECRETS

# Seconds that a line waits for others, so that many are written at once.
LOG_PAUSE = 0.05
# Lines queued while the reader of standard error does not read; a few MB.
MAX_LOG_LINES_WAITING = 10_000

Format = Literal["text", "json"]
_SERVERS = f"{ROOT}.mcp.server"
"""The logger of text that MCP servers write. Below a warning, it is only written at the level `debug`."""


def write_log(form: Format, level: str, stream: TextIO | None = None) -> None:
    """Make a `LogLineWriter` the only log handler of this process, and set the levels.

    Other libraries are logged from `warning` on, whatever the level.
    """
    handler = LogLineWriter(stream or sys.stderr, form)
    # Our lines have none of these, and collecting them for each record costs as much as writing it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    number = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_writer(handler)
    root.setLevel(max(number, logging.WARNING))
    logging.getLogger(ROOT).setLevel(number)
    logging.getLogger(_SERVERS).setLevel(number if number < logging.INFO else max(number, logging.WARNING))


class LogLineWriter(LogWriter):
    """Writes lines with a short delay and many at once, in a thread of its own.

    A write releases the interpreter lock, which costs a request more than the line itself; and while the reader of
    the stream is slow, the log waits and not the gateway.
    """

    def __init__(self, stream: TextIO, form: Format | None = None) -> None:
        """Write records in `form`; without one, as standard logging formats them."""
        super().__init__()
        self._is_json = form == "json"
        if form is not None:
            self.setFormatter(_JSONFormatter() if form == "json" else _TextFormatter())
        self._stream = stream
        self._pending: list[str] = []
        self._dropped_count = 0
        self._has_pending = threading.Event()
        self._write_lock = threading.Lock()
        threading.Thread(target=self._write_forever, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._pending) < MAX_LOG_LINES_WAITING:
            self._add(LOG_SECRETS.mask(self.format(record)))
        else:
            self._dropped_count += 1

    def write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        """Queue one of our events, without a `LogRecord`."""
        at, name = _format_time(time.time()), logging.getLevelName(level)
        if self._is_json:
            entry = {**fields, "time": at, "level": name.lower(), "event": event}
            line = orjson.dumps(entry, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        else:
            line = f"{at} {name} {format_event(event, fields)}"
        line = LOG_SECRETS.mask(line)
        self.acquire()
        if len(self._pending) < MAX_LOG_LINES_WAITING:
            self._add(line)
        else:
            self._dropped_count += 1
        self.release()

    def _add(self, line: str) -> None:
        self._pending.append(line)
        if not self._has_pending.is_set():
            self._has_pending.set()

    def flush(self) -> None:
        """Write all queued lines now."""
        with self._write_lock:
            # The handler's own lock, which standard logging holds around `emit`.
            self.acquire()
            lines, self._pending = self._pending, []
            lost, self._dropped_count = self._dropped_count, 0
            self.release()
            if lost:
                about = (LogLine("log.lost", {"lines": lost}),)
                lines.append(self.format(logging.LogRecord(ROOT, logging.WARNING, "", 0, "%s", about, None)))
            if lines:
                # The reader may have closed the stream.
                with suppress(OSError, ValueError):
                    self._stream.write("\n".join([*lines, ""]))
                    self._stream.flush()

    def _write_forever(self) -> None:
        while True:
            self._has_pending.wait()
            time.sleep(LOG_PAUSE)
            self._has_pending.clear()
            self.flush()


class _TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO gateway.request status=200 ...`, on one line unless it has a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        content = _line_or_message(record)
        text = str(content) if isinstance(content, LogLine) else f"{record.name} {_one_line(content)}"
        traceback = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{_format_time(record.created)} {record.levelname} {text}{traceback}"


class _JSONFormatter(logging.Formatter):
    """`time`, `level`, `event` and the fields of the event; a record of another library has `message` and `logger`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {"time": _format_time(record.created), "level": record.levelname.lower()}
        content = _line_or_message(record)
        if isinstance(content, LogLine):
            entry = {**content.fields, **entry, "event": content.event}
        else:
            entry |= {"event": "log", "logger": record.name, "message": content}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _line_or_message(record: logging.LogRecord) -> LogLine | str:
    line = line_of(record)
    return line if line.event else record.getMessage()


def _one_line(text: str) -> str:
    """Escape text of other libraries that could start a new line or move the cursor."""
    return text if text.isprintable() else repr(text)[1:-1]


def _format_time(at: float) -> str:
    second = int(at)
    return f"{_format_second(second)}.{int((at - second) * 1000):03d}Z"


@lru_cache(maxsize=1)
def _format_second(at: int) -> str:
    """Format a time up to its second. Cached: busy gateways write many lines in the same second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
