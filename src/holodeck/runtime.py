"""The composition root: the only place that knows every concrete part and puts them together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from holodeck.config.dialects import LoadedServers, load_mcp_servers
from holodeck.config.dialects.bare import is_command, is_url, server_at, server_of
from holodeck.config.dialects.listing import has_servers
from holodeck.config.document import read_document
from holodeck.config.loader import Finding, LoadedAgent, load_agent_file
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp import launch


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
    loaded = read_agent(text, environ=environ, home=home)
    servers = tuple(item for item in loaded.tools if isinstance(item.tool, MCPTool))
    return LoadedServers(tools=servers, problems=loaded.warnings)


def _is_foreign(path: Path) -> bool:
    """Whether a file was written for another program."""
    if path.suffix in {".json", ".jsonc"}:
        return True
    return path.is_file() and has_servers(read_document(path, str(path)).value)


def _launch_findings(tool: MCPTool) -> Iterator[Finding]:
    for refusal in launch.refusals(tool):
        yield Finding(key=refusal.key, message=refusal.message, fix=refusal.fix)
