"""The composition root: the only place that knows every concrete part and puts them together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from holodeck.config.loader import Finding, LoadedAgent, load_agent_file
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp import launch


def read_agent(
    path: str | os.PathLike[str], *, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> LoadedAgent:
    """Read an agent file with every check that can be made without starting anything."""
    return load_agent_file(path, environ=environ, home=home, checks=[_launch_findings])


def _launch_findings(tool: MCPTool) -> Iterator[Finding]:
    for refusal in launch.refusals(tool):
        yield Finding(key=refusal.key, message=refusal.message, fix=refusal.fix)
