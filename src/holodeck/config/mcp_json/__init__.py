"""Files that list MCP servers for other programs, read into the same models as our own."""

from holodeck.config.mcp_json.loader import load_mcp_servers

__all__ = ["load_mcp_servers"]
