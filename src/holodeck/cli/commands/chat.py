"""`holodeck chat`: questions and answers with one agent, with history.

On a terminal the chat uses the line editor and the live view, and the servers start while the user types; otherwise
each line of standard input is a question and output is plain. Ctrl-C cancels the current answer or command, not the
program. A server that fails is restarted when it is needed again.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.agents.sessions import Session, find_store
from holodeck.cli.chat.history import ChatHistory, describe_session
from holodeck.cli.chat.line_reader import EditorReader, LineReader, PipeReader
from holodeck.cli.chat.mentions import build_message
from holodeck.cli.chat.slash_commands import QuitChatError, SlashCommands
from holodeck.cli.chat.suggestions import Suggestions
from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.output import stdin
from holodeck.cli.output.follow_run import build_follower, unstarted_servers, verbose_option
from holodeck.cli.output.run_lines import total_line
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.output.trust_question import trust_option
from holodeck.cli.terminal_agent import model_option, open_agent, read_trusted_agent
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, LoadedAgent
from holodeck.lib.errors import ExecutionError, HoloDeckError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN, MAX_FAILURE_SHOWN
from holodeck.lib.tasks import TaskSet
from holodeck.models.events import RunResult
from holodeck.models.items import Message

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.cli.output.live_view import LiveScreen
    from holodeck.cli.output.server_notices import ServerNotices

T = TypeVar("T")
# Seconds between two redraws of the servers that start, beside the line that is typed.
_STARTING_STEP = 0.5
# Seconds for the task that starts the servers to end: it only waits for them.
_CLOSE_TIMEOUT = 1.0
_EPILOG = """\b
Examples:
  holodeck chat
  holodeck chat team/agent.yaml
  printf 'What is in the data folder?\\n/tools\\n' | holodeck chat
  holodeck chat --session trip      store the conversation under a name
  holodeck chat --resume trip       go on with it
  holodeck chat --resume            go on with the latest one of this agent
  holodeck chat -m ollama:qwen3     with another model

\b
In the chat, /help lists the commands; /NAME sends the prompt NAME of a server; @FILE attaches an image
or a text file, @SERVER:URI a resource."""


@click.command("chat", epilog=_EPILOG)
@click.argument("file", default=DEFAULT_AGENT_FILE, type=click.Path())
@click.option("--session", metavar="NAME", help="Store the conversation as the session NAME, or go on with that one.")
@click.option(
    "--resume",
    metavar="[NAME]",
    is_flag=False,
    flag_value="",
    help="Go on with the session NAME; without a name, with the latest session of FILE.",
)
@verbose_option
@model_option
@trust_option
def command(
    file: str, session: str | None, resume: str | None, is_verbose: bool, model: str | None, is_trusted: bool
) -> int:
    """Talk with the agent in FILE (default: agent.yaml).

    The conversation is stored only with --session or --resume, in your state folder: see `holodeck sessions`.
    Without a terminal, each line of standard input is a question; the exit code is 1 if one of them failed.
    """
    if session is not None and resume is not None:
        raise click.UsageError("Give --session or --resume, not both.")
    is_interactive = stdin.is_terminal() and sys.stdout.isatty()
    screen = _open_live_screen(is_verbose) if is_interactive else Terminal(is_verbose=is_verbose)
    loaded = read_trusted_agent(file, screen, is_trusted=is_trusted, model=model)
    conversation = _open_session(loaded, session, resume)
    try:
        return run_interruptible(_run_chat(loaded, screen, conversation))
    except KeyboardInterrupt:
        raise click.Abort from None


def _open_live_screen(is_verbose: bool) -> LiveScreen:
    from holodeck.cli.output.live_view import LiveScreen

    return LiveScreen(is_verbose=is_verbose)


def _open_session(loaded: LoadedAgent, name: str | None, resumed: str | None) -> Session:
    """Return the session that the options name. Raises `ExecutionError` if `resumed` names none that is stored."""
    if resumed is None and name is not None:
        # Before a question is asked whose answer would be lost.
        find_store().require_writable()
        return Session.open(name)
    if resumed is None:
        return Session()
    file = loaded.path.absolute()
    if not resumed:
        found = find_store().list_sessions(file=str(file))
        if not found:
            raise ExecutionError(f"No session of {file} is stored. Begin one with: holodeck chat --session NAME")
        return Session.open(found[0].id)
    session = Session.open(resumed)
    if not session.items:
        hint = (
            f" To go on with the latest of a file: holodeck chat {resumed} --resume" if Path(resumed).exists() else ""
        )
        raise ExecutionError(f"There is no session '{resumed}' to go on with. See: holodeck sessions list.{hint}")
    return session


async def _run_chat(loaded: LoadedAgent, screen: Terminal | LiveScreen, session: Session) -> int:
    async with open_agent(loaded, screen) as (agent, notices):
        chat = Chat(loaded, agent, screen, notices, session)
        return await chat.run()


class _StoppedError(Exception):
    """The user has stopped the answer or the command."""


class Chat:
    """Reads lines and answers them until the input ends or the user quits."""

    def __init__(
        self,
        loaded: LoadedAgent,
        agent: AgentRunner,
        screen: Terminal | LiveScreen,
        notices: ServerNotices,
        session: Session,
    ) -> None:
        self._agent = agent
        self._screen = screen
        self._history = ChatHistory(agent, session, loaded.path.absolute())
        self._commands = commands = SlashCommands(loaded, agent, self._history, screen, notices, self._ask)
        self._reader: LineReader = (
            PipeReader()
            if isinstance(screen, Terminal)
            else EditorReader(
                lambda: commands.names, suggestions=Suggestions(agent, commands), status=self._describe_starting
            )
        )
        self._began_at = time.monotonic()
        self._current_task: asyncio.Task[Any] | None = None
        self._was_pressed = False
        """Ctrl-C was pressed after one line was read and before the next one could be typed."""
        self._has_failed = False
        self._results: list[RunResult] = []
        self._stopped = 0
        """Answers that the user has stopped."""

    async def run(self) -> int:
        """Run the chat and return the exit code. Handles SIGINT meanwhile."""
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        outside = signal.getsignal(signal.SIGINT)
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt, me)
        if not isinstance(self._screen, Terminal):
            self._screen.note(f"{self._agent.name} ({self._agent.model.name}). /help lists the commands.", dim=True)
        self._describe_session()
        try:
            async with self._start_servers():
                while (line := await self._read_line()) is not None:
                    if line.strip():
                        await self._answer_line(line.strip())
        except QuitChatError:
            pass
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, outside)
        self._describe_end()
        return 1 if self._has_failed else 0

    @asynccontextmanager
    async def _start_servers(self) -> AsyncIterator[None]:
        """On a terminal, start the servers while the user types. Leaving the block ends the waiting for them."""
        tasks = TaskSet()
        if isinstance(self._reader, EditorReader) and self._agent.mcp.servers:
            tasks.start(self._agent.mcp.specs(), name="start of the servers")
            tasks.start(self._show_starting(self._reader), name="servers that start")
        try:
            yield
        finally:
            await tasks.close(_CLOSE_TIMEOUT)

    async def _show_starting(self, reader: EditorReader) -> None:
        while unstarted_servers(self._agent):
            await asyncio.sleep(_STARTING_STEP)
            reader.redraw()

    def _describe_starting(self) -> str:
        starting = unstarted_servers(self._agent)
        return f"starting {', '.join(starting)} {time.monotonic() - self._began_at:.0f} s" if starting else ""

    def _describe_session(self) -> None:
        """Say where a stored session is, and what was asked last in it."""
        session = self._history.session
        if session.path is None:
            return
        self._screen.note(f"{describe_session(session)}.", dim=True)
        questions = [item.text for item in session.items if isinstance(item, Message) and item.role == "user"]
        if questions:
            last = one_line(questions[-1], MAX_DESCRIPTION_SHOWN)
            self._screen.note(f"Going on after {len(questions)} question{'s' * (len(questions) > 1)}: {last}", dim=True)

    def _describe_end(self) -> None:
        """Say on a terminal what all answers took, and how to go on or how the next conversation can be stored."""
        session = self._history.session
        if isinstance(self._screen, Terminal) or not session.items:
            return
        # That of a single answer stands above.
        if len(self._results) > 1:
            self._screen.note(total_line(self._results, self._stopped), dim=True)
        if session.path is None:
            text = "This conversation is not stored. To store one: holodeck chat --session NAME, or /session NAME"
        else:
            text = f"Go on with: holodeck chat --resume {shlex.quote(session.id)}"
        self._screen.note(text, dim=True)

    async def _ask(self, prompt: str) -> str | None:
        return await self._reader.ask(prompt)

    async def _read_line(self) -> str | None:
        """Return the next line; None at the end of input, or after Ctrl-C twice at an empty line."""
        presses = 0
        while True:
            try:
                if not self._was_pressed:
                    return await self._reader.read_line()
            except EOFError:
                return None
            except KeyboardInterrupt:
                pass
            presses += 1
            if presses > 1:
                return None
            self._was_pressed = False
            self._screen.note("Press Ctrl-C again, or Ctrl-D, to leave.", dim=True)

    async def _answer_line(self, line: str) -> None:
        # A path such as /etc/hosts is no command.
        is_command = line.startswith("/") and "/" not in line[1:].partition(" ")[0]
        build = self._commands.run(line) if is_command else self._build_question(line)
        try:
            question = await self._run_stoppable(build)
            if question:
                await self._answer(question)
        except _StoppedError:
            self._screen.note("Stopped.", always=True, fg="yellow")

    async def _build_question(self, line: str) -> Sequence[Message] | None:
        """Return the question with the resources and files that it mentions; None if one of them cannot be read."""
        try:
            return (await build_message(self._agent, line, self._screen),)
        except HoloDeckError as error:
            self._has_failed = True
            self._screen.note(one_line(str(error), MAX_FAILURE_SHOWN), always=True, fg="red")
            return None

    async def _answer(self, question: Sequence[Message]) -> None:
        follower = build_follower(self._agent, self._screen, is_chat=True)
        try:
            # At its end, what has been answered so far is on the screen for good, once.
            with follower.draw():
                result = await self._run_stoppable(self._history.ask(question, follower.show))
        except ExecutionError as error:
            self._has_failed = True
            self._screen.note(one_line(str(error), MAX_FAILURE_SHOWN), always=True, fg="red")
            return
        except _StoppedError:
            self._stopped += 1
            raise
        self._results.append(result)
        if result.status != "completed":
            self._has_failed = True

    async def _run_stoppable(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in a task that Ctrl-C cancels, and return its result. Raises `_StoppedError` if it did."""
        me = asyncio.current_task()
        # Awaited below: cancelling the chat cancels the task and waits for it.
        task = TaskSet().start(work)
        self._current_task = task
        try:
            return await task
        except asyncio.CancelledError:
            # The chat itself is cancelled, not only the task.
            if me is not None and me.cancelling():
                raise
            raise _StoppedError from None
        finally:
            self._current_task = None

    def _on_interrupt(self, me: asyncio.Task[Any] | None) -> None:
        """Cancel the current task. At the prompt, the editor gets Ctrl-C as a key, but for a moment at its start."""
        if self._current_task is not None:
            self._current_task.cancel()
        elif isinstance(self._reader, EditorReader):
            self._was_pressed = not self._reader.interrupt()
        elif me is not None:
            me.cancel()
