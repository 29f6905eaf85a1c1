"""Prints the events of `holodeck mcp dev` on standard output, as lines or as JSON, in the order in which they happen.

Events come from callbacks of the event loop, where an error of standard output could not be raised: `show` only queues
them, and the task of `run` prints them. Output pauses while a question to the user is open. The queue is bounded:
a server that writes faster than a terminal shows loses lines, and is told how many.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from holodeck.cli.dev.event_text import Line, describe_event
from holodeck.cli.dev.events import DevEvent, Notice, event_data
from holodeck.cli.output import stdin
from holodeck.cli.output.events_json import json_text
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.limits import KIB

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
