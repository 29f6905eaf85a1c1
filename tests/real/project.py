"""A project folder as users have one, and its servers through the front door.

`npx` takes the packages that are installed, which have the versions of `tests/servers/package-lock.json`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from agent_folder import AgentFolder
from installed_servers import PACKAGES

from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks

ROOT = Path(__file__).parents[2]
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
START_SECONDS = 120
"""A package may have to be fetched first, on a busy machine."""


class RealProject(AgentFolder):
    """A folder whose agent file is written by the test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not PACKAGES.is_dir():
            raise FileNotFoundError(f"{PACKAGES} is missing. `make test` sets it up.")

    def read_tool(self, text: str, env: Mapping[str, str] | None = None) -> MCPTool:
        """The one MCP tool of this agent file."""
        (loaded,) = self.load(f"name: demo\n{text}", env).tools
        assert isinstance(loaded.tool, MCPTool)
        return loaded.tool

    def open_server(
        self, text: str, env: Mapping[str, str] | None = None, *, callbacks: Callbacks | None = None
    ) -> MCPPlugin:
        """Its server, not yet started."""
        return create_mcp_plugin(self.read_tool(text, env), base_dir=self.path, callbacks=callbacks)


def search_path() -> str:
    """PATH, with the tools of this environment first: `uvx` is one of them."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
