"""Display of a run on a terminal: the answer as it streams, each tool call, and a summary at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from holodeck.cli.output.run_lines import (
    call_finished_line,
    call_started_line,
    call_title,
    failure_line,
    run_summary_line,
)
from holodeck.cli.output.terminal import Screen, Terminal
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
    from holodeck.agent_runner import AgentRunner

THINKING = "the model is thinking"
_COLOURS = {"completed": "green", "incomplete": "yellow"}


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
