"""Writes the log messages of a server to a Python logger of its own, `holodeck.mcp.server.<name>`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson

from holodeck.lib.limits import KIB

# Characters of one log message of a server that are logged; the server chooses their number.
MAX_LOGGED_CHARS = 8 * KIB

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
LEVEL_NAMES = tuple(_LEVELS)
"""The levels of MCP, the most verbose one first."""
_DISABLED_LOGGER = logging.Logger("disabled", level=logging.CRITICAL + 1)


class ServerLog:
    """The logger of one server. With None as the name messages are dropped.

    No logger is created then: Python never deletes one, and the names of untrusted servers are unbounded.
    """

    def __init__(self, server: str | None) -> None:
        self._logger = _DISABLED_LOGGER if server is None else logging.getLogger(f"holodeck.mcp.server.{server}")
        self._requested: str | None = None

    def level(self) -> str:
        """Return the MCP level to request from the server: the lowest one that the logger emits."""
        wanted = self._logger.getEffectiveLevel()
        names = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
        return next((name for number, name in names.items() if wanted <= number), "critical")

    def lower_request(self, level: str | None) -> str | None:
        """Return the level to request from the server so that it sends this one too; None if it does already.

        Clients in front share the server: a level is never raised again for one of them. `level` None: only our own.
        """
        wanted = self.level() if self._requested is None else self._requested
        if level is not None:
            wanted = lower_level(wanted, level)
        if wanted == self._requested:
            return None
        self._requested = wanted
        return wanted

    def write(self, params: Mapping[str, Any]) -> None:
        """Log one `notifications/message`."""
        level = _LEVELS.get(str(params.get("level")), logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        data = params.get("data")
        text = data if isinstance(data, str) else _dump_log_data(data)
        source = params.get("logger")
        shown = f"{source}: {text}" if isinstance(source, str) and source else text
        self._logger.log(level, "%s", shown[:MAX_LOGGED_CHARS])


def is_logged_at(level: object, lowest: str) -> bool:
    """Return whether a message of this level is one that a client wants that has asked for `lowest` and above."""
    return level not in LEVEL_NAMES or LEVEL_NAMES.index(str(level)) >= LEVEL_NAMES.index(lowest)


def lower_level(one: str, other: str) -> str:
    """Return the more verbose of two levels."""
    return min(one, other, key=LEVEL_NAMES.index)


def _dump_log_data(data: object) -> str:
    try:
        return orjson.dumps(data).decode()
    except (TypeError, ValueError):
        return str(data)
