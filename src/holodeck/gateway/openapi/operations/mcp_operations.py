"""What the routes of the MCP endpoint do.

Their messages are those of the Model Context Protocol, so the document has the frame of a message only. Errors have the
form of JSON-RPC, also those that the gateway answers before the endpoint is reached, such as a wrong key.
"""

from __future__ import annotations

from typing import Any

from holodeck.gateway.http.replies import EVENTS
from holodeck.gateway.openapi.operations import examples
from holodeck.gateway.openapi.operations.operation import Operation

_TAG = "MCP"
_OLD_CLIENTS = "For clients up to version 2025-11-25; later ones have no sessions."
_SENDING = (
    "A request is answered by JSON, or by events if it takes more than two seconds or has more to say than its "
    "result. The last event is the answer. A client of version 2026-07-28 that is asked something gets a result with "
    "`resultType: input_required`, and sends its request again with the answers."
)
_TAKEN = {202: "A notification or an answer was taken."}
_ENDED = {204: "The session has ended."}
_BAD_MESSAGE = (
    "The message is no JSON-RPC message, its headers differ from it, its version is not known, or, in version "
    "2026-07-28, its parameters are wrong."
)
_NO_SESSION = "The header `Mcp-Session-Id` is missing."
_NO_EVENT = f"{_NO_SESSION[:-1]}, or `Last-Event-ID` is not known."
_NOT_FOUND = "The session has ended, or the gateway is no MCP server."
_NO_METHOD = "In version 2026-07-28 also: there is no such method."
_NO_SERVER = f"{_NOT_FOUND} Or there is no such server in the scope of the caller."
_NO_STREAM = "There is no stream to open: the client does not accept events, or its version has no sessions."


def _send_operation(
    operation_id: str, summary: str, description: str, *, example_body: Any, example: Any, not_found: str = _NOT_FOUND
) -> Operation:
    return Operation(
        id=operation_id,
        tag=_TAG,
        summary=summary,
        description=f"{description}\n\n{_SENDING}",
        body="MCPMessages",
        example_body=example_body,
        reply="MCPMessages",
        example=example,
        stream="MCPMessage",
        error="MCPError",
        empty_replies=_TAKEN,
        refusals={400: _BAD_MESSAGE, 404: f"{not_found} {_NO_METHOD}"},
    )


def _listen_operation(operation_id: str, summary: str, *, not_found: str = _NOT_FOUND) -> Operation:
    return Operation(
        id=operation_id,
        tag=_TAG,
        summary=summary,
        description=(
            f"Messages that belong to no request, such as changed lists. With `Last-Event-ID`, what came after that "
            f"event on the stream that it was on. {_OLD_CLIENTS}"
        ),
        reply="MCPMessage",
        example=examples.MCP_LIST_CHANGED,
        media_type=EVENTS,
        error="MCPError",
        refusals={400: _NO_EVENT, 404: not_found, 405: _NO_STREAM},
    )


def _end_operation(operation_id: str, summary: str, *, not_found: str = _NOT_FOUND) -> Operation:
    return Operation(
        id=operation_id,
        tag=_TAG,
        summary=summary,
        description=f"Cancels what still runs in it. {_OLD_CLIENTS}",
        reply=None,
        example=None,
        error="MCPError",
        empty_replies=_ENDED,
        refusals={400: _NO_SESSION, 404: not_found},
    )


def _metadata_operation(operation_id: str, summary: str) -> Operation:
    return Operation(
        id=operation_id,
        tag=_TAG,
        summary=summary,
        description=(
            "For MCP clients that log in (RFC 9728): the address of the endpoint, and of the identity provider. 404 "
            "if the gateway has no `jwt`, as that of these examples."
        ),
        reply="ResourceMetadata",
        example=examples.RESOURCE_METADATA,
    )


MCP_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/mcp"): _send_operation(
        "sendMCP",
        "Send a message",
        "To all servers and agents of the gateway.",
        example_body=examples.MCP_CALL,
        example=examples.MCP_CALL_RESULT,
    ),
    ("GET", "/mcp"): _listen_operation("listenMCP", "Open the event stream of a session"),
    ("DELETE", "/mcp"): _end_operation("endMCP", "End a session"),
    ("POST", "/mcp/{server}"): _send_operation(
        "sendMCPOfServer",
        "Send a message to one server",
        "Only what this server has is listed and found, and no agents.",
        example_body=examples.MCP_PING,
        example=examples.MCP_PONG,
        not_found=_NO_SERVER,
    ),
    ("GET", "/mcp/{server}"): _listen_operation(
        "listenMCPOfServer", "Open the event stream of a session with one server", not_found=_NO_SERVER
    ),
    ("DELETE", "/mcp/{server}"): _end_operation(
        "endMCPOfServer", "End a session with one server", not_found=_NO_SERVER
    ),
    ("GET", "/.well-known/oauth-protected-resource"): _metadata_operation(
        "getResourceMetadata", "Find the identity provider"
    ),
    ("GET", "/.well-known/oauth-protected-resource/mcp"): _metadata_operation(
        "getResourceMetadataOfMCP", "Find the identity provider of the MCP endpoint"
    ),
    ("GET", "/.well-known/oauth-protected-resource/mcp/{server}"): _metadata_operation(
        "getResourceMetadataOfServer", "Find the identity provider of one server"
    ),
}
