"""Slash commands of a chat: the built-in ones, and one for each prompt of a server."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.chat.history import ChatHistory, describe_session, save_transcript
from holodeck.cli.chat.mentions import attachable_servers
from holodeck.cli.output.server_notices import ServerNotices
from holodeck.cli.output.terminal import Screen
from holodeck.cli.terminal_agent import describe_model, find_model
from holodeck.config.agent_loader import LoadedAgent
from holodeck.lib.errors import ConfigError, HoloDeckError, MCPError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN, MAX_FAILURE_SHOWN
from holodeck.lib.record import record
from holodeck.models.items import Message
from holodeck.models.tool import AgentTool, FunctionTool
from holodeck.runtime import open_model

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.tools.mcp.discovery import MCPPromptInfo
    from holodeck.tools.mcp.plugin import MCPPlugin

AskLine = Callable[[str], Awaitable[str | None]]
"""Asks the user for a line; None if there is no user or no answer."""

_KEY_VALUE = re.compile(r"([^\s=]+)=(.*)", re.DOTALL)


class QuitChatError(Exception):
    """The user ends the chat."""


@record
class _Command:
    usage: str
    help: str
    run: Callable[[str], Awaitable[tuple[Message, ...] | None]]


class SlashCommands:
    """Runs lines that begin with a slash. A prompt returns messages, which the chat then sends to the model."""

    def __init__(
        self,
        loaded: LoadedAgent,
        agent: AgentRunner,
        history: ChatHistory,
        screen: Screen,
        notices: ServerNotices,
        ask: AskLine,
    ) -> None:
        self._loaded = loaded
        self._agent = agent
        self._history = history
        self._screen = screen
        self._notices = notices
        self._ask = ask
        self._prompts: list[PromptCommand] = []
        self._table = {
            "help": _Command(usage="", help="Show this list.", run=self._show_help),
            "tools": _Command(usage="", help="List the tools that the model is offered.", run=self._list_tools),
            "prompts": _Command(usage="", help="List the prompts of the servers.", run=self._list_prompts),
            "resources": _Command(
                usage="", help="List the resources that @SERVER:URI attaches.", run=self._list_resources
            ),
            "servers": _Command(usage="", help="Show the state of the servers.", run=self._list_servers),
            "model": _Command(
                usage="[MODEL]",
                help="Show the model, or ask another one from now on: provider:name, or one of your models.",
                run=self._change_model,
            ),
            "reset": _Command(usage="", help="Forget the conversation and start a new one.", run=self._reset),
            "save": _Command(usage="[FILE]", help="Write the conversation to a new Markdown file.", run=self._save),
            "session": _Command(
                usage="NAME",
                help="Store the conversation as a session; `holodeck chat --resume NAME` goes on with it.",
                run=self._store_session,
            ),
            "quit": _Command(usage="", help="Leave (or Ctrl-D).", run=self._quit),
        }

    @property
    def names(self) -> list[str]:
        """Names of all commands. Prompts are included once they have been listed."""
        return [*self._table, *(prompt.name for prompt in self._prompts)]

    async def run(self, line: str) -> tuple[Message, ...] | None:
        """Run the command in `line`. Returned messages are the question to send. Raises `QuitChatError`."""
        name, _, rest = line.removeprefix("/").partition(" ")
        try:
            if name in self._table:
                return await self._table[name].run(rest.strip())
            return await self._run_prompt(name, rest)
        except HoloDeckError as error:
            self._screen.note(one_line(str(error), MAX_FAILURE_SHOWN), always=True, fg="red")
            return None

    async def _show_help(self, _: str) -> None:
        rows = [(f"/{name} {command.usage}".rstrip(), command.help) for name, command in self._table.items()]
        rows.append(("/PROMPT [ARGUMENTS]", "Ask with a prompt of a server; arguments in order or as key=value."))
        rows.append(("@FILE", "In a question: attach an image or a text file, such as @notes.md or @./chart.png."))
        rows.append(("@SERVER:URI", "In a question: attach a resource of a server with 'load_resources: true'."))
        self._screen.table(("Command", "What it does"), rows)

    async def _list_tools(self, _: str) -> None:
        rows: list[tuple[str, str, str]] = []
        for spec in await self._agent.mcp.specs():
            route = self._agent.mcp.find_route(spec.name)
            server = route.server.name if route is not None else ""
            rows.append((spec.name, server, one_line(spec.description, MAX_DESCRIPTION_SHOWN)))
        for tool in self._agent.config.tools:
            if isinstance(tool, FunctionTool | AgentTool):
                rows.append((tool.name, f"({tool.type})", one_line(tool.description or "", MAX_DESCRIPTION_SHOWN)))
        if rows:
            self._screen.table(("Tool", "Server", "What it does"), rows)
        else:
            self._screen.note("There are no tools.", always=True)

    async def _list_prompts(self, _: str) -> None:
        await self._find_prompts()
        if self._prompts:
            self._screen.table(("Prompt", "Server", "Arguments", "What it does"), prompt_rows(self._prompts))
        else:
            self._screen.note("There are no prompts.", always=True)

    async def _list_resources(self, _: str) -> None:
        servers = attachable_servers(self._agent)
        listed = await asyncio.gather(*(server.list_resources() for server in servers.values()), return_exceptions=True)
        rows: list[tuple[str, str, str]] = []
        for name, resources in zip(servers, listed, strict=True):
            if isinstance(resources, MCPError):
                self._screen.note(one_line(str(resources), MAX_FAILURE_SHOWN), always=True, fg="yellow")
            elif isinstance(resources, BaseException):
                raise resources
            else:
                rows += [(f"@{name}:{info.uri}", info.name, info.mime_type or "") for info in resources]
        if rows:
            self._screen.table(("Resource", "Name", "Type"), rows)
        else:
            self._screen.note("There are no resources of servers with 'load_resources: true'.", always=True)

    async def _list_servers(self, _: str) -> None:
        servers = list(self._agent.mcp.servers.values())
        if not servers:
            self._screen.note("There are no servers.", always=True)
            return
        rows = await asyncio.gather(*(self._server_row(server) for server in servers))
        self._screen.table(("Server", "State", "Protocol", "Tools", "Prompts", "Last error"), rows)

    async def _server_row(self, server: MCPPlugin) -> Sequence[str]:
        from holodeck.tools.mcp.connection.connection import ConnectionState

        tools = prompts = "-"
        # Listing the tools of a server that is not connected would start it.
        if server.state is ConnectionState.CONNECTED:
            try:
                tools, prompts = str(len(await server.list_tools())), str(len(await server.list_prompts()))
            except MCPError as error:
                self._notices.last_errors[server.name] = str(error)
        protocol = f"{server.era} {server.protocol_version}" if server.era is not None else "-"
        last = one_line(self._notices.last_errors.get(server.name, "-"), MAX_DESCRIPTION_SHOWN)
        return (server.name, _state_text(server), protocol, tools, prompts, last)

    async def _change_model(self, text: str) -> None:
        if text:
            try:
                model = find_model(self._loaded, text)
            except click.UsageError as error:
                raise ConfigError(error.message) from None
            # A model that cannot be built is an error, and the chat goes on with the one that it has.
            await self._agent.use_model(model, open_model(model, os.environ))
        settings = self._agent.config.model
        where = f" at {settings.endpoint}" if settings.endpoint else ""
        self._screen.note(f"The model is {describe_model(settings)}{where}.", always=True)

    async def _reset(self, _: str) -> None:
        self._history.reset()
        session = self._history.session
        where = "" if session.path is None else f", also in the session '{session.id}'"
        self._screen.note(f"The conversation is forgotten{where}.", always=True)

    async def _save(self, file: str) -> None:
        if not self._history.items:
            self._screen.note("There is nothing to save yet.", always=True)
            return
        path = save_transcript(self._agent.name, self._history.items, file)
        self._screen.note(f"Saved {path}", always=True)

    async def _store_session(self, name: str) -> None:
        session = self._history.session
        if session.path is not None:
            self._screen.note(f"The conversation is in the session '{session.id}' already.", always=True)
        elif not name:
            self._screen.note("Give the session a name: /session NAME", always=True)
        elif not self._history.items:
            self._screen.note("There is nothing to store yet.", always=True)
        else:
            await self._history.store(name)
            self._screen.note(describe_session(self._history.session), always=True)

    async def _quit(self, _: str) -> None:
        raise QuitChatError

    async def find_prompt(self, name: str) -> PromptCommand | None:
        """Return the prompt behind the name of a command, and list the prompts if none of that name is known."""
        if name in self._table:
            return None
        if self._find_listed_prompt(name) is None:
            self._prompts, _ = await find_prompts(self._agent, self._table.keys())
        return self._find_listed_prompt(name)

    def _find_listed_prompt(self, name: str) -> PromptCommand | None:
        return next((each for each in self._prompts if name in (each.name, each.full_name)), None)

    async def _run_prompt(self, name: str, rest: str) -> tuple[Message, ...] | None:
        await self._find_prompts()
        prompt = self._find_listed_prompt(name)
        if prompt is None:
            self._screen.note(self._unknown_command_text(name), always=True, fg="red")
            return None
        try:
            arguments = parse_prompt_arguments(rest, prompt.arguments)
        except ValueError as error:
            self._screen.note(f"/{prompt.name}: {error}", always=True, fg="red")
            return None
        for argument in prompt.required_arguments:
            if argument in arguments:
                continue
            answer = await self._ask(f"{one_line(prompt.describe(argument), MAX_DESCRIPTION_SHOWN)} ({argument}): ")
            if not answer:
                self._screen.note(f"/{prompt.name} needs '{argument}'.", always=True, fg="red")
                return None
            arguments[argument] = answer
        messages = await prompt.render(arguments)
        if not messages:
            self._screen.note(f"/{prompt.name}: the server gave an empty prompt.", always=True, fg="red")
        return messages or None

    async def _find_prompts(self) -> None:
        self._prompts, failures = await find_prompts(self._agent, self._table.keys())
        for failure in failures:
            self._screen.note(one_line(str(failure), MAX_FAILURE_SHOWN), fg="yellow")

    def _unknown_command_text(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.names, n=1)
        hint = f" Did you mean /{close[0]}?" if close else ""
        return f"There is no command /{one_line(name, MAX_DESCRIPTION_SHOWN)}.{hint} /help lists them."


def _state_text(server: MCPPlugin) -> str:
    from holodeck.tools.mcp.connection.connection import ConnectionState

    return {ConnectionState.CREATED: "not started", ConnectionState.CONNECTED: "running"}.get(
        server.state, str(server.state)
    )


@record
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


async def find_prompts(agent: AgentRunner, taken: Collection[str]) -> tuple[list[PromptCommand], list[MCPError]]:
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
