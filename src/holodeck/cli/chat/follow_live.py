"""Display of a run in `holodeck chat`: the events of the engine, drawn on the live screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holodeck.cli.chat.live_view import LiveScreen
from holodeck.cli.output.follow_run import unstarted_servers
from holodeck.cli.output.run_lines import (
    call_finished_line,
    call_started_line,
    call_title,
    failure_line,
    run_summary_line,
)
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
        self._streamed_ids: set[str] = set()

    def show(self, event: Event) -> None:
        screen = self._screen
        match event:
            case RunStarted():
                starting = unstarted_servers(self._agent)
                screen.show_waiting(f"starting {', '.join(starting)}" if starting else _THINKING)
            case TurnStarted():
                screen.show_waiting(_THINKING)
            case TextAdded(item_id=item_id, text=text):
                self._streamed_ids.add(item_id)
                screen.write(text)
            case ItemFinished(item=Message() as message):
                if message.id not in self._streamed_ids:
                    screen.write(message.text)
                screen.end_text()
            case ToolStarted(call_id=call_id, name=name, arguments=arguments):
                title = call_title(self._agent, name)
                screen.note(call_started_line(title, arguments), fg="cyan")
                screen.start_call(call_id, title)
            case ToolProgressed(call_id=call_id, text=text):
                screen.update_call(call_id, text)
            case ToolFinished():
                self._on_tool_finished(event)
            case RunFinished(result=result):
                self._on_run_finished(result)
            case _:
                pass

    def _on_tool_finished(self, event: ToolFinished) -> None:
        self._screen.finish_call(event.call_id)
        line, colour = call_finished_line(self._agent, event)
        self._screen.note(line, fg=colour)
        self._screen.show_waiting(_THINKING)

    def _on_run_finished(self, result: RunResult) -> None:
        self._screen.end_text()
        if (failure := failure_line(result)) is not None:
            self._screen.note(failure[0], fg=failure[1])
        self._screen.note(run_summary_line(result), dim=True)
