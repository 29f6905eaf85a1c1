"""Replies with errors as JSON-RPC, for the routes of the MCP endpoint."""

from __future__ import annotations

from dataclasses import replace

import orjson

from holodeck.gateway.http.replies import Reply
from holodeck.mcp_server.errors import INVALID_REQUEST
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, build_error_response

MCP_PATH = "/mcp"
_FIRST_SERVER_ERROR = 500
_UNAUTHORIZED = 401


def is_mcp_path(path: str) -> bool:
    """True for the routes of the MCP endpoint, and for paths below them that do not exist."""
    return path == MCP_PATH or path.startswith(f"{MCP_PATH}/")


def mcp_error_reply(reply: Reply, challenge: str) -> Reply:
    """The same error as JSON-RPC. `challenge`: how a client without a valid token gets one."""
    code = INTERNAL_ERROR if reply.status >= _FIRST_SERVER_ERROR else INVALID_REQUEST
    message = orjson.loads(reply.body)["error"]["message"]
    headers = {**reply.headers, **({"www-authenticate": challenge} if reply.status == _UNAUTHORIZED else {})}
    return replace(reply, body=orjson.dumps(build_error_response(None, code, message)), headers=headers)
