"""Output of the events of `holodeck mcp dev`, as lines or as JSON, in the order in which they happen.

Events come from callbacks of the event loop, where an error of standard output could not be raised: `show` only queues
them, and the task of `run` prints them. Output pauses while a question to the user is open. The queue is bounded:
a server that writes faster than a terminal shows loses lines, and is told how many.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, assert_never

import click

from holodeck.cli.dev.events import (
    CallCancelled,
    CallFinished,
    CallProgress,
    CallStarted,
    Connected,
    DevEvent,
    Notice,
    OthersListed,
    ServerFailed,
    Starting,
    StderrLine,
    ToolsListed,
    Watching,
    event_data,
    reason_of,
)
from holodeck.cli.output import stdin
from holodeck.cli.output.events_json import json_text, to_plain_data
from holodeck.cli.output.tables import count_of
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import KIB, MAX_DESCRIPTION_SHOWN, MAX_TOOL_NAME_CHARS
from holodeck.lib.record import record
from holodeck.tools.mcp.lock.drift import describe_parameters

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.lint.finding import Finding


# Characters of a signature or of arguments in one line.
_MAX_SHOWN_CHARS = 200
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


@record
class Line:
    """One line, with its style."""

    text: str
    colour: str | None = None
    is_dim: bool = False
    is_bold: bool = False


def describe_event(event: DevEvent) -> Iterator[Line]:  # noqa: PLR0912 - a case for each kind
    """Yield the lines of an event."""
    match event:
        case Watching():
            yield from _describe_watching(event)
        case Starting():
            yield Line(
                text=f"restarting: {event.reason}" if event.reason else f"starting: {event.command}", is_dim=True
            )
        case Connected():
            about = f"{event.server or 'a server without a name'}, protocol {event.protocol} ({event.era})"
            yield Line(text=f"connected in {_format_seconds(event.seconds)}: {about}", colour="green")
        case ToolsListed():
            yield from _describe_tools(event)
        case OthersListed():
            yield from _describe_names("resource", event.resources)
            yield from _describe_names("prompt", event.prompts)
        case StderrLine():
            yield Line(text=f"stderr | {event.line}", is_dim=True)
        case Notice():
            yield Line(text=event.text, colour="yellow" if event.is_warning else None, is_dim=not event.is_warning)
        case CallStarted():
            yield Line(text=f"call {event.tool} {json_text(to_plain_data(event.arguments))}", is_bold=True)
        case CallProgress():
            share = "" if event.done is None else f" {event.done:g}{f' of {event.total:g}' if event.total else ''}"
            yield Line(text=f"progress{share} {event.message}".rstrip(), is_dim=True)
        case CallFinished():
            yield from _describe_result(event)
        case CallCancelled():
            yield Line(text=f"cancelled after {_format_seconds(event.seconds)}", colour="yellow")
        case ServerFailed():
            yield from _describe_failure(event)
        case _:
            assert_never(event)


def _describe_watching(event: Watching) -> Iterator[Line]:
    yield Line(text=f"watching {', '.join(event.paths)} ({count_of(event.files, 'file')})", is_dim=True)
    if event.is_cut:
        text = "There are more files than can be watched; the others are not. Name what matters with --watch."
        yield Line(text=text, colour="yellow")


def _describe_tools(event: ToolsListed) -> Iterator[Line]:
    if event.changes is None:
        yield Line(text=count_of(len(event.tools), "tool"))
        yield from (Line(text=f"  {_describe_tool(tool)}") for tool in event.tools)
    elif not event.changes:
        yield Line(text=f"{count_of(len(event.tools), 'tool')}, unchanged")
    else:
        yield Line(text=f"{count_of(len(event.tools), 'tool')}, {count_of(len(event.changes), 'change')}:")
        by_name = {tool.name: tool for tool in event.tools}
        for change in event.changes:
            sign, colour = _SIGNS[change.kind]
            tool = by_name.get(change.tool)
            about = _describe_tool(tool) if tool is not None and change.kind == "added" else _short_name(change.tool)
            yield Line(text=f"  {sign} {about}", colour=colour)
            yield from (Line(text=f"      {detail}") for detail in change.details)
    yield from _describe_findings(event)


def _describe_names(noun: str, names: Sequence[str]) -> Iterator[Line]:
    if names:
        yield Line(text=count_of(len(names), noun))
        yield from (Line(text=f"  {_short_name(name)}") for name in names)


def _describe_findings(event: ToolsListed) -> Iterator[Line]:
    for finding in event.new_findings:
        colour = "red" if finding.severity == "error" else "yellow"
        yield Line(text=f"{finding.severity} {finding.code}: {_describe_place(finding)}", colour=colour)
        yield Line(text=f"  {finding.message}")
    remaining = len(event.findings) - len(event.new_findings)
    if remaining:
        yield Line(text=f"{count_of(remaining, 'finding')} as before", colour="yellow")


def _describe_result(event: CallFinished) -> Iterator[Line]:
    result, duration = event.result, _format_seconds(event.seconds)
    if event.is_server_lost:
        yield Line(text=f"failed after {duration}: the server ended during the call", colour="red")
        return
    if result.error is not None and not result.is_error:
        yield Line(text=f"failed after {duration}: {reason_of(result.error)}", colour="red")
        return
    yield from (Line(text=line) for line in result.text.split("\n"))
    for warning in result.metadata.get("warnings", ()):
        yield Line(text=f"warning: {warning}", colour="yellow")
    if result.success:
        yield Line(text=f"ok, {duration}", colour="green")
    else:
        yield Line(text=f"the tool reported an error, {duration}", colour="red")


def _describe_failure(event: ServerFailed) -> Iterator[Line]:
    happened = "did not start" if event.phase == "start" else "failed"
    yield Line(text=f"{happened}: {event.reason}", colour="red")
    if not event.has_shown_stderr:
        yield from (Line(text=f"stderr | {line}", is_dim=True) for line in event.stderr.splitlines())


def _describe_tool(tool: MCPToolInfo) -> str:
    signature = one_line(f"{_short_name(tool.name)}({describe_parameters(tool.input_schema)})", _MAX_SHOWN_CHARS)
    return f"{signature}  {one_line(tool.description or tool.title or '', MAX_DESCRIPTION_SHOWN)}".rstrip()


def _describe_place(finding: Finding) -> str:
    return one_line(" ".join(part for part in (finding.tool, finding.place) if part), _MAX_SHOWN_CHARS)


def _short_name(name: str) -> str:
    return one_line(name, MAX_TOOL_NAME_CHARS)


def _format_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


# Events that wait to be printed: more than a terminal scrolls back.
MAX_QUEUED_EVENTS = 10 * KIB


class EventPrinter:
    """The only writer of standard output while the command runs."""

    def __init__(self, *, as_json: bool) -> None:
        self.can_ask = stdin.is_terminal() and sys.stderr.isatty()
        """Questions can be put to the user."""
        self._as_json = as_json
        self._queue: asyncio.Queue[DevEvent] = asyncio.Queue()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._dropped = 0

    def show(self, event: DevEvent) -> None:
        """Queue an event. Does not block; may be called from any callback of the event loop."""
        if self._queue.qsize() >= MAX_QUEUED_EVENTS:
            self._dropped += 1
            return
        if self._dropped:
            text = f"{self._dropped} lines are left out: there were too many at once."
            self._dropped = 0
            self._queue.put_nowait(Notice(text=text, is_warning=True))
        self._queue.put_nowait(event)

    async def run(self) -> None:
        """Print events until cancelled. Raises what standard output raises."""
        while True:
            event = await self._queue.get()
            await self._is_open.wait()
            try:
                self._print(event)
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Wait until everything that was shown is printed."""
        await self._queue.join()

    @contextmanager
    def pause_output(self) -> Iterator[None]:
        """Print nothing inside the block, while the user answers a question; it follows afterwards."""
        self._is_open.clear()
        try:
            yield
        finally:
            self._is_open.set()

    def _print(self, event: DevEvent) -> None:
        if self._as_json:
            click.echo(json_text(event_data(event)))
            return
        for line in describe_event(event):
            _print_line(line)


def _print_line(line: Line) -> None:
    text = escape_unprintable(line.text)
    click.secho(text, fg=line.colour, dim=line.is_dim or None, bold=line.is_bold or None)
