"""A run in a conversation: the events of the engine, drawn on the live screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holodeck.cli.follow import idle_servers
from holodeck.cli.screen import LiveScreen
from holodeck.cli.words import call_arguments, call_outcome, call_title, closing_line, why
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
                screen.note(f"  > {title}  {call_arguments(arguments)}".rstrip(), fg="cyan")
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
        mark, colour = ("x", "red") if event.output.is_error else ("=", "green")
        self._screen.note(f"  {mark} {call_title(self._agent, event.name)}  {call_outcome(event)}", fg=colour)
        self._screen.wait_for(_THINKING)

    def _finished(self, result: RunResult) -> None:
        self._screen.end_text()
        reason = why(result)
        if reason:
            label, colour = ("Error", "red") if result.error is not None else ("Incomplete", "yellow")
            self._screen.note(f"{label}: {reason}", fg=colour)
        self._screen.note(closing_line(result), dim=True)
