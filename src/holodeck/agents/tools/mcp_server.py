"""`MCPServer`: an MCP server as an object, for the tools of an agent or to be called by the program itself.

    async with MCPServer.stdio("npx", "-y", "@modelcontextprotocol/server-everything") as server:
        result = await server.call("echo", message="hi")

A server is a definition: making one starts nothing. `async with` (or `with`, for the `_sync` methods) connects to it
until the end of the block. A method that is called outside of a block connects for this one call. Each event loop has
one connection, which the program and all agents that have the object among their tools share: it is closed after the
last of them. A connection that is lost is replaced on the next use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import Unpack

from holodeck.agents.event_loops import SharedInstance, close_in_background, run_in_background
from holodeck.agents.tools.server_options import (
    RemoteOptions,
    ServerCallbacks,
    ServerOptions,
    StdioOptions,
    build_in_memory_server,
    build_server,
    to_auth,
)
from holodeck.config.server_names import name_for, name_for_command
from holodeck.lib.errors import (
    ConfigError,
    MCPConfigError,
    MCPError,
    MCPToolError,
    MissingTransportFieldError,
    Problem,
)
from holodeck.lib.record import record
from holodeck.models.auth import Auth
from holodeck.models.tool import MCPTool
from holodeck.models.url import BadURLError, parse_endpoint

if TYPE_CHECKING:
    from holodeck.config.tool_list import LoadedTool
    from holodeck.tools.mcp.content import MCPToolResult, PromptResult
    from holodeck.tools.mcp.discovery import MCPPromptInfo, MCPToolInfo
    from holodeck.tools.mcp.plugin import MCPPlugin
    from holodeck.tools.mcp.protocol.pending_requests import OnProgress
    from holodeck.tools.mcp.protocol.server_requests import Callbacks
    from holodeck.tools.mcp.resource_discovery import MCPResourceInfo, MCPResourceTemplateInfo


@record
class ServerInfo:
    """The description of a connected server by itself."""

    name: str
    """Its own name; empty if it gives none."""
    version: str
    """Its own version; empty if it gives none."""
    era: str
    """Era of MCP that it speaks: `legacy` (up to 2025-11-25) or `modern` (from 2026-07-28)."""
    protocol_version: str
    """Version of MCP that it speaks."""
    instructions: str | None
    """How to use it, for models."""
    capabilities: Mapping[str, Any]
    """What it can do, as in the protocol."""


@record
class _Connection:
    """The connection of one event loop, with the callbacks of the agents that use it."""

    plugin: MCPPlugin
    agents: list[Callbacks]


class MCPServer:
    """An MCP server, and how it is started or reached. Nothing happens before its first use.

    Failures raise an `MCPError`: `MCPConnectionError`, `MCPTimeoutError`, `MCPProtocolError`, `MCPToolNotFoundError`,
    or `MCPToolError` for a call that the tool itself answers with an error.
    """

    def __init__(self, definition: LoadedTool, callbacks: ServerCallbacks | None = None) -> None:
        """Take a definition. Not for programs, which use `stdio`, `http`, `in_memory` or `from_file`."""
        if not isinstance(definition.tool, MCPTool):
            raise ConfigError(f"'{definition.tool.name}' is not an MCP server")
        self.definition = definition
        self.tool: MCPTool = definition.tool
        self._callbacks = callbacks or ServerCallbacks()
        self._connections: SharedInstance[_Connection] = SharedInstance(_close_connection)

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **options: Unpack[StdioOptions],
    ) -> Self:
        """Define a server that is a program on this machine: `MCPServer.stdio("npx", "-y", "some-server")`.

        A Python file, as in `MCPServer.stdio("server.py")`, is run by the Python of this program. The server gets only
        the variables of `env` and a few common ones. It is ended with the last block that uses it, with this program,
        and also when this program is killed. Raises `MCPConfigError`.
        """
        import shutil

        folder = Path.cwd() if cwd is None else Path(cwd).expanduser().absolute()
        own_name = name_for_command([command, *args])
        if command.endswith(".py") and shutil.which(command) is None:
            if not (folder / command).is_file():
                raise MCPConfigError(f"There is no file '{command}' in {folder}, which MCPServer.stdio should run.")
            own_name, args, command = name_for(Path(command).stem), (command, *args), sys.executable
        entry = {
            "name": name or own_name,
            "command": command,
            "args": list(args),
            "env": dict(env or {}),
            "cwd": str(folder),
            # A program that names a command means it, as a person who types one does.
            "allow_unsafe_args": True,
        }
        return cls._build(entry, options, StdioOptions, folder)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: str | Auth | None = None,
        **options: Unpack[RemoteOptions],
    ) -> Self:
        """Define a server at a URL, over streamable HTTP. Raises `MCPConfigError`.

        `auth`: a bearer token, or an OAuth client. Without it and without a header `Authorization`, the login of this
        user is sent that `holodeck mcp login` has stored for the URL, if there is one.
        """
        return cls._build_remote("http", url, name, headers, auth, options)

    @classmethod
    def sse(
        cls,
        url: str,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: str | Auth | None = None,
        **options: Unpack[RemoteOptions],
    ) -> Self:
        """Define a server at a URL that answers on one event stream, as older servers do. Otherwise as `http`."""
        return cls._build_remote("sse", url, name, headers, auth, options)

    @classmethod
    def websocket(
        cls,
        url: str,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: str | Auth | None = None,
        **options: Unpack[RemoteOptions],
    ) -> Self:
        """Define a server at a WebSocket URL. Otherwise as `http`."""
        return cls._build_remote("websocket", url, name, headers, auth, options)

    @classmethod
    def in_memory(cls, server: object, *, name: str | None = None, **options: Unpack[ServerOptions]) -> Self:
        """Define a server that is an object of this program: an `MCPServer`, `FastMCP` or `Server` of package `mcp`.

        It runs in the event loop of its user, without a process and a network: once for each event loop that uses it,
        from the first use to the last. `name`: absent, its own. Raises `MCPConfigError` for another object.
        """
        from holodeck.config.tool_list import LoadedTool
        from holodeck.tools.mcp.transports.in_memory import require_server

        require_server(server)
        own_name = getattr(server, "name", None)
        chosen = name or name_for(own_name if isinstance(own_name, str) else "server")
        tool, callbacks = build_in_memory_server(chosen, server, options)
        return cls(LoadedTool(tool=tool, written={}, file="the program", folder=Path.cwd()), callbacks)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> Self:
        """Read a server from an agent file, a gateway file, or the `mcp.json` of any program. Raises `ConfigError`.

        `name`: which one. Absent: the only one. `environ`: variables instead of those of this process. `home`: folder
        of the user's shared settings.
        """
        from holodeck.runtime import read_servers

        loaded = read_servers(path, kind="file", environ=environ, home=home)
        found = {each.tool.name: each for each in loaded.tools if isinstance(each.tool, MCPTool)}
        names = [*found, *loaded.refused]
        chosen = names[0] if name is None and len(names) == 1 else name
        if chosen is not None and chosen in loaded.refused:
            raise ConfigError.of(loaded.refused[chosen])
        if chosen not in found:
            missing = "has not exactly one MCP server: name one" if name is None else f"has no MCP server '{name}'"
            listed = ", ".join(f"'{each}'" for each in names) or "none"
            raise ConfigError(f"{os.fspath(path)} {missing}. Its servers: {listed}.")
        return cls(found[chosen])

    @classmethod
    def from_dict(cls, servers: Mapping[str, Any], *, cwd: str | os.PathLike[str] | None = None) -> list[Self]:
        """Define the servers of a dictionary, in the form of `mcp.json`: `{"mcpServers": {"time": {"command": ...}}}`.

        The names alone, without `mcpServers` around them, do as well. References such as `${API_KEY}` are variables of
        this process. `cwd`: the folder in which relative paths start. Raises `ConfigError` with every problem.
        """
        from holodeck.runtime import read_server_dictionary

        if not isinstance(servers, Mapping):
            raise ConfigError("'servers' is no dictionary: give {'mcpServers': {'time': {'command': ...}}}.")
        loaded = read_server_dictionary(servers, Path.cwd() if cwd is None else Path(cwd).expanduser().absolute())
        problems = [_leave_file_out(problem) for found in loaded.refused.values() for problem in found]
        if problems:
            raise ConfigError.of(problems)
        return [cls(each) for each in loaded.tools if isinstance(each.tool, MCPTool)]

    @classmethod
    def _build_remote(
        cls,
        transport: str,
        url: str,
        name: str | None,
        headers: Mapping[str, str] | None,
        auth: str | Auth | None,
        options: RemoteOptions,
    ) -> Self:
        try:
            host = parse_endpoint(url).host
        except BadURLError as error:
            raise MCPConfigError(str(error)) from None
        entry = {
            "name": name or name_for(host),
            "transport": transport,
            "url": url,
            "headers": dict(headers or {}),
            "auth": to_auth(auth),
        }
        return cls._build(entry, options, RemoteOptions, Path.cwd())

    @classmethod
    def _build(cls, entry: Mapping[str, Any], options: Any, allowed: type[ServerOptions], folder: Path) -> Self:
        from holodeck.config.tool_list import LoadedTool

        tool, callbacks = build_server(entry, options, allowed, folder)
        return cls(LoadedTool(tool=tool, written={}, file="the program", folder=folder), callbacks)

    @property
    def name(self) -> str:
        """Name of the server, in logs and errors."""
        return self.tool.name

    def __repr__(self) -> str:
        return f"MCPServer(name={self.name!r}, transport={str(self.tool.transport)!r})"

    @property
    def callback_names(self) -> list[str]:
        """The options that are functions, such as `on_log`, as far as they are set."""
        return [each.name for each in fields(self._callbacks) if getattr(self._callbacks, each.name) is not None]

    @property
    def info(self) -> ServerInfo:
        """What the connected server says about itself. Raises `MCPError` outside of a block."""
        connection = self._connections.find()
        if connection is None or connection.plugin.era is None:
            raise MCPError(f"Server '{self.name}': it is not connected. Use 'async with'.", server=self.name)
        plugin = connection.plugin
        return ServerInfo(
            name=str(plugin.server_info.get("name") or ""),
            version=str(plugin.server_info.get("version") or ""),
            era=str(plugin.era),
            protocol_version=plugin.protocol_version or "",
            instructions=plugin.instructions,
            capabilities=plugin.capabilities,
        )

    async def call(self, name: str, /, **arguments: Any) -> MCPToolResult:
        """Call a tool: `await server.call("add", a=1, b=2)`. `call_tool` has options."""
        return await self.call_tool(name, arguments)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the deadline of the call, which progress extends
        on_progress: OnProgress | None = None,
        check: bool = True,
    ) -> MCPToolResult:
        """Call a tool. A call whose connection is lost is repeated only if that has no second effect.

        - `timeout`: seconds; by default `request_timeout`. Progress of the tool extends it.
        - `on_progress`: called with `(progress, total, message)`, each of which may be None.
        - `check`: False returns a failed call as a result, with `error`, and raises nothing but cancellation.
        """
        connection = self._connections.acquire(self._build_connection)
        try:
            result = await connection.plugin.call(name, arguments or {}, timeout=timeout, on_progress=on_progress)
        finally:
            await self._connections.release()
        return _require_success(result) if check else result

    def call_sync(self, name: str, /, **arguments: Any) -> MCPToolResult:
        """Do as `call` does, and wait for the result, also where an event loop runs already, as in a notebook."""
        return run_in_background(self.call_tool(name, arguments))

    async def tools(self) -> list[MCPToolInfo]:
        """Return the tools of the server, as far as `allowed_tools` and `denied_tools` let them be used."""
        async with self._use() as plugin:
            return await plugin.list_tools()

    def tools_sync(self) -> list[MCPToolInfo]:
        """Do as `tools` does, and wait for the list."""
        return run_in_background(self.tools())

    async def prompts(self) -> list[MCPPromptInfo]:
        """Return the prompts of the server."""
        async with self._use() as plugin:
            return await plugin.list_prompts()

    async def get_prompt(self, name: str, /, **arguments: str) -> PromptResult:
        """Return a prompt with its arguments filled in."""
        async with self._use() as plugin:
            return await plugin.get_prompt(name, **arguments)

    async def resources(self) -> list[MCPResourceInfo]:
        """Return the resources of the server; none if it has none."""
        async with self._use() as plugin:
            return await plugin.list_resources()

    async def resource_templates(self) -> list[MCPResourceTemplateInfo]:
        """Return the patterns of further resources of the server."""
        async with self._use() as plugin:
            return await plugin.list_resource_templates()

    async def read(self, uri: str) -> MCPToolResult:
        """Read a resource: `text`, or the blocks of `content`."""
        async with self._use() as plugin:
            return _require_success(await plugin.read_resource(uri))

    async def connect(self) -> Self:
        """Connect, and stay connected until `close`, as `async with` does. Raises `MCPError`.

        For a notebook, whose cells cannot share a block. Each `connect` needs a `close`.
        """
        connection = self._connections.acquire(self._build_connection)
        try:
            await connection.plugin.connect()
        except BaseException:
            await self._connections.release()
            raise
        return self

    async def close(self) -> None:
        """Undo one `connect`. The connection ends with its last user."""
        if self._connections.find() is not None:
            await self._connections.release()

    async def __aenter__(self) -> Self:
        """Connect, and stay connected until the end of the block. Raises `MCPError` for a server that does not start.

        Blocks may be nested, and opened from several tasks.
        """
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._connections.release()

    def __enter__(self) -> Self:
        """Do the same for `call_sync` and `tools_sync`."""
        return run_in_background(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        close_in_background(self.__aexit__(kind, error, traceback))

    def _lend(self, agent: Callbacks) -> MCPPlugin:
        """Return the connection of this event loop, for an agent with these callbacks. `_take_back` must follow."""
        connection = self._connections.acquire(lambda: self._build_connection(agent))
        if not any(each is agent for each in connection.agents):
            connection.agents.append(agent)
        return connection.plugin

    async def _take_back(self, agent: Callbacks) -> None:
        connection = self._connections.find()
        if connection is not None:
            connection.agents[:] = [each for each in connection.agents if each is not agent]
        await self._connections.release()

    def _build_connection(self, *agents: Callbacks) -> _Connection:
        from holodeck.runtime import open_server

        using = list(agents)
        plugin = open_server(self.definition, callbacks=self._callbacks.build(self.name, using))
        return _Connection(plugin=plugin, agents=using)

    @asynccontextmanager
    async def _use(self) -> AsyncGenerator[MCPPlugin, None]:
        connection = self._connections.acquire(self._build_connection)
        try:
            yield connection.plugin
        finally:
            await self._connections.release()


async def _close_connection(connection: _Connection) -> None:
    await connection.plugin.close()


def _leave_file_out(problem: Problem) -> Problem:
    """Return a problem of a dictionary, which has no lines, and whose author has not written YAML."""
    is_incomplete = problem.kind is MissingTransportFieldError
    fix = "Give the server a 'command' with its 'args', or a 'url'." if is_incomplete else problem.fix
    return replace(problem, file="", line=None, column=None, fix=fix)


def _require_success(result: MCPToolResult) -> MCPToolResult:
    if result.success:
        return result
    error = result.error
    if error is None or not result.is_error:
        raise error or MCPError(result.text)
    raise MCPToolError(str(error), result, server=error.server, phase=error.phase)
