"""Builds the plugin of an MCP server from its definition. Nothing is started or dialled before its first use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import MCPConfigError, Problem
from holodeck.lib.net.ip_policy import IPPolicy
from holodeck.lib.record import record
from holodeck.lib.redaction import secrets_in, url_secrets
from holodeck.lib.secret import Secret
from holodeck.models.auth import BearerAuth
from holodeck.models.tool import MCPTool, TransportType
from holodeck.tools.mcp.call_limit import CallLimit
from holodeck.tools.mcp.callers_plugin import CallersPlugin, is_per_caller
from holodeck.tools.mcp.connection.supervisor import StartLimits
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.lock.drift import ServerLock
from holodeck.tools.mcp.plugin import (
    MCPPlugin,
    MCPSsePlugin,
    MCPStdioPlugin,
    MCPStreamableHttpPlugin,
    MCPWebsocketPlugin,
)
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.transports.base import TransportSetup
from holodeck.tools.mcp.transports.registry import BuildTransport

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.provider import MCPAuthProvider

# Public classes of the first transports. A transport without one of its own has `MCPPlugin`.
_PLUGIN_CLASSES: Mapping[TransportType, type[MCPPlugin]] = {
    TransportType.STDIO: MCPStdioPlugin,
    TransportType.SSE: MCPSsePlugin,
    TransportType.WEBSOCKET: MCPWebsocketPlugin,
    TransportType.HTTP: MCPStreamableHttpPlugin,
}


@record
class UntrustedServer:
    """The server, or its credentials, are chosen by another party than the operator. Its messages are not logged."""

    ip_policy: IPPolicy | None = None
    """The addresses that may be dialled; then only over HTTP. None: the operator has chosen the URL."""
    secrets: tuple[Secret, ...] = ()
    """Secrets to mask in errors, in addition to the headers."""


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
    lock: ServerLock | None = None,
    may_expose_causes: bool = True,
    build_transport: BuildTransport | None = None,
    is_offline: bool = False,
) -> MCPPlugin:
    """Build the plugin of a server. Raises `MCPConfigError` for a definition that could run other code.

    - `base_dir`: relative paths of the tool start from it; by default the current folder.
    - `call_limit`: shared with other plugins of the same server.
    - `budget`: for the bytes of answers in memory, shared with other servers.
    - `lock`: the accepted tools of the server; others are withheld. None: all are accepted.
    - `may_expose_causes`: results of failed calls contain the cause, because their readers operate the server. The
      callers of a gateway do not.
    - `build_transport`, `is_offline`: see `TransportSetup`. A server that is offline needs no credentials.
    """
    _refuse_unsafe(tool)
    folder = base_dir or Path.cwd()
    setup = TransportSetup(
        tool=tool,
        base_dir=folder,
        errors=_build_error_factory(tool, untrusted, may_expose_causes=may_expose_causes),
        budget=budget or ByteBudget(),
        auth=None if is_offline else auth or _build_auth(tool, folder),
        ip_policy=untrusted.ip_policy if untrusted is not None else None,
        build=build_transport,
        is_offline=is_offline,
        on_stderr=callbacks.on_stderr if callbacks is not None else None,
    )

    def build_similar(other: MCPTool, secrets: tuple[Secret, ...], **own: Any) -> MCPPlugin:
        return create_mcp_plugin(
            other,
            base_dir=base_dir,
            callbacks=callbacks,
            limits=limits,
            untrusted=UntrustedServer(secrets=secrets),
            lock=lock,
            may_expose_causes=may_expose_causes,
            build_transport=build_transport,
            is_offline=is_offline,
            **own,
        )

    plugin_class = CallersPlugin if is_per_caller(tool) else _PLUGIN_CLASSES.get(tool.transport, MCPPlugin)
    return plugin_class(
        setup, callbacks=callbacks, limits=limits, call_limit=call_limit, lock=lock, build_similar=build_similar
    )


def _refuse_unsafe(tool: MCPTool) -> None:
    """Apply the rules for files to a definition that was made in a program."""
    from holodeck.tools.mcp.launch.plan import find_refusals

    problems = [
        Problem(message=item.message, fix=item.fix, key=".".join(map(str, item.key)), kind=MCPConfigError)
        for item in find_refusals(tool)
    ]
    if problems:
        raise MCPConfigError(problems=problems)


def _build_error_factory(tool: MCPTool, untrusted: UntrustedServer | None, *, may_expose_causes: bool) -> ErrorFactory:
    credentials = _find_credentials(tool)
    secrets = [*tool.env.values(), *tool.headers.values(), *(untrusted.secrets if untrusted is not None else ())]
    return ErrorFactory(
        tool.name,
        [*secrets, *map(Secret, credentials)],
        credentials=credentials,
        is_server_logged=untrusted is None,
        is_request_declared=untrusted is not None and untrusted.ip_policy is not None,
        may_expose_causes=may_expose_causes,
    )


def _find_credentials(tool: MCPTool) -> list[str]:
    """Return the secrets of a definition that its server must not repeat to a model or a caller."""
    variables = [(name, secret.reveal()) for name, secret in (*tool.env.items(), *tool.headers.items())]
    found = [part for name, value in variables for part in secrets_in(name, value)]
    secret = None
    if tool.auth is not None:
        secret = tool.auth.token if isinstance(tool.auth, BearerAuth) else tool.auth.client_secret
    return [*found, *url_secrets(tool.url or ""), *([secret.reveal()] if secret is not None else [])]


def _build_auth(tool: MCPTool, base_dir: Path) -> MCPAuthProvider | None:
    if tool.auth is None:
        return None
    from holodeck.tools.mcp.auth.factory import build_auth_provider

    return build_auth_provider(tool, base_dir=base_dir)
