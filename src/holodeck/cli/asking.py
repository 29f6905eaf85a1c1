"""The person at the terminal is asked: whether a tool may run, and what a server wants to know."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import click

from holodeck.cli.words import call_arguments
from holodeck.lib.display import one_line, printable
from holodeck.lib.limits import MAX_ANSWER_BYTES, MAX_FAILURE_SHOWN
from holodeck.runtime import People

_YES = frozenset({"y", "yes"})


class Place(Protocol):
    """Where a person may be: a terminal that can keep its lines free for a question."""

    @property
    def can_ask(self) -> bool: ...

    def asking(self) -> AbstractContextManager[None]: ...


def people_at(terminal: Place) -> People:
    """Who can be asked: the person at the terminal, or nobody."""
    if not terminal.can_ask:
        return People()
    asker = Asker(terminal)
    return People(approve=asker.approve, elicit=asker.elicit)


class Asker:
    """One question at a time, however many calls want an answer."""

    def __init__(self, terminal: Place) -> None:
        self._terminal = terminal
        self._turn = asyncio.Lock()

    async def approve(self, server: str, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether this call may run. Anything but yes is no."""
        async with self._turn:
            with self._terminal.asking():
                said = await ask_line(
                    f"May {one_line(f'{server}.{tool}', MAX_FAILURE_SHOWN)} run ({call_arguments(arguments)})? [y/N] "
                )
                return (said or "").strip().lower() in _YES

    async def elicit(self, server: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the person tells a server. It is named, since any server may pretend to be somebody else."""
        async with self._turn:
            with self._terminal.asking():
                question = one_line(str(params.get("message", "")), MAX_FAILURE_SHOWN)
                if params.get("mode") == "url":
                    url = one_line(str(params.get("url", "")), MAX_FAILURE_SHOWN)
                    said = await ask_line(
                        f"Server '{server}' asks: {question}\nIt wants you to open {url}\nAgree? [y/N] "
                    )
                    return {"action": "accept" if (said or "").strip().lower() in _YES else "decline"}
                said = await ask_line(f"Server '{server}' asks: {question}\nAnswer it? [y/N] ")
                if (said or "").strip().lower() not in _YES:
                    return {"action": "decline"}
                return await _form(params)


async def _form(params: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = params.get("requestedSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    properties = schema.get("properties")
    required = schema.get("required")
    content: dict[str, Any] = {}
    for name, described in (properties if isinstance(properties, Mapping) else {}).items():
        field = described if isinstance(described, Mapping) else {}
        needed = isinstance(required, list) and name in required and "default" not in field
        while True:
            said = await ask_line(_field_prompt(str(name), field, needed))
            if said is None:
                return {"action": "cancel"}
            if not said.strip() and not needed:
                break
            try:
                content[str(name)] = typed(said.strip(), field)
                break
            except ValueError as error:
                click.echo(f"  {error}", err=True)
    return {"action": "accept", "content": content}


def _field_prompt(name: str, field: Mapping[str, Any], needed: bool) -> str:
    label = one_line(str(field.get("title") or field.get("description") or name), MAX_FAILURE_SHOWN)
    choices = field.get("enum")
    options = f" ({', '.join(map(str, choices))})" if isinstance(choices, list) else ""
    default = f" [{field['default']}]" if "default" in field else ("" if needed else " [skip]")
    return one_line(f"  {label}{options}{default}", MAX_FAILURE_SHOWN) + ": "


def typed(text: str, field: Mapping[str, Any]) -> str | int | float | bool:
    """What the person typed, as the kind of value that the server asked for. Raises `ValueError` in words."""
    choices = field.get("enum")
    if isinstance(choices, list) and text not in map(str, choices):
        raise ValueError("Please give one of the values in brackets.")
    match field.get("type"):
        case "boolean":
            if text.lower() not in {*_YES, "true", "n", "no", "false"}:
                raise ValueError("Please say yes or no.")
            return text.lower() in {*_YES, "true"}
        case "integer":
            return _number(text, int)
        case "number":
            return _number(text, float)
        case _:
            if not text:
                raise ValueError("An answer is required.")
            return text


def _number(text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError("Please give a number.") from None


async def ask_line(prompt: str) -> str | None:
    """A line of the person at the terminal; None at the end of input. Cancelling leaves no thread behind."""
    sys.stderr.write(printable(prompt))
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    typed_line: asyncio.Future[bytes] = loop.create_future()
    source = sys.stdin.fileno()

    def ready() -> None:
        loop.remove_reader(source)
        if not typed_line.done():
            typed_line.set_result(os.read(source, MAX_ANSWER_BYTES))

    loop.add_reader(source, ready)
    try:
        line = await typed_line
    finally:
        loop.remove_reader(source)
    return line.decode("utf-8", "replace").rstrip("\r\n") if line else None
