"""The person at the terminal is asked: whether a tool may run, and what a server wants to know."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol
from urllib.parse import urlsplit

from holodeck.cli.output.elicited_form import form_fields
from holodeck.cli.output.events_json import json_text, to_plain_data
from holodeck.cli.output.stdin import discard_typed_ahead, read_available
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_ANSWER_BYTES, MAX_APPROVAL_SHOWN, MAX_FAILURE_SHOWN
from holodeck.runtime import People

_YES = frozenset({"y", "yes"})
_NO = frozenset({"", "n", "no"})
_CALL_HELP = (
    "  y: run this call once, with exactly these arguments.\n"
    "  n, or Enter alone: do not run it. The model is told that you said no, and goes on.\n"
)
_SERVER_HELP = (
    "  y: the server gets your answer.\n"
    "  n, or Enter alone: the server is told that you declined. It gets nothing else.\n"
)


class UserTerminal(Protocol):
    """Where a person may be: a terminal that can keep its lines free for a question."""

    @property
    def can_ask(self) -> bool: ...

    def pause_output(self) -> AbstractContextManager[None]: ...


def build_people(terminal: UserTerminal) -> People:
    """Who can be asked: the person at the terminal, or nobody."""
    if not terminal.can_ask:
        return People()
    asker = UserPrompter(terminal)
    return People(approve=asker.approve, elicit=asker.elicit)


class UserPrompter:
    """One question at a time, however many calls want an answer."""

    def __init__(self, terminal: UserTerminal) -> None:
        self._terminal = terminal
        self._lock = asyncio.Lock()

    async def approve(self, server: str, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether this call may run, with all of its arguments in sight. The end of input is no."""
        async with self._lock:
            with self._terminal.pause_output():
                name = one_line(f"{server}.{tool}", MAX_FAILURE_SHOWN)
                question = f"May {name} run with these arguments?\n{_format_arguments(arguments)}\n"
                return await _ask_yes_no(question, "", _CALL_HELP)

    async def elicit(self, server: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the person tells a server, which is named: any server may pretend to be somebody else."""
        async with self._lock:
            with self._terminal.pause_output():
                question = f"Server '{server}' asks: {one_line(str(params.get('message', '')), MAX_FAILURE_SHOWN)}"
                if params.get("mode") == "url":
                    url = str(params.get("url", ""))
                    wish = f"It wants you to open a page of {_host_of(url)}:\n{one_line(url, MAX_APPROVAL_SHOWN)}"
                    agrees = await _ask_yes_no(f"{question}\n{wish}\n", "Agree? ", _SERVER_HELP)
                    return {"action": "accept" if agrees else "decline"}
                if not await _ask_yes_no(f"{question}\n", "Answer it? ", _SERVER_HELP):
                    return {"action": "decline"}
                return await _ask_form(params)


async def _ask_form(params: Mapping[str, Any]) -> Mapping[str, Any]:
    content: dict[str, Any] = {}
    for field in form_fields(params):
        while True:
            said = await ask_line(field.prompt)
            if said is None:
                return {"action": "cancel"}
            if not said.strip() and not field.is_required:
                break
            try:
                content[field.name] = field.parse(said.strip())
                break
            except ValueError as error:
                _write_prompt(f"  {error}\n")
    return {"action": "accept", "content": content}


async def _ask_yes_no(question: str, prompt: str, explanation: str) -> bool:
    """Ask until the answer is yes or no, or the input ends. `explanation`: what the answers do, shown for `?`."""
    # What was typed before the question was seen answers another one; what is typed from now on is an answer.
    discard_typed_ahead()
    _write_prompt(question)
    while True:
        said = await ask_line(f"{prompt}[y/N] (? for help) ")
        word = "" if said is None else said.strip().lower()
        if word in _YES or word in _NO:
            return word in _YES
        _write_prompt(explanation if word == "?" else "  Please answer y or n.\n")


async def ask_line(prompt: str) -> str | None:
    """A line of the person at the terminal; None at the end of input."""
    _write_prompt(prompt)
    line = await read_available(MAX_ANSWER_BYTES)
    return line.decode("utf-8", "replace").rstrip("\r\n") if line else None


def _write_prompt(text: str) -> None:
    sys.stderr.write(escape_unprintable(text))
    sys.stderr.flush()


def _format_arguments(arguments: Mapping[str, Any]) -> str:
    """All of the arguments: a person who agrees must have seen them."""
    text = json_text(to_plain_data(arguments), indent=2) if arguments else "(none)"
    hidden = len(text) - MAX_APPROVAL_SHOWN
    return text if hidden <= 0 else f"{text[:MAX_APPROVAL_SHOWN]}\n... and {hidden} more characters that are not shown"


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or "nowhere"
    except ValueError:
        return "nowhere"
