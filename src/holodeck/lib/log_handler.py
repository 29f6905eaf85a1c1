"""Log records as lines of standard error: text for people, or one JSON object each for programs that collect them."""

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

from holodeck.lib.log import ROOT, LogLine, LogWriter, format_event, set_writer
from holodeck.lib.redaction import LOG_SECRETS

# Seconds that a line of the log may wait for others.
LOG_PAUSE = 0.05
# While nobody reads them; a few MB.
MAX_LOG_LINES_WAITING = 10_000


Format = Literal["text", "json"]
_SERVERS = f"{ROOT}.mcp.server"
"""What MCP servers say themselves. It is theirs, and may be about anything."""


def write_log(form: Format, level: str, stream: TextIO | None = None) -> None:
    """Write the log of this process from now on, in place of whatever did so before."""
    handler = LogLineWriter(stream or sys.stderr, form)
    # Our lines have none of these, and finding them out for each costs as much as writing it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    number = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_writer(handler)
    root.setLevel(max(number, logging.WARNING))  # of what is not ours, only what went wrong
    logging.getLogger(ROOT).setLevel(number)
    logging.getLogger(_SERVERS).setLevel(number if number < logging.INFO else max(number, logging.WARNING))


class LogLineWriter(LogWriter):
    """Writes lines a moment later and many at once, in a thread of its own.

    A write lets other threads in, which costs a request more than the line itself; and when nobody reads what is
    written, the log waits and not the gateway. What is left is written at the end of the process.
    """

    def __init__(self, stream: TextIO, form: Format | None = None) -> None:
        """Without a `form`, records are written as standard logging does."""
        super().__init__()
        self._line = _json_line if form == "json" else _text_line
        if form is not None:
            self.setFormatter(_JSONFormatter() if form == "json" else _TextFormatter())
        self._stream = stream
        self._pending: list[str] = []
        self._dropped_count = 0
        self._has_pending = threading.Event()
        self._write_lock = threading.Lock()
        threading.Thread(target=self._write_forever, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._pending) >= MAX_LOG_LINES_WAITING:
            self._dropped_count += 1
        else:
            self._add(self.format(record))

    def write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        """Write a line of ours, which takes the short way here."""
        line = self._line(time.time(), level, event, fields)
        self.acquire()
        if len(self._pending) >= MAX_LOG_LINES_WAITING:
            self._dropped_count += 1
        else:
            self._add(line)
        self.release()

    def _add(self, line: str) -> None:
        self._pending.append(LOG_SECRETS.mask(line))
        if not self._has_pending.is_set():
            self._has_pending.set()

    def flush(self) -> None:
        """Write everything now."""
        with self._write_lock:
            self.acquire()  # `emit` holds it, too
            lines, self._pending = self._pending, []
            lost, self._dropped_count = self._dropped_count, 0
            self.release()
            if lost:
                about = (LogLine("log.lost", {"lines": lost}),)
                lines.append(self.format(logging.LogRecord(ROOT, logging.WARNING, "", 0, "%s", about, None)))
            if lines:
                with suppress(OSError, ValueError):  # whoever read it has gone
                    self._stream.write("\n".join([*lines, ""]))
                    self._stream.flush()

    def _write_forever(self) -> None:
        while True:
            self._has_pending.wait()
            time.sleep(LOG_PAUSE)
            self._has_pending.clear()
            self.flush()


class _TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO gateway.request status=200 ...`, on one line unless something crashed."""

    def format(self, record: logging.LogRecord) -> str:
        said = _line_or_message(record)
        told = str(said) if isinstance(said, LogLine) else f"{record.name} {_one_line(said)}"
        crash = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{_format_time(record.created)} {record.levelname} {told}{crash}"


class _JSONFormatter(logging.Formatter):
    """`time`, `level`, `event`, then the fields of the event; what is not ours has a `message` and its `logger`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {"time": _format_time(record.created), "level": record.levelname.lower()}
        said = _line_or_message(record)
        if isinstance(said, LogLine):
            entry = {**said.fields, **entry, "event": said.event}
        else:
            entry |= {"event": "log", "logger": record.name, "message": said}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _text_line(at: float, level: int, event: str, fields: Mapping[str, object]) -> str:
    return f"{_format_time(at)} {logging.getLevelName(level)} {format_event(event, fields)}"


def _json_line(at: float, level: int, event: str, fields: Mapping[str, object]) -> str:
    entry = {**fields, "time": _format_time(at), "level": logging.getLevelName(level).lower(), "event": event}
    return orjson.dumps(entry, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _line_or_message(record: logging.LogRecord) -> LogLine | str:
    if isinstance(record.args, tuple) and len(record.args) == 1 and isinstance(record.args[0], LogLine):
        return record.args[0]
    return record.getMessage()


def _one_line(text: str) -> str:
    """Words of others cannot begin a line of their own, nor move the cursor."""
    return text if text.isprintable() else repr(text)[1:-1]


def _format_time(at: float) -> str:
    second = int(at)
    return f"{_format_second(second)}.{int((at - second) * 1000):03d}Z"


@lru_cache(maxsize=1)
def _format_second(at: int) -> str:
    """Busy gateways write many lines in the same second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
