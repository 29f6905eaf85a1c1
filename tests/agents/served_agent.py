"""Agents in code before a real MCP server on loopback, and an agent file whose server needs approvals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holodeck import FunctionCallOutput, ModelRequest, TextContent


def write_agent(folder: Path, url: str, settings: Mapping[str, Any] | None = None) -> Path:
    """Write an agent file with the MCP server `calc` at a URL, and return its path."""
    server = {"type": "mcp", "name": "calc", "description": "d", "transport": "http", "url": url, **(settings or {})}
    file = folder / "agent.yaml"
    file.write_text(json.dumps({"name": "demo", "tools": [server]}))
    return file


def output_of(request: ModelRequest, call_id: str = "call_1") -> str:
    """The text that the model got as the output of a call."""
    item = next(each for each in request.items if isinstance(each, FunctionCallOutput) and each.call_id == call_id)
    return "".join(part.text for part in item.content if isinstance(part, TextContent))
