"""Display of a run on a terminal: the answer as it streams, each tool call, and a summary at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holodeck.cli.output.run_lines import (
    call_finished_line,
    call_started_line,
    call_title,
    failure_line,
    run_summary_line,
)
from holodeck.cli.output.terminal import Terminal
from holodeck.models.events import (
    Event,
    ItemFinished,
    RunFinished,
    RunResult,
    RunStarted,
    TextAdded,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnStarted,
)
from holodeck.models.items import Message

if TYPE_CHECKING:
    from holodeck.agent import Agent

_COLOURS = {"completed": "green", "incomplete": "yellow"}


class Follower:
    """Shows the events of one run.

    A terminal gets all text of the model as it streams. A file or a pipe gets the answer alone, at the end: until the
    model calls a tool, text before the call cannot be distinguished from an answer.
    """

    def __init__(self, agent: Agent, terminal: Terminal, *, writes_answer: bool = True) -> None:
        self._agent = agent
        self._terminal = terminal
        self._is_streaming = writes_answer and terminal.is_stdout_terminal
        self._writes_at_end = writes_answer and not terminal.is_stdout_terminal
        self._streamed_ids: set[str] = set()
        self._pending_text = ""

    def show(self, event: Event) -> None:
        terminal = self._terminal
        match event:
            case RunStarted(model=model):
                self._on_run_started(model)
            case TurnStarted():
                terminal.show_waiting("the model is thinking")
            case TextAdded(item_id=item_id, text=text):
                self._streamed_ids.add(item_id)
                if self._is_streaming:
                    terminal.write(text)
            case ItemFinished(item=Message() as message):
                self._on_message(message)
            case ToolStarted(name=name, arguments=arguments):
                self._print_preamble()
                title = call_title(self._agent, name)
                terminal.note(call_started_line(title, arguments), fg="cyan")
                terminal.show_waiting(f"{title} is running")
            case ToolProgressed(text=text):
                terminal.show_waiting(text)
            case ToolFinished():
                self._on_tool_finished(event)
            case RunFinished(result=result):
                self._on_run_finished(result)
            case _:
                pass

    def _on_run_started(self, model: str) -> None:
        self._terminal.note(f"{self._agent.name} asks {model}", dim=True)
        starting = unstarted_servers(self._agent)
        if starting:
            self._terminal.note(f"Starting {', '.join(starting)}", dim=True)
            self._terminal.show_waiting(f"starting {', '.join(starting)}")

    def _on_message(self, message: Message) -> None:
        if self._is_streaming:
            if message.id not in self._streamed_ids:
                self._terminal.write(message.text)
            self._terminal.end_line()
        else:
            self._pending_text = message.text

    def _print_preamble(self) -> None:
        if self._pending_text.strip() and self._writes_at_end:
            self._terminal.note(self._pending_text.strip(), dim=True)
        self._pending_text = ""

    def _on_tool_finished(self, event: ToolFinished) -> None:
        line, colour = call_finished_line(self._agent, event)
        self._terminal.note(line, fg=colour)
        self._terminal.show_waiting("the model is thinking")

    def _on_run_finished(self, result: RunResult) -> None:
        terminal = self._terminal
        terminal.show_waiting("")
        if self._writes_at_end and result.text:
            terminal.write(result.text if result.text.endswith("\n") else result.text + "\n")
        terminal.end_line()
        if (failure := failure_line(result)) is not None:
            terminal.note(failure[0], always=True, fg=failure[1])
        terminal.note(run_summary_line(result), fg=_COLOURS.get(result.status, "red"))


def unstarted_servers(agent: Agent) -> list[str]:
    """Return the names of the servers that the next run starts."""
    from holodeck.tools.mcp.connection.connection import ConnectionState

    return [server.name for server in agent.mcp.servers.values() if server.state is ConnectionState.CREATED]
