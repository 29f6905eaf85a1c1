"""Servers that list the tools that a test gives them."""

from __future__ import annotations

import json
from typing import Any

from cli.mcp_project import MCPProject

SERVER = """
import json, os, sys
from pathlib import Path

tools = json.loads(Path(__file__).with_name("tools.json").read_text())[os.environ["SERVER"]]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    about = {"name": "files", "version": "1.2"}
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about},
        "tools/list": {"tools": tools},
    }
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}), flush=True)
"""
PINNED = "some-server==1.2"


def tool(name: str = "read", description: str = "Reads a file.", **parameters: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters}
    return {"name": name, "description": description, "inputSchema": schema}


def write_tools(project: MCPProject, **servers: list[dict[str, Any]]) -> None:
    """Write an `mcp.json` with servers of these names, which list these tools."""
    (project.path / "tools.json").write_text(json.dumps(servers))
    project.set_uvx_program(SERVER)
    project.write_servers(**{name: {"command": "uvx", "args": [PINNED], "env": {"SERVER": name}} for name in servers})
