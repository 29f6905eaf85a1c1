"""Errors in the form of the Messages API: `{"type": "error", "error": {"type", "message"}}`."""

from __future__ import annotations

from typing import Any

from holodeck.lib.errors import OVERLOADED, UNAVAILABLE

OVERLOADED_STATUS = 529
"""The HTTP status of the API for a model that is overloaded."""
THREAD_NOT_FOUND = "thread_not_found"
"""The code by which Anthropic's packages know that they have to send the whole conversation again."""
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    OVERLOADED_STATUS: "overloaded_error",
}
"""Types of errors by HTTP status. Of the others, those from 500 on are `api_error`, and the rest is the client's."""
_FIRST_SERVER_ERROR = 500


def status_of(code: str | None, status: int) -> int:
    """Return the HTTP status of the API for an error of this gateway with a code and a status."""
    return OVERLOADED_STATUS if code in (OVERLOADED, UNAVAILABLE) else status


def error_type_of(status: int) -> str:
    """Return the type of an error with this HTTP status."""
    return ERROR_TYPES.get(status, "api_error" if status >= _FIRST_SERVER_ERROR else "invalid_request_error")


def error_to_json(
    status: int, message: str, request_id: str | None = None, *, code: str | None = None
) -> dict[str, Any]:
    """Build an error as a body or an event. An event has no `request_id`: the headers of its stream have it.

    `code`: of the error at this gateway. Only those that the API itself has are in its details.
    """
    named = {} if request_id is None else {"request_id": request_id}
    details = {"details": {"error_code": code}} if code == THREAD_NOT_FOUND else {}
    return {"type": "error", "error": {"type": error_type_of(status), "message": message, **details}, **named}
