"""Makes the plugin for an MCP server out of its definition. Nothing is started or dialled before its first use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import MCPConfigError, Problem
from holodeck.lib.limits import MIB
from holodeck.lib.net.ip_policy import IPPolicy
from holodeck.lib.redaction import secrets_in, url_secrets
from holodeck.lib.secret import Secret
from holodeck.models.tool import MCPTool, TransportType
from holodeck.tools.mcp.client import MCPClient
from holodeck.tools.mcp.connection.call_limit import CallLimit
from holodeck.tools.mcp.connection.supervisor import StartLimits
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.plugin import (
    MCPPlugin,
    MCPSsePlugin,
    MCPStdioPlugin,
    MCPStreamableHttpPlugin,
    MCPWebsocketPlugin,
)
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.server_requests import Callbacks, ServerRequestResponder
from holodeck.tools.mcp.protocol.session import Session, Spawn
from holodeck.tools.mcp.transports.base import OnMessage, Transport

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.provider import MCPAuthProvider
    from holodeck.tools.mcp.transports.http_exchange import ServerHTTPClient

# A list of 10,000 tools takes 10 MiB.
MIN_MESSAGE_BYTES = 16 * MIB


_PLUGINS: dict[TransportType, type[MCPPlugin]] = {
    TransportType.STDIO: MCPStdioPlugin,
    TransportType.SSE: MCPSsePlugin,
    TransportType.WEBSOCKET: MCPWebsocketPlugin,
    TransportType.HTTP: MCPStreamableHttpPlugin,
}


@dataclass(frozen=True, kw_only=True)
class UntrustedServer:
    """Somebody else than the operator has chosen the server, or its credentials. What it logs goes into no log."""

    ip_policy: IPPolicy | None = None
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
    untrusted: UntrustedServer | None = None,
    call_limit: CallLimit | None = None,
    budget: ByteBudget | None = None,
    may_expose_causes: bool = True,
) -> MCPPlugin:
    """The plugin for this server. Relative paths in the tool are relative to `base_dir`, the agent file's folder.

    `call_limit`: that of the others who call the same server. `get_budget`: for what it answers, shared with others.
    `may_expose_causes`: a failed call says why, because its caller operates the server; a gateway's callers do not.
    """
    _refuse_unsafe(tool)
    folder = base_dir or Path.cwd()
    heard = callbacks or Callbacks()
    dialling = untrusted.ip_policy if untrusted is not None else None
    credentials = _find_credentials(tool)
    secrets = [*tool.env.values(), *tool.headers.values(), *(untrusted.secrets if untrusted is not None else ())]
    faults = ErrorFactory(
        tool.name,
        [*secrets, *map(Secret, credentials)],
        credentials=credentials,
        is_server_logged=untrusted is None,
        is_request_declared=dialling is not None,
        may_expose_causes=may_expose_causes,
    )
    make_channel = _choose_transport_builder(
        tool, folder, faults, auth or _build_auth(tool, folder), dialling, lambda: client.budget
    )

    def build_session(spawn: Spawn, on_notification: Callable[[Message], None]) -> Session:
        return Session(
            make_channel,
            errors=faults,
            responder=ServerRequestResponder(tool, heard, folder),
            on_notification=on_notification,
            spawn=spawn,
        )

    client = MCPClient(
        tool,
        build_session,
        errors=faults,
        callbacks=heard,
        limits=limits or StartLimits(),
        call_limit=call_limit,
        budget=budget,
    )

    def build_similar(other: MCPTool, secrets: tuple[Secret, ...]) -> MCPPlugin:
        stranger = UntrustedServer(secrets=secrets)
        return create_mcp_plugin(
            other,
            base_dir=base_dir,
            callbacks=callbacks,
            limits=limits,
            untrusted=stranger,
            call_limit=client.call_limit,
            budget=client.budget,
            may_expose_causes=may_expose_causes,
        )

    return _PLUGINS[tool.transport](tool, client, build_similar)


def _find_credentials(tool: MCPTool) -> list[str]:
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

    refused = launch.find_refusals(tool)
    if refused:
        problems = [
            Problem(message=item.message, fix=item.fix, key=".".join(map(str, item.key)), kind=MCPConfigError)
            for item in refused
        ]
        raise MCPConfigError(problems=problems)


def _build_auth(tool: MCPTool, base_dir: Path) -> MCPAuthProvider | None:
    if tool.auth is None:
        return None
    from holodeck.tools.mcp.auth.factory import build_auth_provider

    return build_auth_provider(tool, base_dir=base_dir)


def _choose_transport_builder(
    tool: MCPTool,
    base_dir: Path,
    errors: ErrorFactory,
    auth: MCPAuthProvider | None,
    ip_policy: IPPolicy | None,
    get_budget: Callable[[], ByteBudget],
) -> Callable[[OnMessage], Transport]:
    # Escapes and base64 make a message bigger than its content.
    limit = max(MIN_MESSAGE_BYTES, 2 * tool.max_result_bytes)

    def build_stdio(on_message: OnMessage) -> Transport:
        from holodeck.tools.mcp import launch
        from holodeck.tools.mcp.transports.stdio import StdioTransport

        return StdioTransport(
            launch.plan_launch(tool, container=f"holodeck-{tool.name}-{token_hex(4)}"),
            cwd=base_dir / (tool.cwd or ""),
            errors=errors,
            on_message=on_message,
            encoding=tool.encoding,
            limit=limit,
            budget=get_budget(),
        )

    def build_http_client() -> ServerHTTPClient:
        from holodeck.tools.mcp.transports.http_exchange import ServerHTTPClient

        return ServerHTTPClient(
            tool.url or "",
            headers=tool.headers,
            connect_timeout=tool.timeout,
            errors=errors,
            auth=auth,
            ip_policy=ip_policy,
        )

    def build_streamable_http(on_message: OnMessage) -> Transport:
        from holodeck.tools.mcp.transports.streamable_http import StreamableHTTPTransport

        return StreamableHTTPTransport(
            build_http_client(),
            on_message=on_message,
            limit=limit,
            read_timeout=tool.sse_read_timeout,
            terminate_on_close=tool.terminate_on_close,
            budget=get_budget(),
        )

    def build_sse(on_message: OnMessage) -> Transport:
        from holodeck.tools.mcp.transports.sse import SSETransport

        return SSETransport(
            build_http_client(),
            on_message=on_message,
            limit=limit,
            connect_timeout=tool.timeout,
            read_timeout=tool.sse_read_timeout,
            budget=get_budget(),
        )

    def build_websocket(on_message: OnMessage) -> Transport:
        from holodeck.tools.mcp.transports.websocket import WebSocketTransport

        return WebSocketTransport(
            tool.url or "",
            headers=tool.headers,
            connect_timeout=tool.timeout,
            errors=errors,
            on_message=on_message,
            limit=limit,
            budget=get_budget(),
            auth=auth,
        )

    makers: dict[TransportType, Callable[[OnMessage], Transport]] = {
        TransportType.STDIO: build_stdio,
        TransportType.HTTP: build_streamable_http,
        TransportType.SSE: build_sse,
        TransportType.WEBSOCKET: build_websocket,
    }
    return makers[tool.transport]
