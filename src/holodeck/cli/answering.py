"""A run, printed in the form that was asked for: the answer alone, the result as JSON, or all events as JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.events_json import event_line, json_text, result_data
from holodeck.cli.follow import Follower
from holodeck.cli.terminal import Terminal
from holodeck.engine.history import Record
from holodeck.models.events import Event, RunFinished, RunResult, Status

if TYPE_CHECKING:
    from holodeck.agent import Agent

EXIT_CODES: dict[Status, int] = {
    "completed": 0,
    "failed": 1,
    "incomplete": 3,
    "requires_action": 3,
    "cancelled": 130,
}


@dataclass(frozen=True, kw_only=True)
class Form:
    """Neither: the answer alone."""

    as_json: bool = False
    as_events: bool = False

    def print_result(self, result: RunResult, more: Mapping[str, Any], terminal: Terminal) -> None:
        if self.as_json:
            terminal.say(json_text({**result_data(result), **more}, indent=2))


def form_of(*, as_json: bool, as_events: bool) -> Form:
    """What the options of a command ask for."""
    if as_json and as_events:
        raise click.UsageError("Give --json or --events, not both.")
    return Form(as_json=as_json, as_events=as_events)


async def show_answer(
    events: AsyncGenerator[Event, None], agent: Agent, terminal: Terminal, form: Form, *, kept_as: str | None = None
) -> RunResult:
    """Show a run to its end. One that stops without an end is shown as cancelled.

    `kept_as` is the id of a run that can be gone on with: stopped, it is not at its end.
    """
    shown, more = _Shown(agent, terminal, form), {"run_id": kept_as} if kept_as else {}
    try:
        async with aclosing(events):
            async for event in events:
                shown.add(event)
    except asyncio.CancelledError:
        result = shown.record.stopped()
        if form.as_events and not kept_as:
            shown.print_line(RunFinished(result=result))
        form.print_result(result, {**more, "status": "interrupted"} if kept_as else more, terminal)
        raise
    if shown.record.result is None:
        shown.add(RunFinished(result=shown.record.stopped()))
    result = shown.record.result or shown.record.stopped()
    form.print_result(result, more, terminal)
    return result


class _Shown:
    def __init__(self, agent: Agent, terminal: Terminal, form: Form) -> None:
        self.record = Record()
        self._form = form
        self._terminal = terminal
        shows_answer = not (form.as_json or form.as_events)
        self._follower = None if form.as_events else Follower(agent, terminal, writes_answer=shows_answer)
        self._number = 0

    def add(self, event: Event) -> None:
        self.record.add(event)
        if self._form.as_events:
            self.print_line(event)
        if self._follower is not None:
            self._follower.show(event)

    def print_line(self, event: Event) -> None:
        self._terminal.say(event_line(self._number, event))
        self._number += 1
