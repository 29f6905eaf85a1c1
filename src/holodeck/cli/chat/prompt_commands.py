"""The prompts of all servers as commands of a chat: `/review code=...`."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holodeck.lib.errors import MCPError
from holodeck.models.items import Message

if TYPE_CHECKING:
    from holodeck.agent import Agent
    from holodeck.tools.mcp.discovery import MCPPromptInfo
    from holodeck.tools.mcp.plugin import MCPPlugin

_KEY_VALUE = re.compile(r"([^\s=]+)=(.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class PromptCommand:
    """A prompt of a server under the name by which a person calls it."""

    name: str
    server: MCPPlugin
    info: MCPPromptInfo

    @property
    def full_name(self) -> str:
        return f"{self.server.name}.{_typeable_name(self.info.name)}"

    @property
    def arguments(self) -> Sequence[str]:
        return [str(argument.get("name")) for argument in self.info.arguments]

    @property
    def required_arguments(self) -> Sequence[str]:
        return [str(argument.get("name")) for argument in self.info.arguments if argument.get("required") is True]

    def describe(self, argument: str) -> str:
        """What the server says about an argument."""
        found = next((each for each in self.info.arguments if each.get("name") == argument), {})
        return str(found.get("description") or argument)

    async def render(self, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        """The messages that the server makes of it. Raises `MCPError`."""
        result = await self.server.get_prompt(self.info.name, **arguments)
        return tuple(
            Message(role="assistant" if message.role == "assistant" else "user", content=tuple(message.content))
            for message in result.messages
        )


async def find_prompts(agent: Agent, taken: Collection[str]) -> tuple[list[PromptCommand], list[MCPError]]:
    """The prompts of every server that answers, and why others do not. A name that is not free gets its server's."""
    servers = list(agent.mcp.servers.values())
    listed = await asyncio.gather(*(server.list_prompts() for server in servers), return_exceptions=True)
    offered: list[tuple[MCPPlugin, MCPPromptInfo]] = []
    failures: list[MCPError] = []
    for server, prompts in zip(servers, listed, strict=True):
        if isinstance(prompts, MCPError):
            failures.append(prompts)
        elif isinstance(prompts, BaseException):
            raise prompts
        else:
            offered += [(server, info) for info in prompts]
    counts = Counter(_typeable_name(info.name) for _, info in offered)

    def choose_name(server: MCPPlugin, info: MCPPromptInfo) -> str:
        bare = _typeable_name(info.name)
        return bare if counts[bare] == 1 and bare not in taken else f"{server.name}.{bare}"

    return [
        PromptCommand(name=choose_name(server, info), server=server, info=info) for server, info in offered
    ], failures


def parse_prompt_arguments(text: str, names: Sequence[str]) -> dict[str, str]:
    """What a person wrote after the name: `key=value`, or values in order; the last one takes all that is left.

    Raises `ValueError` in words.
    """
    if not text.strip():
        return {}
    if not names:
        raise ValueError("it takes no arguments.")
    if len(names) == 1 and not text.lstrip().startswith(f"{names[0]}="):
        return {names[0]: text.strip()}
    try:
        words = shlex.split(text)
    except ValueError:  # an apostrophe, not a quotation
        words = text.split()
    given: dict[str, str] = {}
    loose: list[str] = []
    for word in words:
        match = _KEY_VALUE.fullmatch(word)
        if match and match.group(1) in names:
            given[match.group(1)] = match.group(2)
        else:
            loose.append(word)
    free = [name for name in names if name not in given]
    if loose and not free:
        raise ValueError(f"'{loose[0]}' is one too many; its arguments are: {', '.join(names)}.")
    for name in free[:-1]:
        if loose:
            given[name] = loose.pop(0)
    if loose:
        given[free[-1]] = " ".join(loose)
    return given


def prompt_rows(prompts: Sequence[PromptCommand]) -> list[tuple[str, str, str, str]]:
    """For a table: the command, its server, its arguments, what it is for."""
    return [
        (f"/{prompt.name}", prompt.server.name, _signature(prompt), prompt.info.description or prompt.info.title or "")
        for prompt in prompts
    ]


def _signature(prompt: PromptCommand) -> str:
    required: Any = set(prompt.required_arguments)
    return " ".join(name if name in required else f"[{name}]" for name in prompt.arguments)


def _typeable_name(name: str) -> str:
    """A name that can be typed as one word."""
    return re.sub(r"\s+", "-", name)
