"""The errors of the gateway's API, and the one place where errors become wire errors.

`reply_for` builds the HTTP reply for an exception, `error_events` the end of an event stream, `websocket_error_event`
a message of a WebSocket, and `reply_for_failed_run` the reply for a run that ended as failed. What the operator has to
know is logged here; clients get no cause and no traceback. `messages_error_reply` and `mcp_error_reply` give a reply
the form of the Messages API or of JSON-RPC, and each API has an encoder for the error that ends a stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from holodeck.gateway.auth.callers import Caller, KeyRefusal
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.limits import TooManyError
from holodeck.gateway.wire.chat.response import encode_chat_sse
from holodeck.gateway.wire.messages.errors import error_to_json, status_of
from holodeck.gateway.wire.messages.response import encode_message_event
from holodeck.gateway.wire.response.output_items import SSE_DONE, encode_sse
from holodeck.gateway.wire.response.resource import ERROR_TYPES, FAILED_RUN_STATUSES
from holodeck.lib import log
from holodeck.lib.errors import (
    OVERLOADED,
    SERVER_UNAVAILABLE,
    STORAGE_FAILED,
    UNAVAILABLE,
    BadRequestError,
    HoloDeckError,
    StorageError,
)
from holodeck.mcp_server.errors import INVALID_REQUEST
from holodeck.models.callers import Role
from holodeck.models.events import RunResult
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, build_error_response

# Seconds until a client retries where an overloaded or unreachable provider does not say how long.
LOAD_RETRY_AFTER = 1.0
# Seconds, as the value of a header: a dead MCP server is tried again within a few seconds.
MISSING_RETRY_AFTER = "5"
# Seconds, as the value of a header: by then a new connection reaches another gateway.
SHUTDOWN_RETRY_AFTER = "1"
# Seconds, as the value of a header: twice what a request may wait in line, so that the line is gone by then.
OVERLOAD_RETRY_AFTER = "2"
GATEWAY_OVERLOADED = "gateway_overloaded"
MESSAGES_PATH = "/v1/messages"
MCP_PATH = "/mcp"
# Names that a message lists: enough for most gateways, and still readable.
MAX_NAMES_SHOWN = 20

# Codes of failed runs for which a client can wait, with the status 503.
_UNAVAILABLE_CODES = frozenset({OVERLOADED, UNAVAILABLE, SERVER_UNAVAILABLE, STORAGE_FAILED})
# A later attempt may succeed with these, so the reply has a retry-after even where the provider gave none.
_RETRY_LATER_STATUSES = frozenset({429, 503})
_UNAUTHORIZED = 401
_FIRST_SERVER_ERROR = 500
_NOT_STORED_TEXT = "The response was made, but the gateway could not store it."


class APIError(HoloDeckError):
    """An error with its HTTP status and the fields of its wire error."""

    def __init__(
        self, status: int, message: str, *, kind: str, code: str | None = None, param: str | None = None, **headers: str
    ) -> None:
        """`kind`: the `type` of the wire error. `headers`: of the reply, with `_` for `-` in their names."""
        super().__init__(message)
        self.headers = headers
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param


class NotStoredError(StorageError):
    """A run ended and its response could not be stored.

    `has_run_tools`: its tools have run, so a client must not repeat the request automatically.
    """

    def __init__(self, message: str, *, has_run_tools: bool) -> None:
        super().__init__(message)
        self.has_run_tools = has_run_tools


def not_found_error(what: str, item_id: str) -> APIError:
    """Build the 404 for a resource. Its text is the same for a missing one and for one of another caller."""
    return APIError(404, f"{what} with id '{item_id}' not found.", kind="not_found", code="not_found")


def unknown_server_text(name: str, known: Iterable[str]) -> str:
    """Return the message for an MCP server that the gateway does not have, with the names of those that it has."""
    names = list(dict.fromkeys(known))
    more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    known_text = f"There are: {', '.join(names[:MAX_NAMES_SHOWN])}{more}." if names else "There are none."
    return f"There is no MCP server '{name}' here. {known_text}"


def shutting_down_error() -> APIError:
    message, code = "This gateway is shutting down.", "shutting_down"
    return APIError(503, message, kind="server_error", code=code, retry_after=SHUTDOWN_RETRY_AFTER)


def server_unavailable_error(name: str) -> APIError:
    message = f"The MCP server '{name}' is required here and is not available. Try again later."
    return APIError(503, message, kind="server_error", code=SERVER_UNAVAILABLE, retry_after=MISSING_RETRY_AFTER)


def client_gone_error() -> APIError:
    """Build an error for the log and the metrics only: the client has disconnected and never receives it."""
    return APIError(499, "The client went away.", kind="invalid_request", code="client_gone")


def refused_key_error(refusal: KeyRefusal | None) -> APIError:
    """Build the error for a request whose key is not accepted. `refusal`: None for a key that is not known."""
    match refusal:
        case "unknown":
            message = "This gateway cannot reach its storage, so it does not know which keys are in force. Try again."
            return APIError(503, message, kind="server_error", code="keys_unknown", retry_after=MISSING_RETRY_AFTER)
        case "paused":
            message, code = "This key is paused. Ask the operator of this gateway.", "key_paused"
        case "caller_paused":
            message, code = "This caller is paused. Ask the operator of this gateway.", "caller_paused"
        case "erasing":
            message = "What is stored of this caller is being deleted. Try again in a moment."
            return APIError(503, message, kind="server_error", code="caller_erasing", retry_after=MISSING_RETRY_AFTER)
        case "no_group":
            message = "The group of this key is gone. Ask the operator of this gateway."
            code = "key_without_group"
        case "logged_out":
            message, code = "You are not logged in any more. Log in again, at /v1/login.", "logged_out"
        case "expired":
            message, code = "This key has expired. Ask the operator of this gateway for a new one.", "key_expired"
        case None:
            message = "Incorrect API key provided. Ask the operator of this gateway for a key."
            code = "invalid_api_key"
    return APIError(401, message, kind="invalid_request", code=code)


def check_role(caller: Caller, roles: Sequence[Role] = (), *, is_unscoped: bool = False) -> None:
    """Raise `APIError` for a caller that may not use a route for these roles, or for callers without a scope."""
    if roles and caller.role not in roles:
        least = roles[-1]
        message = f"This needs a key with the role {least}, as 'holodeck keys create NAME --role {least}' makes."
    elif caller.role == "metrics" and not roles:
        message = "Your key has the role metrics: it opens /metrics, and nothing else."
    elif is_unscoped and caller.scope.is_limited:
        message = "This is about all callers, and your key has a scope. It needs a key without one."
    else:
        return
    raise APIError(403, message, kind="invalid_request", code="forbidden")


def key_revoked_error() -> APIError:
    message = "Your key was withdrawn or replaced while this request was being answered. Use your new key."
    return APIError(401, message, kind="invalid_request", code="key_revoked")


def reply_for(error: BaseException, request_id: str) -> Reply:
    """Build the reply for an error that ended a request before its reply was started. Logs what is not the client's."""
    match error:
        case APIError() | BadRequestError() | TooManyError() | NotStoredError():
            pass
        case StorageError():
            log.error("gateway.storage_failed", request=request_id, error=error)
        case _:
            log.error("gateway.failed", request=request_id, error=f"{type(error).__name__}: {error}")
    return build_error_reply(error)


def build_error_reply(error: BaseException) -> Reply:
    """Build the same reply as `reply_for`, and log nothing."""
    match error:
        case APIError():
            return _error_reply(error.status, str(error), error.kind, error.code, error.param, **error.headers)
        case BadRequestError():
            return _error_reply(400, str(error), "invalid_request", error.code, error.param)
        case TooManyError():
            headers = {"retry_after": str(max(1, math.ceil(error.retry_after)))}
            if not error.should_retry:
                headers["x_should_retry"] = "false"
            return _error_reply(429, str(error), "too_many_requests", error.code, None, **headers)
        case NotStoredError():
            again = {"x_should_retry": "false"} if error.has_run_tools else {}
            return _error_reply(503, _NOT_STORED_TEXT, "server_error", STORAGE_FAILED, None, **again)
        case StorageError():
            return _error_reply(503, error.public_text, "server_error", STORAGE_FAILED, None)
        case _:
            return _error_reply(500, "The gateway failed on this request.", "server_error", "internal_error", None)


def protocol_error_body(message: str) -> bytes:
    """Return the body of a refusal that a server protocol writes itself, for input that is not a valid request."""
    return reply_for(BadRequestError(message, code="invalid_http"), "").body


def headers_too_large_error(max_count: int, max_bytes: int) -> APIError:
    message = f"The headers are too large: at most {max_count}, with {max_bytes} bytes in all."
    return APIError(431, message, kind="invalid_request", code="headers_too_large")


def overloaded_error() -> APIError:
    message = "This gateway has more requests than it can answer at the moment. Ask again later."
    return APIError(503, message, kind="server_error", code=GATEWAY_OVERLOADED, retry_after=OVERLOAD_RETRY_AFTER)


def error_events(error: BaseException, sequence: int, last: bytes) -> list[bytes]:
    """Encode the events that replace the last event of a stream, `last`, when the response could not be stored.

    OpenAI's `error` event comes first, then `response.failed` as Open Responses has it. A background response gets only
    the first one: it has not failed, storing it is tried again.
    """
    events = [encode_error_event(error, sequence)]
    response = orjson.loads(last)["response"]
    if not response["background"]:
        end = {"status": "failed", "completed_at": None, "incomplete_details": None}
        message = orjson.loads(events[0])["message"]
        failed = {**response, **end, "error": {"code": "server_error", "message": message}}
        event = {"type": "response.failed", "sequence_number": sequence + 1, "response": failed}
        events.append(orjson.dumps(event))
    return events


def encode_error_event(error: BaseException, sequence: int) -> bytes:
    """Encode OpenAI's `error` event of a stream."""
    body: dict[str, Any] = orjson.loads(reply_for(error, "").body)["error"]
    flat = {"code": body["code"], "message": body["message"], "param": body["param"]}
    return orjson.dumps({"type": "error", "sequence_number": sequence, "error": body, **flat})


def websocket_error_event(error: BaseException) -> bytes:
    """Encode the `error` message of a WebSocket, which stays open."""
    reply = reply_for(error, "")
    body: dict[str, Any] = orjson.loads(reply.body)["error"]
    body["code"] = body["code"] or body["type"]
    return orjson.dumps({"type": "error", "status": reply.status, "error": body})


def reply_for_failed_run(result: RunResult, resource: dict[str, Any]) -> Reply:
    """Build the reply for a failed run of a request that did not stream.

    SDKs retry such a reply automatically. `x-should-retry: false` stops them once a tool has run, or when the model
    would fail another time as well.
    """
    message = result.error.public_message if result.error is not None else "The run failed."
    code = result.error.code if result.error is not None else "server_error"
    kind = ERROR_TYPES.get(code, "server_error")
    if code not in ERROR_TYPES and code not in _UNAVAILABLE_CODES:
        code = "server_error"
    body = {"error": {"message": message, "type": kind, "code": code, "param": None, "response_id": resource["id"]}}
    status = 503 if code in _UNAVAILABLE_CODES else FAILED_RUN_STATUSES.get(kind, 500)
    after = result.error.retry_after if result.error is not None else None
    if after is None and status in _RETRY_LATER_STATUSES:
        after = LOAD_RETRY_AFTER
    headers = {}
    if result.tool_calls or (result.error is not None and not result.error.is_retryable):
        headers["x_should_retry"] = "false"
    elif after is not None:
        headers["retry_after"] = str(max(1, math.ceil(after)))
    return json_reply(body, status, **headers)


def reply_for_stored_failure(resource: dict[str, Any], **headers: str) -> Reply:
    """Build the reply for a stored response that has failed, to a request that made it and is sent again.

    Its tools may have run, so that no client repeats it by itself.
    """
    error = resource["error"]
    wire = {"message": error["message"], "type": "server_error", "code": error["code"], "param": None}
    return json_reply({"error": wire | {"response_id": resource["id"]}}, 500, x_should_retry="false", **headers)


def _error_reply(status: int, message: str, kind: str, code: str | None, param: str | None, **headers: str) -> Reply:
    return json_reply({"error": {"message": message, "type": kind, "code": code, "param": param}}, status, **headers)


def is_messages_path(path: str) -> bool:
    """Return True for the routes of the Messages API, and for paths below them that do not exist."""
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/")


def messages_error_reply(reply: Reply, request_id: str) -> Reply:
    """Return the same error in the form of the Messages API."""
    error = orjson.loads(reply.body)["error"]
    status = status_of(error["code"], reply.status)
    message, param = error["message"], error["param"]
    # The API has no field for the path, so its messages begin with it.
    text = message if not param or param in message else f"{param}: {message}"
    body = error_to_json(status, text, request_id, code=error["code"])
    return replace(reply, status=status, body=orjson.dumps(body))


def is_mcp_path(path: str) -> bool:
    """Return True for the routes of the MCP endpoint, and for paths below them that do not exist."""
    return path == MCP_PATH or path.startswith(f"{MCP_PATH}/")


def mcp_error_reply(reply: Reply, challenge: str) -> Reply:
    """Return the same error as JSON-RPC. `challenge`: how a client without a valid token gets one."""
    code = INTERNAL_ERROR if reply.status >= _FIRST_SERVER_ERROR else INVALID_REQUEST
    message = orjson.loads(reply.body)["error"]["message"]
    headers = {**reply.headers, **({"www-authenticate": challenge} if reply.status == _UNAUTHORIZED else {})}
    return replace(reply, body=orjson.dumps(build_error_response(None, code, message)), headers=headers)


def encode_response_error(error: APIError, sequence: int) -> bytes:
    """Encode the `error` event of a stream of a response. `sequence`: the number of the event."""
    return encode_sse([encode_error_event(error, sequence)]) + SSE_DONE


def encode_chat_error(error: APIError) -> bytes:
    """Encode the error in a stream of chat completions or of completions, whose events have no names."""
    return encode_chat_sse(reply_for(error, "").body) + SSE_DONE


def encode_message_error(error: APIError) -> bytes:
    """Encode the `error` event of a stream of the Messages API."""
    return encode_message_event(error_to_json(status_of(error.code, error.status), str(error)))
