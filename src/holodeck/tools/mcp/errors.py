"""The MCP errors, where people look for them. They are defined with all the others in `holodeck.lib.errors`."""

from holodeck.lib.errors import (
    MCPConfigError,
    MCPConnectionError,
    MCPError,
    MCPProtocolError,
    MCPTimeoutError,
    MCPToolNotFoundError,
)

__all__ = [
    "MCPConfigError",
    "MCPConnectionError",
    "MCPError",
    "MCPProtocolError",
    "MCPTimeoutError",
    "MCPToolNotFoundError",
]
