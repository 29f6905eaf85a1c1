"""An `mcp.json` of any program in a folder of its own, with the environment that a test gives it and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holodeck.config.server_loader import LoadedServers
from holodeck.models.tool import MCPTool
from holodeck.runtime import read_servers

NPX = {"command": "npx", "args": ["-y", "some-server"]}


def load_file(
    folder: Path, content: object, name: str = "mcp.json", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> LoadedServers:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    return read_servers(file, environ=env or {}, cwd=cwd or folder)


def load_single_server(folder: Path, entry: Mapping[str, Any], **more: Any) -> MCPTool:
    """The only server of a file."""
    loaded = load_file(folder, {"mcpServers": {"s": entry}}, **more)
    assert not loaded.refused
    tool = loaded.tools[0].tool
    assert isinstance(tool, MCPTool)
    return tool


def warnings_text(loaded: LoadedServers) -> str:
    return "\n".join(str(problem) for problem in loaded.problems if problem.severity == "warning")
