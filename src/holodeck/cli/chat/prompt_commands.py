"""Prompts of the MCP servers as commands of a chat: `/review code=...`."""

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
    """A prompt of a server, under the name of its command."""

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
        """Return the description of an argument, or its name."""
        found = next((each for each in self.info.arguments if each.get("name") == argument), {})
        return str(found.get("description") or argument)

    async def render(self, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        """Return the messages of the prompt with these arguments. Raises `MCPError`."""
        result = await self.server.get_prompt(self.info.name, **arguments)
        return tuple(
            Message(role="assistant" if message.role == "assistant" else "user", content=tuple(message.content))
            for message in result.messages
        )


async def find_prompts(agent: Agent, taken: Collection[str]) -> tuple[list[PromptCommand], list[MCPError]]:
    """List the prompts of all servers, and the errors of those that failed.

    A name that is in `taken`, or that several servers have, is prefixed with the name of its server.
    """
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
    """Parse the text after a command: `key=value` pairs, or values in order; the last argument takes the rest.

    Raises `ValueError` with a message for the user.
    """
    if not text.strip():
        return {}
    if not names:
        raise ValueError("it takes no arguments.")
    if len(names) == 1 and not text.lstrip().startswith(f"{names[0]}="):
        return {names[0]: text.strip()}
    try:
        words = shlex.split(text)
    # An apostrophe in plain text is not a quotation.
    except ValueError:
        words = text.split()
    arguments: dict[str, str] = {}
    positional: list[str] = []
    for word in words:
        match = _KEY_VALUE.fullmatch(word)
        if match and match.group(1) in names:
            arguments[match.group(1)] = match.group(2)
        else:
            positional.append(word)
    free = [name for name in names if name not in arguments]
    if positional and not free:
        raise ValueError(f"'{positional[0]}' is one too many; its arguments are: {', '.join(names)}.")
    for name in free[:-1]:
        if positional:
            arguments[name] = positional.pop(0)
    if positional:
        arguments[free[-1]] = " ".join(positional)
    return arguments


def prompt_rows(prompts: Sequence[PromptCommand]) -> list[tuple[str, str, str, str]]:
    """Return table rows: the command, its server, its arguments, its description."""
    return [
        (f"/{prompt.name}", prompt.server.name, _signature(prompt), prompt.info.description or prompt.info.title or "")
        for prompt in prompts
    ]


def _signature(prompt: PromptCommand) -> str:
    required: Any = set(prompt.required_arguments)
    return " ".join(name if name in required else f"[{name}]" for name in prompt.arguments)


def _typeable_name(name: str) -> str:
    # A command is typed as one word.
    return re.sub(r"\s+", "-", name)
