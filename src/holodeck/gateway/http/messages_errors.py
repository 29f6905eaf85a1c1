"""Replies with errors in the form of the Messages API, for its routes."""

from __future__ import annotations

from dataclasses import replace

import orjson

from holodeck.gateway.http.replies import Reply
from holodeck.gateway.wire.messages.errors import error_to_json, status_of

MESSAGES_PATH = "/v1/messages"


def is_messages_path(path: str) -> bool:
    """True for the routes of the Messages API, and for paths below them that do not exist."""
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/")


def messages_error_reply(reply: Reply, request_id: str) -> Reply:
    """The same error in the form of the Messages API."""
    error = orjson.loads(reply.body)["error"]
    status = status_of(error["code"], reply.status)
    message, param = error["message"], error["param"]
    # The API has no field for the path, so its messages begin with it.
    text = message if not param or param in message else f"{param}: {message}"
    body = error_to_json(status, text, request_id, code=error["code"])
    return replace(reply, status=status, body=orjson.dumps(body))
