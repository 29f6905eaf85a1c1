"""Files that list MCP servers for other programs, read into the same models as our own."""

from holodeck.config.dialects.loader import LoadedServers, load_mcp_servers

__all__ = ["LoadedServers", "load_mcp_servers"]
