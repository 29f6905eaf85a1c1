"""Display of a run on a terminal: the answer as it streams, each tool call, and a summary at the end.

`print_run` prints it in the chosen format: the answer alone, the result as JSON, or all events as JSON lines.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.output.events_json import event_line, json_text, result_data
from holodeck.cli.output.run_lines import (
    call_finished_line,
    call_started_line,
    call_title,
    failure_line,
    run_summary_line,
)
from holodeck.cli.output.terminal import Screen, Terminal
from holodeck.engine.transcript import RunTranscript
from holodeck.lib.record import record
from holodeck.models.events import (
    Event,
    ItemFinished,
    RunFinished,
    RunResult,
    RunStarted,
    StandInAnswered,
    Status,
    TextAdded,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnStarted,
)
from holodeck.models.items import Message

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner

THINKING = "the model is thinking"
_COLOURS = {"completed": "green", "incomplete": "yellow"}
EXIT_CODES: dict[Status, int] = {
    "completed": 0,
    "failed": 1,
    "incomplete": 3,
    "requires_action": 3,
    "cancelled": 130,
}


class RunFollower(ABC):
    """Shows the events of one run: takes each event apart, and leaves to subclasses how it looks."""

    def __init__(self, agent: AgentRunner, screen: Screen) -> None:
        self._agent = agent
        self._screen = screen
        self._streamed_ids: set[str] = set()

    def show(self, event: Event) -> None:
        match event:
            case RunStarted(model=model):
                self._on_run_started(model)
            case TurnStarted():
                self._screen.show_waiting(THINKING)
            case StandInAnswered(name=name):
                self._screen.note(f"The stand-in {name} answers.", fg="yellow")
            case TextAdded(item_id=item_id, text=text):
                self._streamed_ids.add(item_id)
                self._on_text(text)
            case ItemFinished(item=Message() as message):
                self._on_message(message, is_streamed=message.id in self._streamed_ids)
            case ToolStarted(name=name):
                self._on_tool_started(event, call_title(self._agent, name))
            case ToolProgressed():
                self._on_tool_progressed(event)
            case ToolFinished():
                self._on_tool_finished(event)
            case RunFinished(result=result):
                self._on_run_finished(result)
            case _:
                pass

    @abstractmethod
    def _on_run_started(self, model: str) -> None: ...

    @abstractmethod
    def _on_text(self, text: str) -> None: ...

    @abstractmethod
    def _on_message(self, message: Message, *, is_streamed: bool) -> None:
        """Show a message. `is_streamed`: its text was shown before, piece by piece."""

    @abstractmethod
    def _on_tool_started(self, event: ToolStarted, title: str) -> None: ...

    @abstractmethod
    def _on_tool_progressed(self, event: ToolProgressed) -> None: ...

    def _on_tool_finished(self, event: ToolFinished) -> None:
        line, colour = call_finished_line(self._agent, event)
        self._screen.note(line, fg=colour)
        self._screen.show_waiting(THINKING)

    @abstractmethod
    def _on_run_finished(self, result: RunResult) -> None: ...


class Follower(RunFollower):
    """Shows the events of one run on a terminal, in a file or in a pipe.

    A terminal gets all text of the model as it streams. A file or a pipe gets the answer alone, at the end: until the
    model calls a tool, text before the call cannot be distinguished from an answer.
    """

    def __init__(self, agent: AgentRunner, terminal: Terminal, *, writes_answer: bool = True) -> None:
        super().__init__(agent, terminal)
        self._terminal = terminal
        self._is_streaming = writes_answer and terminal.is_stdout_terminal
        self._writes_at_end = writes_answer and not terminal.is_stdout_terminal
        self._pending_text = ""

    def _on_run_started(self, model: str) -> None:
        self._terminal.note(f"{self._agent.name} asks {model}", dim=True)
        starting = unstarted_servers(self._agent)
        if starting:
            self._terminal.note(f"Starting {', '.join(starting)}", dim=True)
            self._terminal.show_waiting(f"starting {', '.join(starting)}")

    def _on_text(self, text: str) -> None:
        if self._is_streaming:
            self._terminal.write(text)

    def _on_message(self, message: Message, *, is_streamed: bool) -> None:
        if self._is_streaming:
            if not is_streamed:
                self._terminal.write(message.text)
            self._terminal.end_line()
        else:
            self._pending_text = message.text

    def _on_tool_started(self, event: ToolStarted, title: str) -> None:
        self._print_preamble()
        self._terminal.note(call_started_line(title, event.arguments), fg="cyan")
        self._terminal.show_waiting(f"{title} is running")

    def _on_tool_progressed(self, event: ToolProgressed) -> None:
        self._terminal.show_waiting(event.text)

    def _print_preamble(self) -> None:
        if self._pending_text.strip() and self._writes_at_end:
            self._terminal.note(self._pending_text.strip(), dim=True)
        self._pending_text = ""

    def _on_run_finished(self, result: RunResult) -> None:
        terminal = self._terminal
        terminal.show_waiting("")
        if self._writes_at_end and result.text:
            terminal.write(result.text if result.text.endswith("\n") else result.text + "\n")
        terminal.end_line()
        if (failure := failure_line(result)) is not None:
            terminal.note(failure[0], always=True, fg=failure[1])
        terminal.note(run_summary_line(result), fg=_COLOURS.get(result.status, "red"))


def unstarted_servers(agent: AgentRunner) -> list[str]:
    """Return the names of the servers that the next run starts."""
    from holodeck.tools.mcp.connection.connection import ConnectionState

    return [server.name for server in agent.mcp.servers.values() if server.state is ConnectionState.CREATED]


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
