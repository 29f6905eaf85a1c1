"""What a person can do when a step of an examination fails."""

from __future__ import annotations

from collections.abc import Mapping

from holodeck.lib.errors import HoloDeckError, MCPError, MCPTimeoutError
from holodeck.lib.net.urls import shown_origin
from holodeck.models.tool import CommandType, MCPTool, TransportType

_INSTALL: Mapping[CommandType, str] = {
    CommandType.NPX: "Install Node.js, which brings npx.",
    CommandType.UVX: "Install uv, which brings uvx.",
    CommandType.DOCKER: "Install Docker, or podman with its 'docker' command.",
}
_NOT_FOUND_STATUS = 404
_FORBIDDEN_STATUS = 403


def advice_for(step: str, tool: MCPTool, error: HoloDeckError | None) -> str:
    """One or two sentences for this step of this server."""
    match step:
        case "found":
            return _advise_not_found(tool)
        case "started":
            return "Read its last words above, and start it by hand: what is missing shows there, too."
        case "reached":
            address = shown_origin(tool.url or "")
            return f"Is the server running, and is it at {address}? A proxy or firewall may be in between."
        case "authorised":
            return _advise_unauthorised(tool, error)
        case "speaks MCP":
            return _advise_not_mcp(tool, error)
        case "lists tools":
            return "The server starts but cannot say what it has: this is a fault of the server. Try another version."
        case _:
            return "The server started but then fell silent: this is a fault of the server. Try another version."


def _advise_not_found(tool: MCPTool) -> str:
    if tool.url:
        return "Check the spelling of the URL, and whether you need a VPN to reach it."
    return _INSTALL[tool.command] if tool.command is not None else "Give it a 'command'."


def _advise_unauthorised(tool: MCPTool, error: HoloDeckError | None) -> str:
    status = error.details.get("status") if isinstance(error, MCPError) else None
    if status == _FORBIDDEN_STATUS:
        return "The server knows you, but does not let you in: ask whoever runs it, or log in with another account."
    if tool.auth is not None and tool.auth.type == "oauth_client_credentials":
        return "Check 'client_id', 'client_secret', 'token_url' and 'scopes' of its 'auth'."
    if tool.auth is not None and tool.auth.type == "bearer":
        return "Check the token of its 'auth'; it may have expired."
    if any(name.lower() == "authorization" for name in tool.headers):
        return "Check the Authorization in its 'headers'; the token may have expired."
    return f"Run 'holodeck mcp login {tool.name}', or give it an Authorization in 'headers'."


def _advise_not_mcp(tool: MCPTool, error: HoloDeckError | None) -> str:
    status = error.details.get("status") if isinstance(error, MCPError) else None
    if tool.transport is TransportType.STDIO:
        if isinstance(error, MCPTimeoutError):
            return "It runs but does not answer. A first start may download for long: raise 'startup_timeout'."
        return "Its standard output must be MCP and nothing else. Is this the right package, with the right arguments?"
    if tool.transport is TransportType.HTTP:
        where = " There is nothing at this path." if status == _NOT_FOUND_STATUS else ""
        return f"Is this the URL of the MCP endpoint (often .../mcp)?{where} An older server needs 'transport: sse'."
    return "Is this the URL of the MCP endpoint? A newer server needs 'transport: http'."
