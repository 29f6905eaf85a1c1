"""The composition root: the only place that knows every concrete part and puts them together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holodeck.config.dialects import load_mcp_servers
from holodeck.config.dialects.bare import is_command, is_url, server_at, server_of
from holodeck.config.dialects.listing import has_servers
from holodeck.config.document import read_document
from holodeck.config.loader import Finding, LoadedAgent, LoadedTool, load_agent_file
from holodeck.config.servers import LoadedServers, load_agent_servers
from holodeck.lib.errors import ConfigError
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp import launch

if TYPE_CHECKING:
    from holodeck.tools.mcp.callbacks import Callbacks
    from holodeck.tools.mcp.plugin import MCPPlugin


def read_agent(
    path: str | os.PathLike[str], *, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> LoadedAgent:
    """Read an agent file with every check that can be made without starting anything."""
    return load_agent_file(path, environ=environ, home=home, checks=[_launch_findings])


def read_servers(
    target: str | os.PathLike[str],
    *,
    kind: Literal["file", "url", "command"] | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> LoadedServers:
    """The MCP servers of an agent file, of an `mcp.json` of any program, or the one at a URL or behind a command line.

    `kind` says what the target is; absent, its form does. `env` and `headers` are for a command line and a URL.
    """
    text = os.fspath(target)
    if kind == "url" or (kind is None and is_url(text)):
        return server_at(text, headers=headers or {}, shown_as="the URL")
    if kind == "command" or (kind is None and is_command(text)):
        folder = str(cwd or Path.cwd())
        return server_of(text, env=env or {}, checks=[_launch_findings], folder=folder, shown_as="the command")
    if _is_foreign(Path(text)):
        return load_mcp_servers(text, environ=environ, checks=[_launch_findings], cwd=cwd)
    return load_agent_servers(text, environ=environ, home=home, checks=[_launch_findings])


def open_server(loaded: LoadedTool, *, callbacks: Callbacks | None = None) -> MCPPlugin:
    """The plugin for a server that a person named, with the login that they made for it. Nothing is started yet."""
    from holodeck.tools.mcp.auth.factory import auth_provider
    from holodeck.tools.mcp.factory import create_mcp_plugin

    tool = loaded.tool
    if not isinstance(tool, MCPTool):
        raise ConfigError(f"'{tool.name}' is not an MCP server")
    folder = Path(loaded.file).absolute().parent
    auth = auth_provider(tool, base_dir=folder, use_logins=True) if tool.url else None
    return create_mcp_plugin(tool, base_dir=folder, callbacks=callbacks, auth=auth)


def _is_foreign(path: Path) -> bool:
    """Whether a file was written for another program."""
    if path.suffix in {".json", ".jsonc"}:
        return True
    return path.is_file() and has_servers(read_document(path, str(path)).value)


def _launch_findings(tool: MCPTool) -> Iterator[Finding]:
    for refusal in launch.refusals(tool):
        yield Finding(key=refusal.key, message=refusal.message, fix=refusal.fix)
