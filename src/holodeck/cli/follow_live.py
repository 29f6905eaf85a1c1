"""A run in a conversation: the events of the engine, drawn on the live screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holodeck.cli.follow import idle_servers
from holodeck.cli.screen import LiveScreen
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

_THINKING = "the model is thinking"


class LiveFollower:
    """Draws the events of one run."""

    def __init__(self, agent: Agent, screen: LiveScreen) -> None:
        self._agent = agent
        self._screen = screen
        self._streamed: set[str] = set()

    def show(self, event: Event) -> None:
        screen = self._screen
        match event:
            case RunStarted():
                starting = idle_servers(self._agent)
                screen.wait_for(f"starting {', '.join(starting)}" if starting else _THINKING)
            case TurnStarted():
                screen.wait_for(_THINKING)
            case TextAdded(item_id=item_id, text=text):
                self._streamed.add(item_id)
                screen.write(text)
            case ItemFinished(item=Message() as message):
                if message.id not in self._streamed:
                    screen.write(message.text)
                screen.end_text()
            case ToolStarted(call_id=call_id, name=name, arguments=arguments):
                title = call_title(self._agent, name)
                screen.note(asked_line(title, arguments), fg="cyan")
                screen.started(call_id, title)
            case ToolProgressed(call_id=call_id, text=text):
                screen.progressed(call_id, text)
            case ToolFinished():
                self._called(event)
            case RunFinished(result=result):
                self._finished(result)
            case _:
                pass

    def _called(self, event: ToolFinished) -> None:
        self._screen.finished(event.call_id)
        line, colour = answered_line(self._agent, event)
        self._screen.note(line, fg=colour)
        self._screen.wait_for(_THINKING)

    def _finished(self, result: RunResult) -> None:
        self._screen.end_text()
        if (told := why_line(result)) is not None:
            self._screen.note(told[0], fg=told[1])
        self._screen.note(closing_line(result), dim=True)
