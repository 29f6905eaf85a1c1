"""Suggestions for the end of a line that is being typed in a chat: arguments of prompts, resources and files.

Servers are asked with a short limit, and one that is slow or fails has no suggestions. What a server suggests is left
out if it has characters that a line cannot show, so that none of them gets into a message unseen.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from holodeck.cli.chat.line_reader import Suggestion
from holodeck.cli.chat.mentions import attachable_servers
from holodeck.lib.errors import MCPError
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN
from holodeck.lib.net.uri_template import find_typed_variable, literal_start

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.cli.chat.slash_commands import SlashCommands
    from holodeck.tools.mcp.plugin import MCPPlugin

# Seconds for the answer of a server. A later one would come for a line that has changed since.
SUGGESTION_TIMEOUT = 2.0
# Entries of a folder that are looked at for files to suggest.
MAX_LISTED_FILES = 10_000
# Suggestions for one line; a person types on instead of reading more.
MAX_SUGGESTIONS = 100

_MENTION_START = re.compile(r"""(?:^|(?<=[\s(\["']))@(?:([A-Za-z][A-Za-z0-9_-]*:)?"([^"\n]*)|([^\s"]*))$""")
_LAST_WORD = re.compile(r"\S*$")

T = TypeVar("T")


class Suggestions:
    """Suggests how a line can go on."""

    def __init__(self, agent: AgentRunner, commands: SlashCommands) -> None:
        self._agent = agent
        self._commands = commands

    def is_offered_while_typing(self, text: str) -> bool:
        """Return whether the end of the text is the beginning of a mention."""
        return _MENTION_START.search(text) is not None

    async def complete(self, text: str) -> list[Suggestion]:
        """Return what the text before the cursor can become. Servers may be asked, for a short time."""
        mention = _MENTION_START.search(text)
        if mention is not None:
            is_quoted = mention[3] is None
            typed = f"{mention[1] or ''}{mention[2]}" if is_quoted else mention[3]
            replaced = len(typed) + is_quoted
            found = await self._complete_mention(typed)
            return [
                Suggestion(text=_quote_mention(each.text), replaced=replaced, about=each.about)
                for each in found[:MAX_SUGGESTIONS]
            ]
        if text.startswith("/") and " " in text:
            return (await self._complete_argument(text))[:MAX_SUGGESTIONS]
        return []

    async def _complete_mention(self, typed: str) -> list[Suggestion]:
        servers = attachable_servers(self._agent)
        found = await asyncio.gather(
            *(_suggest_resources(server, typed) for server in servers.values()),
            _suggest_files(typed),
        )
        ranked = sorted((entry for entries in found for entry in entries), key=lambda entry: entry[0])
        return [suggestion for _, suggestion in ranked]

    async def _complete_argument(self, text: str) -> list[Suggestion]:
        name, _, rest = text[1:].partition(" ")
        prompt = await _wait_shortly(self._commands.find_prompt(name), None)
        if prompt is None:
            return []
        word = _LAST_WORD.search(rest)
        typed = word[0] if word is not None else ""
        argument, equals, value = typed.partition("=")
        given = dict(_read_pairs(rest[: len(rest) - len(typed)], prompt.arguments))
        if not equals:
            free = [each for each in prompt.arguments if each not in given and each.startswith(typed)]
            return [
                Suggestion(text=f"{each}=", replaced=len(typed), about=one_line(prompt.describe(each), 60))
                for each in free
                if _is_plain(each)
            ]
        if argument not in prompt.arguments:
            return []
        values = await _ask_server(
            prompt.server, {"type": "ref/prompt", "name": prompt.info.name}, argument, value.strip("'\""), given
        )
        return [Suggestion(text=shlex.quote(each), replaced=len(value)) for each in values]


async def _suggest_files(typed: str) -> list[tuple[int, Suggestion]]:
    """Return suggestions of files with their ranks. It waits shortly: a folder may be on a slow network."""
    # Here, and not among the arguments of `gather`: a task that is cancelled before it began would never await it.
    return await _wait_shortly(asyncio.to_thread(_list_files, typed), [])


def _list_files(typed: str) -> list[tuple[int, Suggestion]]:
    """Return the files and folders in the folder that is typed, with their ranks. Hidden ones only after a dot."""
    folder, slash, name = typed.rpartition("/")
    ranked: list[tuple[int, Suggestion]] = []
    try:
        with os.scandir(Path(folder + slash or ".").expanduser()) as entries:
            for entry in sorted(islice(entries, MAX_LISTED_FILES), key=lambda entry: entry.name):
                rank = rank_match(name, (entry.name,))
                if rank is None or not _is_plain(entry.name) or (entry.name[0] == "." and not name.startswith(".")):
                    continue
                path = f"{folder}{slash}{entry.name}{'/' if entry.is_dir() else ''}"
                ranked.append((rank, Suggestion(text=path, replaced=0, about="folder" if entry.is_dir() else "file")))
    except (OSError, RuntimeError, ValueError):
        return []
    return ranked


async def _suggest_resources(server: MCPPlugin, typed: str) -> list[tuple[int, Suggestion]]:
    """Return suggestions of one server with their ranks, the smallest first."""
    resources = await _wait_shortly(server.list_resources(), [])
    templates = await _wait_shortly(server.list_resource_templates(), [])
    ranked: list[tuple[int, Suggestion]] = []
    for info in resources:
        text = f"{server.name}:{info.uri}"
        rank = rank_match(typed, (text, f"{server.name}:{info.name}", info.uri, info.name, info.title or ""))
        if rank is not None and _is_plain(info.uri):
            ranked.append((rank, Suggestion(text=text, replaced=0, about=one_line(info.name, MAX_DESCRIPTION_SHOWN))))
    uri = typed.removeprefix(f"{server.name}:")
    for template in templates:
        start = literal_start(template.uri_template)
        if not _is_plain(template.uri_template):
            continue
        if uri != typed and uri.startswith(start) and "{" in template.uri_template:
            ranked += [(0, each) for each in await _suggest_filled(server, template.uri_template, uri)]
            continue
        text = f"{server.name}:{start}"
        rank = rank_match(typed, (text, f"{server.name}:{template.name}", start, template.name))
        if rank is not None:
            ranked.append((rank, Suggestion(text=text, replaced=0, about=template.uri_template)))
    return ranked


async def _suggest_filled(server: MCPPlugin, template: str, uri: str) -> list[Suggestion]:
    """Return the template with the variable that is being typed filled in, as far as the server has values for it."""
    variable = find_typed_variable(template, uri)
    if variable is None:
        return []
    reference = {"type": "ref/resource", "uri": template}
    values = await _ask_server(server, reference, variable.name, variable.value, variable.others)
    before = uri[: len(uri) - len(variable.value)]
    return [
        Suggestion(
            text=f"{server.name}:{before}{quote(value, safe='')}{variable.following}", replaced=0, about=template
        )
        for value in values
    ]


async def _ask_server(
    server: MCPPlugin, reference: Mapping[str, Any], argument: str, value: str, given: Mapping[str, str]
) -> list[str]:
    context = {"arguments": dict(given)} if given else None
    asked = server.complete(reference, {"name": argument, "value": value}, context)
    completion = (await _wait_shortly(asked, {})).get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    found = values[:MAX_SUGGESTIONS] if isinstance(values, list) else []
    return [each for each in found if isinstance(each, str) and each and _is_plain(each)]


async def _wait_shortly(asked: Awaitable[T], otherwise: T) -> T:
    try:
        async with asyncio.timeout(SUGGESTION_TIMEOUT):
            return await asked
    except (MCPError, TimeoutError):
        return otherwise


def rank_match(typed: str, texts: Iterable[str]) -> int | None:
    """Return how well the best of the texts matches: 0 from its beginning, 1 inside, 2 with gaps; None if none does."""
    wanted = typed.lower()
    ranks = [
        0 if text.startswith(wanted) else 1 if wanted in text else 2
        for text in map(str.lower, texts)
        if _has_in_order(wanted, text)
    ]
    return min(ranks, default=None)


def _has_in_order(wanted: str, text: str) -> bool:
    position = 0
    for char in wanted:
        position = text.find(char, position) + 1
        if not position:
            return False
    return True


def _read_pairs(text: str, names: Sequence[str]) -> Iterable[tuple[str, str]]:
    try:
        words = shlex.split(text)
    # A quotation that is not closed yet.
    except ValueError:
        words = text.split()
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names:
            yield name, value


def _quote_mention(mention: str) -> str:
    server, _, uri = mention.partition(":")
    if not re.search(r"\s", mention):
        return mention
    return f'{server}:"{uri}"' if uri else f'"{mention}"'


def _is_plain(text: str) -> bool:
    return "\n" not in text and "\t" not in text and '"' not in text and escape_unprintable(text) == text
