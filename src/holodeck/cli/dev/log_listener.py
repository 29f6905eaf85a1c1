"""The log of the MCP client and of the server, as notices of `holodeck mcp dev`.

An author needs more of it than a user: each line of standard output that is no message, each tool that models are not
offered, and the messages that the server sends to its client's log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holodeck.cli.dev.events import DevEvent, Notice
from holodeck.lib import log
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_FAILURE_SHOWN
from holodeck.tools.mcp.transports.duplex import UNEXPECTED_ANSWER

_SERVERS = f"{log.ROOT}.mcp.server."
_SHOWN_ELSEWHERE = frozenset({"mcp.lost", "mcp.failed"})
"""Events that are also events of the server or of a call."""


@contextmanager
def listen_to_log(show: Callable[[DevEvent], None]) -> Iterator[None]:
    """Pass notices to `show` inside the block, and nothing to other handlers of the process."""
    root = logging.getLogger(log.ROOT)
    before = root.level, root.propagate
    handler = _LogListener(show)
    root.addHandler(handler)
    # A line that is no message is a matter of debugging everywhere else.
    root.setLevel(logging.DEBUG)
    root.propagate = False
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.level, root.propagate = before


class _LogListener(logging.Handler):
    """Turns log records into notices. Those that an author cannot act on are left out."""

    def __init__(self, show: Callable[[DevEvent], None]) -> None:
        super().__init__(logging.DEBUG)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        is_warning = record.levelno >= logging.WARNING
        if record.name.startswith(_SERVERS):
            level = record.levelname.lower()
            self._show(Notice(text=f"log {level} | {_shorten(record.getMessage())}", is_warning=is_warning))
            return
        event, fields = getattr(record, "event", ""), getattr(record, "fields", {})
        text = _describe(event, fields)
        if text is None and is_warning and event not in _SHOWN_ELSEWHERE:
            text = _shorten(record.getMessage())
        if text is not None:
            self._show(Notice(text=text, is_warning=True))


def _describe(event: str, fields: Mapping[str, Any]) -> str | None:
    match event:
        # A late answer is no mistake, and one that belongs to no request has an event of its own.
        case "mcp.discarded" if fields.get("problem") == UNEXPECTED_ANSWER:
            return None
        case "mcp.discarded":
            raw, problem = _shorten(fields.get("raw")), _shorten(fields.get("problem"))
            return f"A line of its standard output is no message ({problem}): {raw}"
        case "mcp.dropped":
            return f"'{_shorten(fields.get('name'))}' is left out: {_shorten(fields.get('reason'))}"
        case "mcp.variables_withheld":
            return str(fields.get("notice"))
        case "mcp.close_failed":
            return _shorten(fields.get("error"))
        case _:
            return None


def _shorten(value: object) -> str:
    return one_line(str(value), MAX_FAILURE_SHOWN)
