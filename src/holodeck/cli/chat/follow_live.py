"""Display of a run in `holodeck chat`: the events of the engine, drawn on the live screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holodeck.cli.chat.live_view import LiveScreen
from holodeck.cli.output.follow_run import THINKING, RunFollower, unstarted_servers
from holodeck.cli.output.run_lines import call_started_line, failure_line, run_summary_line
from holodeck.models.events import RunResult, ToolFinished, ToolProgressed, ToolStarted
from holodeck.models.items import Message

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner


class LiveFollower(RunFollower):
    """Draws the events of one run."""

    def __init__(self, agent: AgentRunner, screen: LiveScreen) -> None:
        super().__init__(agent, screen)
        self._live_screen = screen

    def _on_run_started(self, model: str) -> None:
        starting = unstarted_servers(self._agent)
        self._live_screen.show_waiting(f"starting {', '.join(starting)}" if starting else THINKING)

    def _on_text(self, text: str) -> None:
        self._live_screen.write(text)

    def _on_message(self, message: Message, *, is_streamed: bool) -> None:
        if not is_streamed:
            self._live_screen.write(message.text)
        self._live_screen.end_text()

    def _on_tool_started(self, event: ToolStarted, title: str) -> None:
        self._live_screen.note(call_started_line(title, event.arguments), fg="cyan")
        self._live_screen.start_call(event.call_id, title)

    def _on_tool_progressed(self, event: ToolProgressed) -> None:
        self._live_screen.update_call(event.call_id, event.text)

    def _on_tool_finished(self, event: ToolFinished) -> None:
        self._live_screen.finish_call(event.call_id)
        super()._on_tool_finished(event)

    def _on_run_finished(self, result: RunResult) -> None:
        self._live_screen.end_text()
        if (failure := failure_line(result)) is not None:
            self._live_screen.note(failure[0], fg=failure[1])
        self._live_screen.note(run_summary_line(result), dim=True)
