"""Live view of a run on a terminal, for `holodeck chat` and `holodeck run`.

Finished Markdown blocks of an answer are printed for good. The block in progress, running calls and the current phase
are redrawn below them every `LIVE_STEP` seconds by a task, which runs only inside `draw_live` and pauses while a
question to the user is open. What is typed meanwhile is not echoed into them: it waits for the next prompt. All text
from models and servers is escaped before it is drawn.

`LiveFollower` draws the events of a run on it.
"""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.style import Style
from rich.text import Text

from holodeck.cli.output import stdin
from holodeck.cli.output.follow_run import THINKING, RunFollower, unstarted_servers
from holodeck.cli.output.markdown import BlockInProgress, FinishedBlock, finished_blocks
from holodeck.cli.output.run_lines import failure_line, run_summary_line
from holodeck.cli.output.tables import show_table
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import PROGRESS_DELAY
from holodeck.lib.tasks import TaskSet
from holodeck.models.events import RunResult, ToolFinished, ToolProgressed, ToolStarted
from holodeck.models.items import Message

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner

# Characters of output deferred while a question to the user is open; more is dropped.
MAX_BUFFERED_CHARS = 1_000_000
# Seconds between two redraws of an answer in progress: fluent, and cheap.
LIVE_STEP = 0.08
# Seconds for the redrawing task to end: it only sleeps and draws.
_CLOSE_TIMEOUT = 1.0

_FRAMES = "|/-\\"


class LiveScreen:
    """The `Screen` of a person at a terminal. See the module for what is printed and what is redrawn."""

    def __init__(self, *, is_quiet: bool = False, is_verbose: bool = False) -> None:
        self.is_quiet = is_quiet
        self.is_verbose = is_verbose
        self.can_ask = stdin.can_ask()
        self.console = Console(highlight=False, markup=False, emoji=False)
        # On the terminal, one console writes everything: it has to know where the live part is.
        self._notes = self.console if sys.stderr.isatty() else Console(stderr=True, highlight=False, markup=False)
        self._keys = stdin.HeldKeys()
        self._live: Live | None = None
        self._tasks = TaskSet()
        self._tail = ""
        self._has_block = False
        self._running_calls: dict[str, tuple[str, float]] = {}
        self._waiting_for = ""
        self._waiting_since = time.monotonic()

    def guard_stdout(self) -> None:
        """Do nothing: rich prints what functions print above the live part of the screen."""

    # Output that stays

    def note(self, text: str, *, always: bool = False, **style: Any) -> None:
        """Print a line about the run. `always`: also with `--quiet`."""
        if self.is_quiet and not always:
            return
        shown = Style(color=style.get("fg"), dim=style.get("dim"), bold=style.get("bold"))
        self._notes.print(Text(escape_unprintable(text), style=shown), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table."""
        show_table(self.console, columns, rows)

    # An answer in progress

    def write(self, text: str) -> None:
        """Append to the answer."""
        begins_line = "\n" in text or self._tail.endswith("\n")
        self._tail += escape_unprintable(text)
        # A block can end only where another line begins.
        if begins_line:
            done, self._tail = finished_blocks(self._tail)
            self._print_block(done)

    def end_text(self) -> None:
        """Print the rest of the message for good: it is complete."""
        done, self._tail = self._tail, ""
        self._print_block(done)
        self._has_block = False

    def show_waiting(self, what: str) -> None:
        self._waiting_for, self._waiting_since = what, time.monotonic()

    def start_call(self, call_id: str, title: str) -> None:
        """Show a call as running."""
        self._running_calls[call_id] = (title, time.monotonic())

    def update_call(self, call_id: str, text: str) -> None:
        if call_id in self._running_calls:
            title, began = self._running_calls[call_id]
            self._running_calls[call_id] = (f"{title.partition(':')[0]}: {text}", began)

    def finish_call(self, call_id: str) -> None:
        self._running_calls.pop(call_id, None)

    @contextmanager
    def draw_live(self) -> Iterator[None]:
        """Redraw inside the block. At its end, also after an error, what was written is printed for good."""
        self._start_live()
        try:
            yield
        finally:
            self._stop_live()
            self.end_text()
            self._running_calls.clear()
            self._waiting_for = ""

    @contextmanager
    def pause_output(self) -> Iterator[None]:
        """Defer all output inside the block, while the user answers a question; it follows afterwards."""
        was_drawing, began = self._live is not None, time.monotonic()
        self._stop_live()
        deferred = _DeferredOutput()
        try:
            with self._keys.pause(), redirect_stdout(deferred):
                yield
        finally:
            sys.stdout.write(deferred.getvalue())
            sys.stdout.flush()
            self._shift_times(time.monotonic() - began)
            if was_drawing:
                self._start_live()

    def _shift_times(self, seconds: float) -> None:
        """Leave the time that a person took to answer out of the times that are shown."""
        self._waiting_since += seconds
        self._running_calls = {
            call_id: (title, began + seconds) for call_id, (title, began) in self._running_calls.items()
        }

    def _start_live(self) -> None:
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            # What the project's own code prints is shown above the live part.
            redirect_stdout=True,
            redirect_stderr=True,
            vertical_overflow="crop",
        )
        self._live.start()
        self._tasks.start(self._redraw(self._live), name="live screen")

    def _stop_live(self) -> None:
        self._tasks.cancel()
        if self._live is not None:
            # Nothing is left on the screen that could be printed again.
            self._live.update(Group(), refresh=True)
            self._live.stop()
            self._live = None

    async def _redraw(self, live: Live) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                live.update(self._render(), refresh=True)
                await asyncio.sleep(LIVE_STEP)

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = []
        now = time.monotonic()
        if self._tail.strip():
            parts.append(BlockInProgress(self._tail))
        for title, began in self._running_calls.values():
            parts.append(self._spinner_line(title, now - began))
        waited = now - self._waiting_since
        if not parts and self._waiting_for and waited >= PROGRESS_DELAY:
            parts.append(self._spinner_line(self._waiting_for, waited))
        return Group(*parts)

    def _spinner_line(self, what: str, seconds: float) -> Text:
        frame = _FRAMES[int(time.monotonic() / LIVE_STEP / 2) % len(_FRAMES)]
        width = self.console.width - 12
        return Text(f"{frame} {one_line(what, width)} {seconds:.0f} s", style="dim", no_wrap=True, overflow="crop")

    def _print_block(self, text: str) -> None:
        if text.strip():
            if self._has_block:
                self.console.print()
            self._has_block = True
            self.console.print(FinishedBlock(text), end="", crop=False)

    async def __aenter__(self) -> Self:
        self._keys.hold()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_live()
        self._keys.release()
        await self._tasks.close(_CLOSE_TIMEOUT)


class _DeferredOutput(io.StringIO):
    """Terminal output that is written later. Beyond `MAX_BUFFERED_CHARS` the rest is dropped."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.tell() < MAX_BUFFERED_CHARS:
            super().write(text)
        return len(text)


class LiveFollower(RunFollower):
    """Draws the events of one run. `tells_start`: with a line about the model, and the servers that start."""

    def __init__(self, agent: AgentRunner, screen: LiveScreen, *, tells_start: bool) -> None:
        super().__init__(agent, screen)
        self._live_screen = screen
        self._tells_start = tells_start

    def draw(self) -> AbstractContextManager[None]:
        return self._live_screen.draw_live()

    def _on_run_started(self, model: str) -> None:
        starting = unstarted_servers(self._agent)
        if self._tells_start:
            self._live_screen.note(f"{self._agent.name} asks {model}", dim=True)
            if starting:
                self._live_screen.note(f"Starting {', '.join(starting)}", dim=True)
        self._live_screen.show_waiting(f"starting {', '.join(starting)}" if starting else THINKING)

    def _on_text(self, text: str) -> None:
        self._live_screen.write(text)

    def _on_message(self, message: Message, *, is_streamed: bool) -> None:
        if not is_streamed:
            self._live_screen.write(message.text)
        self._live_screen.end_text()

    def _on_tool_started(self, event: ToolStarted, title: str) -> None:
        self._note_call(title, event)
        self._live_screen.start_call(event.call_id, title)

    def _on_tool_progressed(self, event: ToolProgressed) -> None:
        self._live_screen.update_call(event.call_id, event.text)

    def _on_tool_finished(self, event: ToolFinished) -> None:
        self._live_screen.finish_call(event.call_id)
        super()._on_tool_finished(event)

    def _on_run_finished(self, result: RunResult) -> None:
        self._live_screen.end_text()
        if (failure := failure_line(result)) is not None:
            self._live_screen.note(failure[0], always=True, fg=failure[1])
        self._live_screen.note(run_summary_line(result), dim=True)
