"""Display of a run on a terminal: the answer as it streams, each tool call, and a summary at the end.

`print_run` prints it in the chosen format: the answer alone, the result as JSON, or all events as JSON lines.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.output.events_json import event_line, json_text, result_data
from holodeck.cli.output.run_lines import (
    call_finished_line,
    call_started_line,
    call_title,
    detail_block,
    failure_line,
    output_text,
    run_summary_line,
)
from holodeck.cli.output.shown_arguments import show_arguments
from holodeck.cli.output.terminal import Screen, Terminal
from holodeck.engine.transcript import RunTranscript
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_FAILURE_SHOWN
from holodeck.lib.record import record
from holodeck.models.events import (
    AgentProgressed,
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
from holodeck.tools.executor import APPROVAL_NEEDED

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.cli.output.live_view import LiveScreen

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
            case AgentProgressed():
                self._on_agent_progressed(event)
            case RunFinished(result=result):
                self._on_run_finished(result)
            case _:
                pass

    def draw(self) -> AbstractContextManager[None]:
        """Redraw what changes inside the block, which contains the run."""
        return nullcontext()

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

    def _note_call(self, title: str, event: ToolStarted) -> None:
        verbose = self._screen.is_verbose
        self._screen.note(call_started_line(title, {} if verbose else event.arguments), fg="cyan")
        for line in show_arguments(event.arguments) if verbose and event.arguments else ():
            self._screen.note(f"    {line.text}", **({"fg": line.colour} if line.colour else {"dim": True}))

    def _on_tool_finished(self, event: ToolFinished) -> None:
        verbose = self._screen.is_verbose
        line, colour = call_finished_line(self._agent, event, has_outcome=not verbose)
        self._screen.note(line, fg=colour)
        if verbose:
            self._screen.note(detail_block(output_text(event.output)), dim=True)
        if event.metadata.get("refused") == APPROVAL_NEEDED and not self._screen.can_ask:
            tool = shlex.quote(f"{event.metadata.get('server')}.{event.metadata.get('tool')}")
            self._screen.note(f"    'holodeck run --approve {tool}' approves it beforehand.", fg="yellow")
        self._screen.show_waiting(THINKING)

    def _on_agent_progressed(self, event: AgentProgressed) -> None:
        """Show the calls of an agent that was asked, and which one is at work."""
        names, inner = [event.agent], event.event
        while isinstance(inner, AgentProgressed):
            names.append(inner.agent)
            inner = inner.event
        title = " > ".join(names)
        match inner:
            case TurnStarted():
                self._screen.show_waiting(f"{title} is thinking")
            case ToolStarted(name=name, arguments=arguments):
                self._screen.note(call_started_line(f"{title} > {name}", arguments), dim=True)
                self._screen.show_waiting(f"{title}: {name} is running")
            case ToolFinished(name=name, output=output) if output.is_error:
                self._screen.note(f"  x {title} > {name}  {one_line(output_text(output), MAX_FAILURE_SHOWN)}", fg="red")
            case _:
                pass

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
        self._note_call(title, event)
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


def build_follower(agent: AgentRunner, screen: Terminal | LiveScreen, *, is_chat: bool = False) -> RunFollower:
    """Build what shows a run on this screen. In a chat, the model and the servers were shown before."""
    if isinstance(screen, Terminal):
        return Follower(agent, screen)
    from holodeck.cli.output.live_view import LiveFollower

    return LiveFollower(agent, screen, tells_start=not is_chat)


def unstarted_servers(agent: AgentRunner) -> list[str]:
    """Return the names of the servers that a run which begins now starts, or waits for."""
    from holodeck.tools.mcp.connection.connection import ConnectionState

    waits_for = {ConnectionState.CREATED, ConnectionState.CONNECTING}
    return [server.name for server in agent.mcp.servers.values() if server.state in waits_for]


@record
class OutputFormat:
    """The form in which a run prints on stdout. With neither option: the answer alone."""

    as_json: bool = False
    as_events: bool = False

    @property
    def is_data(self) -> bool:
        """Whether stdout is for a program, and has no answer as text."""
        return self.as_json or self.as_events


def open_screen_for(
    output: OutputFormat, *, is_plain: bool, is_quiet: bool, is_verbose: bool = False
) -> Terminal | LiveScreen:
    """Return the screen of a command with one answer: on a terminal, one that renders Markdown, unless it is plain."""
    if is_quiet and is_verbose:
        raise click.UsageError("Give --quiet or --verbose, not both.")
    if output.is_data or is_plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return Terminal(is_quiet=is_quiet, is_verbose=is_verbose)
    from holodeck.cli.output.live_view import LiveScreen

    return LiveScreen(is_quiet=is_quiet, is_verbose=is_verbose)


verbose_option = click.option(
    "-v",
    "--verbose",
    "is_verbose",
    is_flag=True,
    help="Show the whole arguments and results of calls, and what servers say.",
)


plain_option = click.option(
    "--plain", "is_plain", is_flag=True, help="On a terminal, print the answer as the model wrote it: no Markdown."
)


def parse_output_format(*, as_json: bool, as_events: bool) -> OutputFormat:
    """Return the format for `--json` and `--events`. Raises a usage error if both are set."""
    if as_json and as_events:
        raise click.UsageError("Give --json or --events, not both.")
    return OutputFormat(as_json=as_json, as_events=as_events)


async def print_run(
    events: AsyncGenerator[Event, None],
    agent: AgentRunner,
    screen: Terminal | LiveScreen,
    output: OutputFormat,
    *,
    durable_run_id: str | None = None,
) -> RunResult:
    """Print a run until it ends, and return its result. A run that stops without a result is printed as cancelled.

    `durable_run_id` is the id of a run that can be resumed: if it is stopped, its status is `interrupted`. A live
    `screen` shows the answer: data is printed on a `Terminal`.
    """
    more = {"run_id": durable_run_id} if durable_run_id else {}
    if isinstance(screen, Terminal) and output.is_data:
        return await _print_data(events, _DataPrinter(agent, screen, output), more)
    follower, transcript = build_follower(agent, screen), RunTranscript()
    with follower.draw():
        async with aclosing(events):
            async for event in events:
                transcript.add(event)
                follower.show(event)
        if transcript.result is None:
            follower.show(RunFinished(result=transcript.build_stopped_result()))
    return transcript.result or transcript.build_stopped_result()


async def _print_data(events: AsyncGenerator[Event, None], printer: _DataPrinter, more: Mapping[str, Any]) -> RunResult:
    try:
        async with aclosing(events):
            async for event in events:
                printer.add(event)
    except asyncio.CancelledError:
        if not more:
            printer.print_line(RunFinished(result=printer.transcript.build_stopped_result()))
        printer.print_result({**more, "status": "interrupted"} if more else {})
        raise
    if printer.transcript.result is None:
        printer.add(RunFinished(result=printer.transcript.build_stopped_result()))
    return printer.print_result(more)


class _DataPrinter:
    """Prints a run as events or as one result. Beside a result, the calls are shown on stderr."""

    def __init__(self, agent: AgentRunner, terminal: Terminal, output: OutputFormat) -> None:
        self.transcript = RunTranscript()
        self._has_format = agent.config.response_format is not None
        self._output = output
        self._terminal = terminal
        self._follower = None if output.as_events else Follower(agent, terminal, writes_answer=False)
        self._next_number = 0

    def add(self, event: Event) -> None:
        self.transcript.add(event)
        self.print_line(event)
        if self._follower is not None:
            self._follower.show(event)

    def print_line(self, event: Event) -> None:
        if self._output.as_events:
            self._terminal.print_line(event_line(self._next_number, event))
            self._next_number += 1

    def print_result(self, more: Mapping[str, Any]) -> RunResult:
        result = self.transcript.result or self.transcript.build_stopped_result()
        if self._output.as_json:
            data = result_data(result, has_format=self._has_format)
            self._terminal.print_line(json_text({**data, **more}, indent=2))
        return result
