"""Makes the plugin for an MCP server out of its definition. Nothing is started or dialled before its first use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from holodeck.lib.addresses import Dialling
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import MCPConfigError, Problem
from holodeck.lib.limits import MIN_MESSAGE_BYTES
from holodeck.lib.redaction import secrets_in, url_secrets
from holodeck.lib.secret import Secret
from holodeck.models.tool import MCPTool, TransportType
from holodeck.tools.mcp.callbacks import Answers, Callbacks
from holodeck.tools.mcp.channel import Channel, Incoming
from holodeck.tools.mcp.client import MCPClient
from holodeck.tools.mcp.faults import Faults
from holodeck.tools.mcp.gate import Gate
from holodeck.tools.mcp.jsonrpc import Message
from holodeck.tools.mcp.plugin import (
    MCPPlugin,
    MCPSsePlugin,
    MCPStdioPlugin,
    MCPStreamableHttpPlugin,
    MCPWebsocketPlugin,
)
from holodeck.tools.mcp.session import Session, Spawn
from holodeck.tools.mcp.starts import StartLimits

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.provider import MCPAuthProvider
    from holodeck.tools.mcp.web import Web

_PLUGINS: dict[TransportType, type[MCPPlugin]] = {
    TransportType.STDIO: MCPStdioPlugin,
    TransportType.SSE: MCPSsePlugin,
    TransportType.WEBSOCKET: MCPWebsocketPlugin,
    TransportType.HTTP: MCPStreamableHttpPlugin,
}


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """Somebody else than the operator has chosen the server, or its credentials. What it logs goes into no log."""

    dialling: Dialling | None = None
    """Where it may be; then only over HTTP. None: the operator has chosen the place."""
    secrets: tuple[Secret, ...] = ()
    """What no error may show, beside the headers."""


def create_mcp_plugin(
    tool: MCPTool,
    *,
    base_dir: Path | None = None,
    callbacks: Callbacks | None = None,
    auth: MCPAuthProvider | None = None,
    limits: StartLimits | None = None,
    stranger: Stranger | None = None,
    gate: Gate | None = None,
    budget: ByteBudget | None = None,
    tells_causes: bool = True,
) -> MCPPlugin:
    """The plugin for this server. Relative paths in the tool are relative to `base_dir`, the agent file's folder.

    `gate`: that of the others who call the same server. `budget`: for what it answers, shared with others.
    `tells_causes`: a failed call says why, because its caller operates the server; a gateway's callers do not.
    """
    _refuse_unsafe(tool)
    folder = base_dir or Path.cwd()
    heard = callbacks or Callbacks()
    dialling = stranger.dialling if stranger is not None else None
    credentials = _credentials(tool)
    secrets = [*tool.env.values(), *tool.headers.values(), *(stranger.secrets if stranger is not None else ())]
    faults = Faults(
        tool.name,
        [*secrets, *map(Secret, credentials)],
        credentials=credentials,
        is_heard=stranger is None,
        is_foreign=dialling is not None,
        tells_causes=tells_causes,
    )
    make_channel = _channel_maker(
        tool, folder, faults, auth or _configured_auth(tool, folder), dialling, lambda: client.budget
    )

    def make_session(spawn: Spawn, on_notice: Callable[[Message], None]) -> Session:
        return Session(
            make_channel, faults=faults, answers=Answers(tool, heard, folder), on_notice=on_notice, spawn=spawn
        )

    client = MCPClient(
        tool,
        make_session,
        faults=faults,
        callbacks=heard,
        limits=limits or StartLimits(),
        gate=gate,
        budget=budget,
    )

    def another(other: MCPTool, secrets: tuple[Secret, ...]) -> MCPPlugin:
        stranger = Stranger(secrets=secrets)
        return create_mcp_plugin(
            other,
            base_dir=base_dir,
            callbacks=callbacks,
            limits=limits,
            stranger=stranger,
            gate=client.gate,
            budget=client.budget,
            tells_causes=tells_causes,
        )

    return _PLUGINS[tool.transport](tool, client, another)


def _credentials(tool: MCPTool) -> list[str]:
    """What of a definition its server must not repeat to a model or a caller."""
    named = [(name, secret.reveal()) for name, secret in (*tool.env.items(), *tool.headers.items())]
    found = [part for name, value in named for part in secrets_in(name, value)]
    given = (getattr(tool.auth, "token", None), getattr(tool.auth, "client_secret", None))
    return [*found, *url_secrets(tool.url or ""), *(secret.reveal() for secret in given if secret is not None)]


def _refuse_unsafe(tool: MCPTool) -> None:
    """A definition made in a program is held to the same rules as one in a file."""
    if tool.transport is not TransportType.STDIO:
        return
    from holodeck.tools.mcp import launch

    refused = launch.refusals(tool)
    if refused:
        problems = [
            Problem(message=item.message, fix=item.fix, key=".".join(map(str, item.key)), kind=MCPConfigError)
            for item in refused
        ]
        raise MCPConfigError(problems=problems)


def _configured_auth(tool: MCPTool, base_dir: Path) -> MCPAuthProvider | None:
    if tool.auth is None:
        return None
    from holodeck.tools.mcp.auth.factory import auth_provider

    return auth_provider(tool, base_dir=base_dir)


def _channel_maker(
    tool: MCPTool,
    base_dir: Path,
    faults: Faults,
    auth: MCPAuthProvider | None,
    dialling: Dialling | None,
    budget: Callable[[], ByteBudget],
) -> Callable[[Incoming], Channel]:
    # Escapes and base64 make a message bigger than its content.
    limit = max(MIN_MESSAGE_BYTES, 2 * tool.max_result_bytes)

    def stdio(incoming: Incoming) -> Channel:
        from holodeck.tools.mcp import launch
        from holodeck.tools.mcp.stdio import StdioChannel

        return StdioChannel(
            launch.plan(tool, container=f"holodeck-{tool.name}-{token_hex(4)}"),
            cwd=base_dir / (tool.cwd or ""),
            faults=faults,
            incoming=incoming,
            encoding=tool.encoding,
            limit=limit,
            budget=budget(),
        )

    def web() -> Web:
        from holodeck.tools.mcp.web import Web

        return Web(
            tool.url or "",
            headers=tool.headers,
            connect_timeout=tool.timeout,
            faults=faults,
            auth=auth,
            dialling=dialling,
        )

    def http(incoming: Incoming) -> Channel:
        from holodeck.tools.mcp.http import HttpChannel

        return HttpChannel(
            web(),
            incoming=incoming,
            limit=limit,
            silence=tool.sse_read_timeout,
            terminate_on_close=tool.terminate_on_close,
            budget=budget(),
        )

    def sse(incoming: Incoming) -> Channel:
        from holodeck.tools.mcp.sse import SseChannel

        return SseChannel(
            web(),
            incoming=incoming,
            limit=limit,
            connect_timeout=tool.timeout,
            silence=tool.sse_read_timeout,
            budget=budget(),
        )

    def websocket(incoming: Incoming) -> Channel:
        from holodeck.tools.mcp.websocket import WebsocketChannel

        return WebsocketChannel(
            tool.url or "",
            headers=tool.headers,
            connect_timeout=tool.timeout,
            faults=faults,
            incoming=incoming,
            limit=limit,
            budget=budget(),
            auth=auth,
        )

    makers: dict[TransportType, Callable[[Incoming], Channel]] = {
        TransportType.STDIO: stdio,
        TransportType.HTTP: http,
        TransportType.SSE: sse,
        TransportType.WEBSOCKET: websocket,
    }
    return makers[tool.transport]
