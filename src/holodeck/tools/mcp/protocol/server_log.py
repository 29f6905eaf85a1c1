"""What a server logs goes to a Python logger of its own, `holodeck.mcp.server.<name>`, at the level it means."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson

from holodeck.lib.limits import KIB

# Of one log message of a server.
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
_DISABLED_LOGGER = logging.Logger("unheard", level=logging.CRITICAL + 1)


class ServerLog:
    """The logger of one server. Without a name nobody listens, and no logger is made, which would stay for ever."""

    def __init__(self, server: str | None) -> None:
        self._logger = _DISABLED_LOGGER if server is None else logging.getLogger(f"holodeck.mcp.server.{server}")

    def level(self) -> str:
        """The level to ask the server for: no more than somebody here would see."""
        wanted = self._logger.getEffectiveLevel()
        names = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
        return next((name for number, name in names.items() if wanted <= number), "critical")

    def write(self, params: Mapping[str, Any]) -> None:
        """One `notifications/message`."""
        level = _LEVELS.get(str(params.get("level")), logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        data = params.get("data")
        text = data if isinstance(data, str) else _dump_log_data(data)
        source = params.get("logger")
        shown = f"{source}: {text}" if isinstance(source, str) and source else text
        self._logger.log(level, "%s", shown[:MAX_LOGGED_CHARS])


def _dump_log_data(data: object) -> str:
    try:
        return orjson.dumps(data).decode()
    except (TypeError, ValueError):
        return str(data)
