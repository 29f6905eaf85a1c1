"""Every error becomes a wire error here, and nowhere else."""

from __future__ import annotations

import math
from typing import Any

import orjson

from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.limits import TooManyError
from holodeck.gateway.wire.response.resource import ERROR_TYPES
from holodeck.lib import log
from holodeck.lib.errors import (
    OVERLOADED,
    SERVER_UNAVAILABLE,
    UNAVAILABLE,
    BadRequestError,
    HoloDeckError,
    StorageError,
)
from holodeck.models.events import RunResult

# Seconds, when a provider that has too much to do does not say how long.
LOAD_RETRY_AFTER = 1.0
# Seconds, as a header says it: a dead server is tried again within a few.
MISSING_RETRY_AFTER = "5"
# Seconds, as a header says it: by then a new connection reaches a gateway that stays.
SHUTDOWN_RETRY_AFTER = "1"


_NOT_STORED_TEXT = "The response was made, but the gateway could not store it."


class APIError(HoloDeckError):
    """An answer that is not 200, with what it says."""

    def __init__(
        self, status: int, message: str, *, kind: str, code: str | None = None, param: str | None = None, **headers: str
    ) -> None:
        """`headers`: with `_` for `-` in their names."""
        super().__init__(message)
        self.headers = headers
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param


class NotStoredError(StorageError):
    """A run ended and could not be stored. `has_run_tools`:
    its tools have run, so it must not be repeated by itself.
    """

    def __init__(self, message: str, *, has_run_tools: bool) -> None:
        super().__init__(message)
        self.has_run_tools = has_run_tools


def not_found_error(what: str, item_id: str) -> APIError:
    """The same words for what does not exist and for what is somebody else's."""
    return APIError(404, f"{what} with id '{item_id}' not found.", kind="not_found", code="not_found")


def shutting_down_error() -> APIError:
    message, code = "This gateway is shutting down.", "shutting_down"
    return APIError(503, message, kind="server_error", code=code, retry_after=SHUTDOWN_RETRY_AFTER)


def server_unavailable_error(name: str) -> APIError:
    message = f"The MCP server '{name}' is required here and is not available. Try again later."
    return APIError(503, message, kind="server_error", code=SERVER_UNAVAILABLE, retry_after=MISSING_RETRY_AFTER)


def client_gone_error() -> APIError:
    """Nobody reads this; it stands in the log."""
    return APIError(499, "The client went away.", kind="invalid_request", code="client_gone")


def unauthorized_error() -> APIError:
    message = "Incorrect API key provided. Ask the operator of this gateway for a key."
    return APIError(401, message, kind="invalid_request", code="invalid_api_key")


def reply_for(error: BaseException, request_id: str) -> Reply:
    """The answer for an error that ended a request before it had one."""
    match error:
        case APIError():
            return _error_reply(error.status, str(error), error.kind, error.code, error.param, **error.headers)
        case BadRequestError():
            return _error_reply(400, str(error), "invalid_request", error.code, error.param)
        case TooManyError():
            after = str(max(1, math.ceil(error.retry_after)))
            return _error_reply(429, str(error), "too_many_requests", "rate_limit_exceeded", None, retry_after=after)
        case NotStoredError():
            again = {"x_should_retry": "false"} if error.has_run_tools else {}
            return _error_reply(503, _NOT_STORED_TEXT, "server_error", "storage_error", None, **again)
        case StorageError():
            log.error("gateway.storage_failed", request=request_id, error=error)
            return _error_reply(
                503, "The gateway cannot reach its storage. Try again.", "server_error", "storage_error", None
            )
        case _:
            log.error("gateway.failed", request=request_id, error=f"{type(error).__name__}: {error}")
            return _error_reply(500, "The gateway failed on this request.", "server_error", "internal_error", None)


def protocol_error_body(message: str) -> bytes:
    """The body of a refusal that the protocol itself writes: what came is no request that a route could answer."""
    return reply_for(BadRequestError(message, code="invalid_http"), "").body


def error_events(error: BaseException, sequence: int, last: bytes) -> list[bytes]:
    """The same as the end of a stream, in the form of OpenAI and in that of Open Responses, instead of its last event.

    A response that nobody waits for has not failed: it is tried again.
    """
    body: dict[str, Any] = orjson.loads(reply_for(error, "").body)["error"]
    flat = {"code": body["code"], "message": body["message"], "param": body["param"]}
    events: list[dict[str, Any]] = [{"type": "error", "sequence_number": sequence, "error": body, **flat}]
    response = orjson.loads(last)["response"]
    if not response["background"]:
        end = {"status": "failed", "completed_at": None, "incomplete_details": None}
        told = {**response, **end, "error": {"code": "server_error", "message": body["message"]}}
        events.append({"type": "response.failed", "sequence_number": sequence + 1, "response": told})
    return [orjson.dumps(event) for event in events]


def websocket_error_event(error: BaseException) -> bytes:
    """The same for a WebSocket, which goes on afterwards."""
    reply = reply_for(error, "")
    body: dict[str, Any] = orjson.loads(reply.body)["error"]
    body["code"] = body["code"] or body["type"]
    return orjson.dumps({"type": "error", "status": reply.status, "error": body})


_FAILED_RUN_STATUSES = {"invalid_request": 400, "too_many_requests": 429}
"""Of failed runs, by the type of their error; the others are 500."""
_RETRY_LATER_STATUSES = frozenset({429, 503})
"""A later attempt may succeed, so the answer says how much later, whether or not the provider has said it."""


def reply_for_failed_run(result: RunResult, resource: dict[str, Any]) -> Reply:
    """A run that failed, for a client that did not stream. SDKs repeat it by themselves unless they are told not to:

    once a tool has run, or when the model will not answer another time, either.
    """
    message = result.error.message if result.error is not None else "The run failed."
    code = result.error.code if result.error is not None else "server_error"
    kind = ERROR_TYPES.get(code, "server_error")
    body = {"error": {"message": message, "type": kind, "code": code, "param": None, "response_id": resource["id"]}}
    status = 503 if code in (OVERLOADED, UNAVAILABLE, SERVER_UNAVAILABLE) else _FAILED_RUN_STATUSES.get(kind, 500)
    after = result.error.retry_after if result.error is not None else None
    if after is None and status in _RETRY_LATER_STATUSES:
        after = LOAD_RETRY_AFTER
    headers = {}
    if result.tool_calls or (result.error is not None and not result.error.is_retryable):
        headers["x_should_retry"] = "false"
    elif after is not None:
        headers["retry_after"] = str(max(1, math.ceil(after)))
    return json_reply(body, status, **headers)


def _error_reply(status: int, message: str, kind: str, code: str | None, param: str | None, **headers: str) -> Reply:
    return json_reply({"error": {"message": message, "type": kind, "code": code, "param": param}}, status, **headers)
