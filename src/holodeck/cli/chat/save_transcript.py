"""Transcript of a chat as a Markdown file: messages, tool calls and their results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from holodeck.cli.output.run_lines import output_text
from holodeck.lib.errors import ExecutionError
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message

_TITLES = {"user": "You", "assistant": "Agent", "system": "System", "developer": "System"}


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
