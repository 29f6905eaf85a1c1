"""Structured logging on top of the standard library: `log.info("mcp.connected", server="files", ms=12)`.

An event has a name and fields. Fields are names, numbers and ids, never the value of an argument, a prompt or an
answer. `scope` adds fields to every event of a block and of the tasks that it starts. `set_writer` installs the
process's `LogWriter`; while it is the only handler, events go to it directly, otherwise through standard logging. In a
program without any handler events are dropped.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar, Token
from functools import cache, partial
from types import TracebackType
from typing import Protocol

from holodeck.lib.redaction import LOG_SECRETS

ROOT = "holodeck"
_NUMBERS = frozenset({int, float, bool})
_scope_fields: ContextVar[dict[str, object] | None] = ContextVar("holodeck_log", default=None)


class WriteEvent(Protocol):
    """`debug`, `info`, `warning` or `error`."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


class scope:  # noqa: N801 - used as a context manager: `with log.scope(...)`
    """Adds fields to every event of a `with` block and of the tasks that it starts, until the block ends.

    A task that outlives the block, such as a connection that a request opened, logs without them afterwards.
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: object) -> None:
        self._fields = fields
        self._token: Token[dict[str, object] | None]

    def __enter__(self) -> None:
        around = _scope_fields.get()
        if around:
            self._fields = {**around, **self._fields}
        self._token = _scope_fields.set(self._fields)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _scope_fields.reset(self._token)
        self._fields.clear()


def set_scope(fields: dict[str, object]) -> None:
    """Add fields to every event of the current task and of the tasks that it starts, until they are removed from it.

    For the task of a request, which ends with it: costs less than `scope`.
    """
    _scope_fields.set(fields)


def add_fields(**fields: object) -> None:
    """Add fields to the innermost `scope`. Outside of one, do nothing."""
    own = _scope_fields.get()
    if own is not None:
        own |= fields


def current_fields() -> dict[str, object]:
    """Return a copy of the fields of the innermost `scope`, for work that continues after it."""
    return dict(_scope_fields.get() or {})


class LogWriter(logging.Handler, ABC):
    """Writes the log of this process: our events through `write`, records of other libraries as a handler."""

    @abstractmethod
    def write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        """Write one of our events."""


_writers: list[LogWriter] = []
_root_logger = logging.getLogger(ROOT)


def set_writer(writer: LogWriter) -> None:
    """Install the writer of this process. Our events bypass standard logging while it is the only handler."""
    _writers[:] = [writer]


class LogLine:
    """An event with its fields, formatted and masked only when a handler asks for its text."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return LOG_SECRETS.mask(format_event(self.event, self.fields))


def line_of(record: logging.LogRecord) -> LogLine:
    """Return the event of a record; one without a name for a record of another library."""
    match record.args:
        case (LogLine() as line,):
            return line
        case _:
            return LogLine("", {})


def format_event(event: str, fields: Mapping[str, object]) -> str:
    """Return an event as text: its name, then `key=value` pairs."""
    parts = [event]
    for key, value in fields.items():
        parts.append(f"{key}={value}" if type(value) in _NUMBERS else f"{key}={_quote_value(value)}")
    return " ".join(parts)


@cache
def _logger(area: str) -> logging.Logger:
    return logging.getLogger(f"{ROOT}.{area}")


def _emit(level: int, event: str, /, **fields: object) -> None:
    logger = _logger(event.partition(".")[0])
    if logger.isEnabledFor(level):
        own = _scope_fields.get()
        if own:
            for key in own:
                fields.setdefault(key, own[key])
        # Our writer is the only handler, so that the cost of standard logging can be saved.
        others = logger.handlers or logger.filters or _root_logger.handlers
        if _writers and not others and logging.root.handlers == _writers:
            _writers[0].write(level, event, fields)
            return
        # A library is quiet: where the program has no handler, standard logging would print warnings to stderr.
        if not logger.hasHandlers():
            return
        # Built here because `logger.log` would first look up the line of code, which costs more than the rest.
        record = logging.LogRecord(logger.name, level, "", 0, "%s", (LogLine(event, fields),), None)
        record.event, record.fields = event, fields
        logger.handle(record)


debug: WriteEvent = partial(_emit, logging.DEBUG)
info: WriteEvent = partial(_emit, logging.INFO)
warning: WriteEvent = partial(_emit, logging.WARNING)
error: WriteEvent = partial(_emit, logging.ERROR)


def _quote_value(value: object) -> str:
    """Quote a value with characters that could end a line or a field; leave plain words as they are. Join lists."""
    text = value if type(value) is str else ", ".join(map(str, value)) if type(value) is list else str(value)
    return text if text and text.isprintable() and " " not in text and "=" not in text else repr(text)
