"""A misbehaving server behind the public plugin, over any transport; its processes and tasks must end with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holodeck.lib.errors import MCPError
from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool, TransportType
from holodeck.testing import Era, Fault, FaultyMCPServer, Journal, Received, read_pids, stand_in
from holodeck.tools.mcp.connection.supervisor import StartLimits
from holodeck.tools.mcp.content import MCPToolResult
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks

TransportVariant: TypeAlias = Literal["stdio", "http", "http-sse", "sse", "websocket"]
"""The transport; `http-sse` is streamable HTTP whose every answer is an event stream."""

TRANSPORT_VARIANTS: tuple[TransportVariant, ...] = ("stdio", "http", "http-sse", "sse", "websocket")
DUPLEX: tuple[TransportVariant, ...] = ("stdio", "sse", "websocket")
"""Where all calls share one stream."""
HTTP: tuple[TransportVariant, ...] = ("http", "http-sse")
ERAS: tuple[Era, ...] = ("legacy", "modern")
UNLIMITED_STARTS = StartLimits(starts=1_000)
"""For tests that restart a server often and are not about how often that may be."""
GONE_WITHIN = 45.0
POLL_SECONDS = 0.01


@dataclass(kw_only=True)
class PluginUnderTest:
    """A plugin, and what its server has received."""

    plugin: MCPPlugin
    transport: TransportVariant
    era: Era
    journal: Journal
    pid_file: Path
    server: FaultyMCPServer | None = None
    handled_messages: list[Any] = field(default_factory=list)
    """What the message handler got."""

    @property
    def requests(self) -> Sequence[Received]:
        return self.server.requests if self.server is not None else self.journal.requests

    def calls(self, tool: str) -> list[Received]:
        """The calls of one tool that the server has received: each may have had an effect."""
        return [each for each in self.requests if each.method == "tools/call" and each.name == tool]

    def count(self, method: str) -> int:
        return sum(each.method == method for each in self.requests)

    async def wait_received(self, method: str, count: int = 1) -> list[Received]:
        if self.server is not None:
            return await self.server.received(method, count=count)
        return await self.journal.received(method, count=count)

    async def echo(self, text: str = "hello") -> MCPToolResult:
        return await self.plugin.call_tool("echo", text=text)

    async def check_works(self) -> None:
        """A call goes through."""
        result = await self.echo("it works")
        assert result.success, result.error
        assert result.text == "it works"

    def pids(self) -> list[int]:
        noted = read_pids(self.pid_file) if self.pid_file.exists() else []
        return [*self.journal.pids, *noted]


@asynccontextmanager
async def open_misbehaving(
    mode: Fault | str,
    transport_variant: TransportVariant,
    folder: Path,
    *,
    era: Era = "legacy",
    name: str = "shaky",
    callbacks: Callbacks | None = None,
    limits: StartLimits = UNLIMITED_STARTS,
    fields: dict[str, Any] | None = None,
    down: bool = False,
    is_alone: bool = True,
    **plan: Any,
) -> AsyncIterator[PluginUnderTest]:
    """The plugin of a server with this fault; `plan` defines when it occurs, `fields` are more fields of the tool.

    Checks afterwards that its processes have ended and, if it `is_alone` in the loop, that no task remains.
    """
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    journal, pid_file = Journal(folder / "journal"), folder / "pids"
    common = {"name": name, "server": name, **(fields or {})}
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        server: FaultyMCPServer | None = None
        if transport_variant == "stdio":
            command = FaultyMCPServer.command(mode, era=era, journal=journal.path, pid_file=pid_file, **plan)
            env = {key: Secret(value) for key, value in stand_in(folder / "bin", command).items()}
            more = {"command": CommandType.NPX, "args": ["-y", name], "allow_unsafe_args": True}
            tool = MCPTool(**{**more, **common, "env": {**env, **common.get("env", {})}})
        else:
            transport = "http" if transport_variant == "http-sse" else transport_variant
            server = FaultyMCPServer(
                mode, era=era, transport=transport, sse=transport_variant == "http-sse", down=down, **plan
            )
            await stack.enter_async_context(server)
            tool = MCPTool(**{"transport": TransportType(transport), "url": server.url, **common})
        plugin = create_mcp_plugin(tool, base_dir=folder, callbacks=callbacks, limits=limits)
        subject = PluginUnderTest(
            plugin=plugin, transport=transport_variant, era=era, journal=journal, pid_file=pid_file, server=server
        )
        try:
            yield subject
        finally:
            async with asyncio.timeout(GONE_WITHIN + 5):
                await plugin.close()
        if server is not None and not down:
            await server.go_down()
        await wait_all_gone(subject.pids())
    if is_alone:
        await wait_no_tasks_but(before)


async def wait_all_gone(pids: Sequence[int]) -> None:
    """Wait until these processes have ended."""
    try:
        async with asyncio.timeout(GONE_WITHIN):
            while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110 - the kernel sends no event for a grandchild
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"still running: {[pid for pid in pids if is_alive(pid)]} of {pids}") from None


def is_alive(pid: int) -> bool:
    """False also for a zombie: it has ended, and only its process id remains until its parent reaps it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


async def wait_no_tasks_but(known: set[asyncio.Task[Any]]) -> None:
    """Wait until every task that is not in `known` has ended."""
    try:
        async with asyncio.timeout(GONE_WITHIN):
            while tasks := asyncio.all_tasks() - known - {asyncio.current_task()}:  # noqa: ASYNC110 - nor a loop for a task
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"still running: {tasks}") from None


def require_failure(result: MCPToolResult, *causes: str, server: str = "shaky") -> MCPError:
    """The error of a call that must have failed; it names the server, the phase and each of these causes."""
    assert not result.success, result.text
    assert result.error is not None
    text = str(result.error)
    assert text.startswith(f"Server '{server}' ({result.error.phase}): "), text
    assert result.error.server == server
    for cause in causes:
        assert cause in text, text
    return result.error
