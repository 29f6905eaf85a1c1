"""Log events of a run as sentences for the user: a server is ready or lost, a model is asked again.

`collect_notices` attaches a log handler to the `holodeck` logger for the duration of a block and restores the logger
afterwards. Events without a sentence are shown only from level WARNING on.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holodeck.config.agent_loader import DEFAULT_AGENT_FILE
from holodeck.lib import log
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_FAILURE_SHOWN

Notify = Callable[[str, bool], None]
"""Receives a sentence, and whether it is a warning."""

_SERVERS = f"{log.ROOT}.mcp.server"
_LOCKED = ("tool", "prompt", "resource", "template")
"""The fields of `mcp.withheld` that name what is withheld. None of them: the instructions of the server."""
_SHOWN_ELSEWHERE = frozenset({"mcp.call_failed", "mcp.hung"})
"""A failed call has a line of its own in the run; a server that hangs is reported when its connection is lost."""


class ServerNotices(logging.Handler):
    """Log handler that turns events into sentences and stores the last error of each server in `last_errors`."""

    def __init__(self, notify: Notify, checked_file: Path | None = None) -> None:
        """`checked_file`: the file that has the servers; a missing one is told with the command that checks it."""
        super().__init__(logging.INFO)
        self.last_errors: dict[str, str] = {}
        self._checked_file = checked_file
        self._notify = notify
        self._seen_servers: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(f"{_SERVERS}."):
            server = record.name.removeprefix(f"{_SERVERS}.")
            self._notify(f"{server} says: {_one_line_text(record.getMessage())}", record.levelno >= logging.ERROR)
            return
        line = log.line_of(record)
        event, fields = line.event, line.fields
        if event in _SHOWN_ELSEWHERE:
            return
        sentence = self._sentence(event, fields)
        if sentence is None and record.levelno >= logging.WARNING:
            sentence = _one_line_text(record.getMessage())
        if sentence is not None:
            self._notify(sentence, record.levelno >= logging.WARNING)

    def _sentence(self, event: str, fields: Mapping[str, Any]) -> str | None:
        server = str(fields.get("server", ""))
        match event:
            case "mcp.connected":
                word = "is back" if server in self._seen_servers else "is ready"
                self._seen_servers.add(server)
                return f"{server} {word} ({fields.get('ms')} ms)"
            case "mcp.lost":
                self.last_errors[server] = str(fields.get("error"))
                return f"{server} is gone: {_one_line_text(fields.get('error'))} It is started again when it is needed."
            case "mcp.unavailable":
                self.last_errors[server] = str(fields.get("reason"))
                advice = "" if self._checked_file is None else _doctor_sentence(server, self._checked_file)
                return f"{server} is not available: {_one_line_text(fields.get('reason'))}{advice}"
            case "mcp.same_names" | "mcp.full_names":
                return _names_sentence(server, _one_line_text(fields.get("offered_as")), fields.get("unlisted"))
            case "mcp.dropped" | "mcp.withheld":
                return _left_out_sentence(server, event, fields)
            case "mcp.list_cut":
                return f"{server} lists too much: only its first {fields.get('kept')} {fields.get('list')} are used."
            case "model.retry":
                return f"{_one_line_text(fields.get('reason'))} It is tried again in {fields.get('pause')} s."
            case "model.left_alone":
                failures, pause = fields.get("failures"), fields.get("pause")
                return f"{fields.get('model')} failed {failures} times in a row and is left alone for {pause:g} s."
            case (
                "mcp.unmatched_pattern"
                | "mcp.tools_changed"
                | "mcp.variables_withheld"
                | "model.answer_does_not_fit"
                | "model.slow"
                | "process.out_of_files"
                | "storage.waiting"
            ):
                return str(fields.get("notice"))
            case _:
                return None


@contextmanager
def collect_notices(
    notify: Notify, *, checked_file: Path | None = None, shows_all: bool = False
) -> Iterator[ServerNotices]:
    """Pass notices to `notify` inside the block, and nowhere else: propagation is off meanwhile.

    `checked_file`: see `ServerNotices`. `shows_all`: also what servers say that is no warning.
    """
    root, servers = logging.getLogger(log.ROOT), logging.getLogger(_SERVERS)
    handler = ServerNotices(notify, checked_file)
    before = root.level, root.propagate, servers.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    root.propagate = False
    # Messages of the servers themselves are mostly chatter below this level.
    servers.setLevel(logging.INFO if shows_all else logging.WARNING)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        root.level, root.propagate, servers.level = before


def _doctor_sentence(server: str, file: Path) -> str:
    path, here = file.absolute(), Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    place = "" if str(shown) == DEFAULT_AGENT_FILE else f" -f {shlex.quote(str(shown))}"
    return f" To check it: holodeck mcp doctor {shlex.quote(server)}{place}"


def _names_sentence(server: str, names: str, unlisted: object) -> str:
    if unlisted:
        return f"Until it is known what tools {unlisted} has, those of {server} are offered as {names}."
    return f"Another server has tools with names that {server} uses, too; here they are offered as {names}."


def _left_out_sentence(server: str, event: str, fields: Mapping[str, Any]) -> str:
    reason = _one_line_text(fields.get("reason"))
    if event == "mcp.dropped":
        return f"{server}: '{_one_line_text(fields.get('name'))}' is left out: {reason}"
    names = (f"its {noun} '{fields[noun]}'" for noun in _LOCKED if noun in fields)
    named = _one_line_text(next(names, "the text of its instructions"))
    return f"{server}: {named} is withheld: {reason}. 'holodeck mcp lock --accept' accepts it."


def _one_line_text(value: object) -> str:
    return one_line(str(value), MAX_FAILURE_SHOWN)
