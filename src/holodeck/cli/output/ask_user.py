"""Questions to the user at the terminal: approvals of tool calls, and forms that a server requests (elicitation).

`UserPrompter` asks one question at a time and pauses other output meanwhile. Text from models and servers is escaped
before it is shown. Without a terminal, `build_people` returns no callbacks: approvals and forms are then declined.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol
from urllib.parse import urlsplit

import click

from holodeck.cli.output.shown_arguments import MAX_APPROVAL_SHOWN, show_arguments
from holodeck.cli.output.stdin import discard_typed_ahead, read_available
from holodeck.cli.output.stdout_guard import can_use_colours
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import KIB, MAX_FAILURE_SHOWN
from holodeck.lib.record import record
from holodeck.runtime import People
from holodeck.tools.calls import ApprovalAnswer

# Bytes of one line typed as an answer: a form field is short.
MAX_ANSWER_BYTES = 4 * KIB

_BOOLEAN_WORDS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}

_WORDS = {"y": "y", "yes": "y", "": "n", "n": "n", "no": "n"}
_ALWAYS = {"a": "a", "always": "a"}
_CALL_HELP = (
    "  y: run this call once, with exactly these arguments.\n"
    "  n, or Enter alone: do not run it. The model is told that you said no, and goes on.\n"
    "  a: always in this session. Run it, and later calls of this tool with any arguments, unless the tool changes.\n"
)
_SERVER_HELP = (
    "  y: the server gets your answer.\n"
    "  n, or Enter alone: the server is told that you declined. It gets nothing else.\n"
)


class UserTerminal(Protocol):
    """A terminal that can pause its other output while a question is open."""

    @property
    def can_ask(self) -> bool: ...

    def pause_output(self) -> AbstractContextManager[None]: ...


def build_people(terminal: UserTerminal, approved: Sequence[str] = ()) -> People:
    """Return callbacks that ask the user at the terminal; none if there is no interactive terminal.

    `approved`: names or globs of the tools that the user has approved in the command.
    """
    if not terminal.can_ask:
        return People(approved=tuple(approved))
    prompter = UserPrompter(terminal)
    return People(approve=prompter.approve, elicit=prompter.elicit, approved=tuple(approved))


class UserPrompter:
    """Asks one question at a time; concurrent calls wait on a lock."""

    def __init__(self, terminal: UserTerminal) -> None:
        self._terminal = terminal
        self._lock = asyncio.Lock()

    async def approve(self, server: str, tool: str, arguments: Mapping[str, Any]) -> ApprovalAnswer:
        """Ask whether this call may run, and show all of its arguments. The end of input means no."""
        async with self._lock:
            with self._terminal.pause_output():
                name = one_line(f"{server}.{tool}", MAX_FAILURE_SHOWN)
                discard_typed_ahead()
                _write_prompt(f"May {name} run with these arguments?\n")
                has_colours = can_use_colours()
                for line in show_arguments(arguments):
                    _write_prompt(f"{line.text}\n", line.colour if has_colours else None)
                word = await _ask_word("[y/N/a] (? for help) ", "y, n or a", {**_WORDS, **_ALWAYS}, _CALL_HELP)
                return "always" if word == "a" else word == "y"

    async def elicit(self, server: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask what a server requests and return the MCP result.

        The name of the server is shown, because the text of a request may pretend to come from elsewhere.
        """
        async with self._lock:
            with self._terminal.pause_output():
                question = f"Server '{server}' asks: {one_line(str(params.get('message', '')), MAX_FAILURE_SHOWN)}"
                if params.get("mode") == "url":
                    url = str(params.get("url", ""))
                    request = f"It wants you to open a page of {_host_of(url)}:\n{one_line(url, MAX_APPROVAL_SHOWN)}"
                    agrees = await _ask_yes_no(f"{question}\n{request}\n", "Agree? ", _SERVER_HELP)
                    return {"action": "accept" if agrees else "decline"}
                if not await _ask_yes_no(f"{question}\n", "Answer it? ", _SERVER_HELP):
                    return {"action": "decline"}
                return await _ask_form(params)


@record
class FormField:
    """One field of a form that a server requests."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool
    """False: an empty answer omits the field, and the server uses its default."""

    @property
    def prompt(self) -> str:
        schema = self.schema
        label = str(schema.get("title") or schema.get("description") or self.name)
        choices = f" ({', '.join(self._choices)})" if self._choices else ""
        several = ", separated by commas" if schema.get("type") == "array" else ""
        default = f" [{schema['default']}]" if "default" in schema else ("" if self.is_required else " [skip]")
        return "  " + one_line(f"{label}{choices}{several}{default}", MAX_FAILURE_SHOWN) + ": "

    def parse(self, text: str) -> str | int | float | bool | list[str]:
        """Convert a typed answer to the type in the schema. Raises `ValueError` with a message for the user."""
        match self.schema.get("type"):
            case "boolean":
                if text.lower() not in _BOOLEAN_WORDS:
                    raise ValueError("Please say yes or no.")
                return _BOOLEAN_WORDS[text.lower()]
            case "integer":
                return _parse_number(text, int)
            case "number":
                return _parse_number(text, float)
            case "array":
                return [self._parse_choice(part.strip()) for part in text.split(",") if part.strip()]
            case _:
                return self._parse_choice(text)

    def _parse_choice(self, text: str) -> str:
        if not text:
            raise ValueError("An answer is required.")
        if self._choices and text not in self._choices:
            raise ValueError("Please give one of the values in brackets.")
        return text

    @property
    def _choices(self) -> list[str]:
        items = self.schema.get("items")
        source = items if self.schema.get("type") == "array" and isinstance(items, Mapping) else self.schema
        listed = source.get("enum") or source.get("oneOf") or source.get("anyOf")
        if not isinstance(listed, list):
            return []
        return [str(each.get("const") if isinstance(each, Mapping) else each) for each in listed]


def form_fields(params: Mapping[str, Any]) -> Iterator[FormField]:
    """Yield the fields of an elicitation request. Parts that are not a form are skipped."""
    schema = params.get("requestedSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    properties, required = schema.get("properties"), schema.get("required")
    for name, described in (properties if isinstance(properties, Mapping) else {}).items():
        field = described if isinstance(described, Mapping) else {}
        needed = isinstance(required, list) and name in required and "default" not in field
        yield FormField(name=str(name), schema=field, is_required=needed)


def _parse_number(text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError("Please give a number.") from None


async def _ask_form(params: Mapping[str, Any]) -> Mapping[str, Any]:
    content: dict[str, Any] = {}
    for field in form_fields(params):
        while True:
            line = await ask_line(field.prompt)
            if line is None:
                return {"action": "cancel"}
            if not line.strip() and not field.is_required:
                break
            try:
                content[field.name] = field.parse(line.strip())
                break
            except ValueError as error:
                _write_prompt(f"  {error}\n")
    return {"action": "accept", "content": content}


async def _ask_yes_no(question: str, prompt: str, explanation: str) -> bool:
    """Ask until the answer is yes or no, or the input ends. `explanation` says what the answers do, shown for `?`."""
    # Only once, before the question: what was typed earlier is no answer to it, what is typed from now on is one.
    discard_typed_ahead()
    _write_prompt(question)
    return await _ask_word(f"{prompt}[y/N] (? for help) ", "y or n", _WORDS, explanation) == "y"


async def _ask_word(prompt: str, choices: str, words: Mapping[str, str], explanation: str) -> str:
    """Ask until the answer is one of the words, and return its meaning. The end of input is an empty answer."""
    while True:
        line = await ask_line(prompt)
        word = "" if line is None else line.strip().lower()
        if word in words:
            return words[word]
        _write_prompt(explanation if word == "?" else f"  Please answer {choices}.\n")


async def ask_line(prompt: str) -> str | None:
    """Print `prompt` and read a line from the terminal; None at the end of input."""
    _write_prompt(prompt)
    line = await read_available(MAX_ANSWER_BYTES)
    return line.decode("utf-8", "replace").rstrip("\r\n") if line else None


def _write_prompt(text: str, colour: str | None = None) -> None:
    sys.stderr.write(click.style(escape_unprintable(text), fg=colour) if colour else escape_unprintable(text))
    sys.stderr.flush()


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or "nowhere"
    except ValueError:
        return "nowhere"
