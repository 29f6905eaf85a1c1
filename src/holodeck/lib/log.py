"""Logs are events with fields: `log.info("mcp.connected", server="files", ms=12)`, on top of standard logging."""

from __future__ import annotations

import logging
from functools import cache

ROOT = "holodeck"


def debug(event: str, /, **fields: object) -> None:
    _emit(logging.DEBUG, event, fields)


def info(event: str, /, **fields: object) -> None:
    _emit(logging.INFO, event, fields)


def warning(event: str, /, **fields: object) -> None:
    _emit(logging.WARNING, event, fields)


def error(event: str, /, **fields: object) -> None:
    _emit(logging.ERROR, event, fields)


@cache
def _logger(area: str) -> logging.Logger:
    return logging.getLogger(f"{ROOT}.{area}")


def _emit(level: int, event: str, fields: dict[str, object]) -> None:
    logger = _logger(event.partition(".")[0])
    if logger.isEnabledFor(level):
        text = " ".join([event, *(f"{key}={_shown(value)}" for key, value in fields.items())])
        logger.log(level, "%s", text, extra={"event": event, "fields": fields})


def _shown(value: object) -> str:
    """Plain words stay plain; anything that could break a line or a field is quoted."""
    text = str(value)
    return text if text and text.isprintable() and " " not in text and "=" not in text else repr(text)
