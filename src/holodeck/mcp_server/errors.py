"""Errors of the MCP server side: what a request of a client is answered with instead of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import MCPError, MCPProtocolError
from holodeck.tools.mcp.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Message,
    RequestId,
)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
# The code of the protocol up to 2025-11-25 for a resource that does not exist; later ones have INVALID_PARAMS.
RESOURCE_NOT_FOUND = -32002
MISSING_CAPABILITY = -32021

# HTTP statuses of errors in the modern era; all other errors have 200.
_STATUSES = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}


class RPCError(Exception):
    """A request is refused or has failed. Code, text and data are sent to the client."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def to_response(self, request_id: RequestId | None) -> Message:
        """Build the JSON-RPC response."""
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.data is not None:
            error["data"] = self.data
        return {"jsonrpc": "2.0", "id": request_id, "error": error}


def status_of(response: Mapping[str, Any]) -> int:
    """Return the HTTP status of a response in the modern era."""
    error = response.get("error")
    return _STATUSES.get(error["code"], 200) if isinstance(error, dict) else 200


def invalid_params(text: str) -> RPCError:
    return RPCError(INVALID_PARAMS, text)


def build_failure(text: str, **about: Any) -> dict[str, Any]:
    """Build the result of a call that was refused or has failed, in words that a model can read."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    if about:
        result["_meta"] = {"dev.holodeck/error": about}
    return result


def error_of(error: MCPError, text: str) -> RPCError:
    """Return the error for a client whose request has failed at a server.

    A JSON-RPC error of the server is passed on with its code and data. `text`: what the client may know of the cause.
    """
    code = error.details.get("code")
    if isinstance(error, MCPProtocolError) and isinstance(code, int):
        return RPCError(code, text, error.details.get("data"))
    return RPCError(INTERNAL_ERROR, text, {"server": error.server, "phase": error.phase})


def build_unexpected_error(error: Exception, method: str, request_id: RequestId) -> Message:
    """Return the response to a request at which this program has failed, and log why."""
    log.error("mcp_server.failed", method=method, error=repr(error))
    text = "An unexpected error has happened; the gateway's log has it"
    return RPCError(INTERNAL_ERROR, text).to_response(request_id)
