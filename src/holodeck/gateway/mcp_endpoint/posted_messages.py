"""Messages that MCP clients post: which of them are refused, and what answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.http.replies import Reply
from holodeck.gateway.mcp_endpoint.endpoint_sessions import EndpointSession
from holodeck.mcp_server.errors import INVALID_REQUEST, RPCError
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, encode

# Messages of one batch: more than a client has to ask for at one time.
MAX_BATCH = 100
# The only version with batches of messages.
_BATCH_VERSION = "2025-03-26"


class RefusedError(Exception):
    """A request is refused before it is answered, with an HTTP status and a JSON-RPC error."""

    def __init__(self, status: int, error: RPCError, request_id: RequestId | None = None) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.request_id = request_id

    def to_reply(self) -> Reply:
        return Reply(status=self.status, body=encode(self.error.to_response(self.request_id)))


def no_session() -> RefusedError:
    """Return the refusal of a request whose session is not there for its caller."""
    return RefusedError(404, RPCError(INVALID_REQUEST, "Session not found: it has ended. Initialize anew."))


def take_message(session: EndpointSession, message: Message, params: Mapping[str, Any]) -> None:
    """Take the answer to a question, or a notification."""
    if message.get("method") == "notifications/cancelled":
        session.running.cancel(params.get("requestId"))
    elif "method" not in message:
        session.protocol.handle_response(message)


def find_batch_problem(session: EndpointSession, messages: list[Any]) -> str | None:
    """Return why a batch is refused, or None."""
    if session.protocol.version != _BATCH_VERSION or not messages:
        return f"Only clients of {_BATCH_VERSION} may send several messages"
    if len(messages) > MAX_BATCH:
        return f"A batch has at most {MAX_BATCH} messages, and this one has {len(messages)}"
    return next((problem for problem in map(find_problem, messages) if problem is not None), None)


def find_problem(message: object) -> str | None:
    """Return why a message is none, or None."""
    if not isinstance(message, dict):
        return "A message must be an object"
    if message.get("jsonrpc") != "2.0":
        return "'jsonrpc' must be \"2.0\""
    request_id = message.get("id")
    if "id" in message and (isinstance(request_id, bool) or not isinstance(request_id, int | str)):
        return "An id must be a text or a whole number"
    if "method" in message and not isinstance(message["method"], str):
        return "'method' must be a text"
    if "method" not in message and "result" not in message and "error" not in message:
        return "A message must have a method, a result or an error"
    return None


def drop(message: Message) -> None:
    """Send nothing: a `Send` for a client that keeps no session."""
