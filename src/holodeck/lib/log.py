"""Logs are events with fields: `log.info("mcp.connected", server="files", ms=12)`, on top of standard logging.

Names, numbers and ids are fields. The value of an argument, a prompt or an answer never is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

ROOT = "holodeck"
_about: ContextVar[dict[str, object] | None] = ContextVar("holodeck_log", default=None)


def debug(event: str, /, **fields: object) -> None:
    _emit(logging.DEBUG, event, fields)


def info(event: str, /, **fields: object) -> None:
    _emit(logging.INFO, event, fields)


def warning(event: str, /, **fields: object) -> None:
    _emit(logging.WARNING, event, fields)


def error(event: str, /, **fields: object) -> None:
    _emit(logging.ERROR, event, fields)


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """Every line of this block, and of the tasks that it starts, has these fields; once it is over, none has.

    So a connection that a request has opened says whose it was while that lasts, and not for ever after.
    """
    own = {**(_about.get() or {}), **fields}
    token = _about.set(own)
    try:
        yield
    finally:
        _about.reset(token)
        own.clear()


def note(**fields: object) -> None:
    """One more thing that is now known of what the current block is about."""
    own = _about.get()
    if own is not None:
        own |= fields


class Line:
    """An event with its fields, written out only if somebody reads it."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{key}={_shown(value)}" for key, value in self.fields.items())])


@cache
def _logger(area: str) -> logging.Logger:
    return logging.getLogger(f"{ROOT}.{area}")


def _emit(level: int, event: str, fields: dict[str, object]) -> None:
    logger = _logger(event.partition(".")[0])
    if logger.isEnabledFor(level):
        own = _about.get()
        if own:
            fields |= {key: value for key, value in own.items() if key not in fields}
        # Made here because `logger.log` would first look for the line of code, which costs more than the rest.
        record = logging.LogRecord(logger.name, level, "", 0, "%s", (Line(event, fields),), None)
        record.event, record.fields = event, fields
        logger.handle(record)


def _shown(value: object) -> str:
    """Plain words stay plain; anything that could break a line or a field is quoted."""
    text = str(value)
    return text if text and text.isprintable() and " " not in text and "=" not in text else repr(text)
