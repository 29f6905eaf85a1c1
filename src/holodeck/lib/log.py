"""Logs are events with fields: `log.info("mcp.connected", server="files", ms=12)`, on top of standard logging.

Names, numbers and ids are fields. The value of an argument, a prompt or an answer never is.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar, Token
from functools import cache
from types import TracebackType

from holodeck.lib.redaction import LOG_SECRETS

ROOT = "holodeck"
_NUMBERS = frozenset({int, float, bool})
_scope_fields: ContextVar[dict[str, object] | None] = ContextVar("holodeck_log", default=None)


def debug(event: str, /, **fields: object) -> None:
    _emit(logging.DEBUG, event, fields)


def info(event: str, /, **fields: object) -> None:
    _emit(logging.INFO, event, fields)


def warning(event: str, /, **fields: object) -> None:
    _emit(logging.WARNING, event, fields)


def error(event: str, /, **fields: object) -> None:
    _emit(logging.ERROR, event, fields)


class scope:  # noqa: N801 - it reads as what it does
    """Every line of this block, and of the tasks that it starts, has these fields; once it is over, none has.

    So a connection that a request has opened says whose it was while that lasts, and not for ever after.
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


def add_fields(**fields: object) -> None:
    """One more thing that is now known of what the current block is about."""
    own = _scope_fields.get()
    if own is not None:
        own |= fields


def current_fields() -> dict[str, object]:
    """What the current block is about so far, for work that goes on after it."""
    return dict(_scope_fields.get() or {})


class LogWriter(logging.Handler, ABC):
    """Writes the log of this process down: our own lines, and as a handler what others log."""

    @abstractmethod
    def write(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        """Write a line of ours."""


_writers: list[LogWriter] = []
_root_logger = logging.getLogger(ROOT)


def set_writer(writer: LogWriter) -> None:
    """Who writes the log of this process: our own lines go straight there, unless others hear them, too."""
    _writers[:] = [writer]


class LogLine:
    """An event with its fields, written out only if somebody reads it."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return LOG_SECRETS.mask(format_event(self.event, self.fields))


def format_event(event: str, fields: Mapping[str, object]) -> str:
    """An event with its fields as people read it."""
    parts = [event]
    for key, value in fields.items():
        parts.append(f"{key}={value}" if type(value) in _NUMBERS else f"{key}={_quote_value(value)}")
    return " ".join(parts)


@cache
def _logger(area: str) -> logging.Logger:
    return logging.getLogger(f"{ROOT}.{area}")


def _emit(level: int, event: str, fields: dict[str, object]) -> None:
    logger = _logger(event.partition(".")[0])
    if logger.isEnabledFor(level):
        own = _scope_fields.get()
        if own:
            fields |= {key: value for key, value in own.items() if key not in fields}
        if _is_only_writer(logger):
            _writers[0].write(level, event, fields)
            return
        # Made here because `logger.log` would first look for the line of code, which costs more than the rest.
        record = logging.LogRecord(logger.name, level, "", 0, "%s", (LogLine(event, fields),), None)
        record.event, record.fields = event, fields
        logger.handle(record)


def _is_only_writer(logger: logging.Logger) -> bool:
    """Whether standard logging would give a line to our writer only: its long way there costs as much as the line."""
    others = logger.handlers or logger.filters or _root_logger.handlers
    return not others and bool(_writers) and logging.root.handlers == _writers


def _quote_value(value: object) -> str:
    """Plain words stay plain; anything that could break a line or a field is quoted."""
    text = value if type(value) is str else str(value)
    return text if text and text.isprintable() and " " not in text and "=" not in text else repr(text)
