"""History of a chat with an agent, in a form in which each next request to the model is valid, and its transcript."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.agents.sessions import Answerer, OpenSession, Session, use_session
from holodeck.cli.output.run_lines import output_text
from holodeck.engine.transcript import RunTranscript
from holodeck.lib.errors import ExecutionError
from holodeck.models.events import Event, RunResult
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, TextContent

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner

_TITLES = {"user": "You", "assistant": "Agent", "system": "System", "developer": "System"}


class ChatHistory:
    """Sends each question with all items before it. A cancelled answer stays in the history, marked as stopped.

    The items are in a session, which another program may have continued between two questions.
    """

    def __init__(self, agent: AgentRunner, session: Session, file: Path) -> None:
        self._agent = agent
        self.session = session
        self._answerer = Answerer(agent=agent.name, file=str(file))

    @property
    def items(self) -> tuple[Item, ...]:
        """The conversation so far. Reads a stored session."""
        return self.session.items

    async def ask(self, question: Sequence[Item], on_event: Callable[[Event], None]) -> RunResult:
        """Run a question and pass its events to `on_event`. After a cancellation, the partial answer is stored.

        Raises `SessionConflictError` if another program has changed the session meanwhile, and `StorageError`.
        """
        record = RunTranscript()
        async with use_session(self.session) as opened:
            try:
                async with aclosing(self._agent.stream(question, history=opened.items)) as events:
                    async for event in events:
                        record.add(event)
                        on_event(event)
            except asyncio.CancelledError:
                await self._append(opened, question, record)
                raise
            await self._append(opened, question, record)
        return record.result or record.build_stopped_result()

    async def _append(self, opened: OpenSession, question: Sequence[Item], record: RunTranscript) -> None:
        added = record.build_history()
        # A question that the model did not accept is not part of the history: the user will ask it again.
        if added:
            await opened.append([*question, *added], by=self._answerer)

    async def store(self, name: str) -> None:
        """Store the conversation as a new session, and go on with that. Raises `ExecutionError` for a used name."""
        session = Session.open(name)
        async with use_session(session) as opened:
            if opened.items:
                raise ExecutionError(f"There is a session '{name}' already. Give another name.")
            await opened.append(self.items, by=self._answerer)
        self.session = session

    def reset(self) -> None:
        self.session.clear()
        self._agent.forget()


def describe_session(session: Session) -> str:
    """Return a sentence that says where a session is stored, or will be with its first answer."""
    verb = "is" if session.items else "will be"
    return f"The conversation {verb} stored as the session '{session.id}' in {session.path}"


def save_transcript(name: str, items: Sequence[Item], file: str) -> Path:
    """Write the transcript to a new file and return its path. Raises `ExecutionError`; never overwrites a file."""
    now = datetime.now().astimezone()
    path = Path(file).expanduser() if file else Path(f"chat-{now:%Y-%m-%d-%H%M%S}.md")
    try:
        with path.open("x", encoding="utf-8", errors="backslashreplace") as target:
            target.write(format_transcript(name, items, now))
    except FileExistsError:
        raise ExecutionError(f"{path} is already there, and nothing is overwritten. Give another name.") from None
    except OSError as error:
        raise ExecutionError(f"Cannot write {path}: {error.strerror}.") from None
    return path


def format_transcript(name: str, items: Sequence[Item], now: datetime) -> str:
    """Return the transcript as Markdown."""
    return "\n\n".join([f"# {name}, {now:%Y-%m-%d %H:%M}", *_sections(items)]) + "\n"


def _sections(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        match item:
            case Message(role=role):
                yield f"## {_TITLES[role]}\n\n{_message_text(item)}"
            case FunctionCall(name=name, arguments=arguments):
                yield f"**Call** `{name}`\n\n{_fence_code(arguments)}"
            case FunctionCallOutput(is_error=is_error):
                yield f"**{'Failure' if is_error else 'Result'}**\n\n{_fence_code(output_text(item))}"
            case _:
                pass


def _message_text(message: Message) -> str:
    return "\n\n".join(part.text if isinstance(part, TextContent) else f"[{part.type}]" for part in message.content)


def _fence_code(text: str) -> str:
    # The fence must be longer than any in the text.
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}\n{text}\n{fence}"
