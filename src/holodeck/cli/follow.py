"""A run as a person follows it: the answer as it comes, each tool call as it happens, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holodeck.cli.terminal import Terminal
from holodeck.cli.words import answered_line, asked_line, call_title, closing_line, why_line
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

    A terminal shows all that the model says, as it says it. A file or a pipe gets the answer alone, at the end:
    what a model says before it calls a tool is not known to be no answer until it calls.
    """

    def __init__(self, agent: Agent, terminal: Terminal, *, writes_answer: bool = True) -> None:
        self._agent = agent
        self._terminal = terminal
        self._streams = writes_answer and terminal.is_watched
        self._writes_at_end = writes_answer and not terminal.is_watched
        self._streamed: set[str] = set()
        self._held = ""

    def show(self, event: Event) -> None:
        terminal = self._terminal
        match event:
            case RunStarted(model=model):
                self._started(model)
            case TurnStarted():
                terminal.wait_for("the model is thinking")
            case TextAdded(item_id=item_id, text=text):
                self._streamed.add(item_id)
                if self._streams:
                    terminal.write(text)
            case ItemFinished(item=Message() as message):
                self._said(message)
            case ToolStarted(name=name, arguments=arguments):
                self._tell_preamble()
                title = call_title(self._agent, name)
                terminal.note(asked_line(title, arguments), fg="cyan")
                terminal.wait_for(f"{title} is running")
            case ToolProgressed(text=text):
                terminal.wait_for(text)
            case ToolFinished():
                self._called(event)
            case RunFinished(result=result):
                self._finished(result)
            case _:
                pass

    def _started(self, model: str) -> None:
        self._terminal.note(f"{self._agent.name} asks {model}", dim=True)
        starting = idle_servers(self._agent)
        if starting:
            self._terminal.note(f"Starting {', '.join(starting)}", dim=True)
            self._terminal.wait_for(f"starting {', '.join(starting)}")

    def _said(self, message: Message) -> None:
        if self._streams:
            if message.id not in self._streamed:
                self._terminal.write(message.text)
            self._terminal.end_line()
        else:
            self._held = message.text

    def _tell_preamble(self) -> None:
        if self._held.strip() and self._writes_at_end:
            self._terminal.note(self._held.strip(), dim=True)
        self._held = ""

    def _called(self, event: ToolFinished) -> None:
        line, colour = answered_line(self._agent, event)
        self._terminal.note(line, fg=colour)
        self._terminal.wait_for("the model is thinking")

    def _finished(self, result: RunResult) -> None:
        terminal = self._terminal
        terminal.wait_for("")
        if self._writes_at_end and result.text:
            terminal.write(result.text if result.text.endswith("\n") else result.text + "\n")
        terminal.end_line()
        if (told := why_line(result)) is not None:
            terminal.note(told[0], always=True, fg=told[1])
        terminal.note(closing_line(result), fg=_COLOURS.get(result.status, "red"))


def idle_servers(agent: Agent) -> list[str]:
    """The servers that the next question will start."""
    from holodeck.tools.mcp.connection import State

    return [server.name for server in agent.mcp.servers.values() if server.state is State.CREATED]
