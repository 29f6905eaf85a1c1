"""Printing of a run in the chosen format: the answer alone, the result as JSON, or all events as JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.output.events_json import event_line, json_text, result_data
from holodeck.cli.output.follow_run import Follower
from holodeck.cli.output.terminal import Terminal
from holodeck.engine.transcript import RunTranscript
from holodeck.lib.record import record
from holodeck.models.events import Event, RunFinished, RunResult, Status

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner

EXIT_CODES: dict[Status, int] = {
    "completed": 0,
    "failed": 1,
    "incomplete": 3,
    "requires_action": 3,
    "cancelled": 130,
}


@record
class OutputFormat:
    """The form in which a run prints on stdout. With neither option: the answer alone."""

    as_json: bool = False
    as_events: bool = False

    def print_result(self, result: RunResult, more: Mapping[str, Any], terminal: Terminal) -> None:
        if self.as_json:
            terminal.print_line(json_text({**result_data(result), **more}, indent=2))


def parse_output_format(*, as_json: bool, as_events: bool) -> OutputFormat:
    """Return the format for `--json` and `--events`. Raises a usage error if both are set."""
    if as_json and as_events:
        raise click.UsageError("Give --json or --events, not both.")
    return OutputFormat(as_json=as_json, as_events=as_events)


async def print_run(
    events: AsyncGenerator[Event, None],
    agent: AgentRunner,
    terminal: Terminal,
    output: OutputFormat,
    *,
    durable_run_id: str | None = None,
) -> RunResult:
    """Print a run until it ends, and return its result. A run that stops without a result is printed as cancelled.

    `durable_run_id` is the id of a run that can be resumed: if it is stopped, its status is `interrupted`.
    """
    printer, more = _RunPrinter(agent, terminal, output), {"run_id": durable_run_id} if durable_run_id else {}
    try:
        async with aclosing(events):
            async for event in events:
                printer.add(event)
    except asyncio.CancelledError:
        result = printer.transcript.build_stopped_result()
        if output.as_events and not durable_run_id:
            printer.print_line(RunFinished(result=result))
        output.print_result(result, {**more, "status": "interrupted"} if durable_run_id else more, terminal)
        raise
    if printer.transcript.result is None:
        printer.add(RunFinished(result=printer.transcript.build_stopped_result()))
    result = printer.transcript.result or printer.transcript.build_stopped_result()
    output.print_result(result, more, terminal)
    return result


class _RunPrinter:
    def __init__(self, agent: AgentRunner, terminal: Terminal, output: OutputFormat) -> None:
        self.transcript = RunTranscript()
        self._output = output
        self._terminal = terminal
        shows_answer = not (output.as_json or output.as_events)
        self._follower = None if output.as_events else Follower(agent, terminal, writes_answer=shows_answer)
        self._next_number = 0

    def add(self, event: Event) -> None:
        self.transcript.add(event)
        if self._output.as_events:
            self.print_line(event)
        if self._follower is not None:
            self._follower.show(event)

    def print_line(self, event: Event) -> None:
        self._terminal.print_line(event_line(self._next_number, event))
        self._next_number += 1
