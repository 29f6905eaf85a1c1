"""The table of every error that the API can answer: its HTTP status, code and type, when it happens, and what to do.

The OpenAPI document and the page of errors are built from it. A test walks the source, and fails for a code that is
raised and not listed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from holodeck.gateway.api.models.compact_conversation import COMPACT_PATH

ErrorGroup = Literal[
    "protocol", "caller", "limits", "budget", "drain", "load", "body", "fields", "query", "lookup", "model",
    "input", "continuation", "servers", "run", "storage", "socket", "file", "login", "elicitation", "idempotency",
    "thread", "keys", "session",
]  # fmt: skip
"""What a request has to have, or a route has to do, for an error to be possible."""
INPUT_ERRORS: tuple[ErrorGroup, ...] = ("fields", "input", "continuation", "servers", "model", "lookup", "storage")
"""Of a route that takes the body of a response."""
STORED_ERRORS: tuple[ErrorGroup, ...] = ("lookup", "storage")
"""Of a route that reads or changes what is stored."""
GROUP_TITLES: dict[ErrorGroup, str] = {
    "protocol": "Any request",
    "caller": "Requests that need a key",
    "limits": "Limits",
    "budget": "Requests that use a model",
    "drain": "Shutdown",
    "load": "Overload",
    "body": "Bodies",
    "fields": "Fields of a body",
    "query": "Query parameters",
    "lookup": "Stored things",
    "model": "Models",
    "input": "Input items",
    "continuation": "Continuing a response or a conversation",
    "servers": "MCP servers of a request",
    "run": "Failed runs",
    "storage": "Storage",
    "socket": "WebSockets",
    "file": "Changes of the gateway's files",
    "keys": "Changes of keys",
    "session": "Logins of persons",
    "login": "Logins at MCP servers",
    "elicitation": "Questions of MCP servers",
    "thread": "Threads of the Messages API",
    "idempotency": "Repeated requests",
}


@dataclass(frozen=True, kw_only=True)
class ErrorCode:
    """One error. `code` is None for errors that only their message tells apart."""

    status: int
    code: str | None
    kind: str
    """The `type` of the wire error."""
    when: str
    advice: str
    groups: tuple[ErrorGroup, ...]


def errors_of(groups: Iterable[ErrorGroup]) -> list[ErrorCode]:
    """Return the errors of these groups, in the order of the table."""
    wanted = set(groups)
    return [each for each in ERROR_CODES if not wanted.isdisjoint(each.groups)]


def _refusal(code: str | None, when: str, advice: str, *groups: ErrorGroup, status: int = 400) -> ErrorCode:
    kind = "not_found" if status == _NOT_FOUND else "invalid_request"
    return ErrorCode(status=status, code=code, kind=kind, when=when, advice=advice, groups=groups)


def _failure(
    status: int, code: str, when: str, advice: str, *groups: ErrorGroup, kind: str = "server_error"
) -> ErrorCode:
    return ErrorCode(status=status, code=code, kind=kind, when=when, advice=advice, groups=groups)


_NOT_FOUND = 404
_READ_PARAM = "`param` names the field; the message has the limit."
_RETRY_HEADER = "Wait as many seconds as the `retry-after` header says, and send the request again."

ERROR_CODES = (
    # Before a route is found.
    _refusal("invalid_http", "The bytes are not a valid HTTP request.", "Use an HTTP library.", "protocol"),
    _refusal(
        "headers_too_large",
        "The request has too many headers, or too many bytes in them and in its URL.",
        "Send fewer. A cookie or a token may be longer than you think, and a proxy may add headers.",
        "protocol",
        status=431,
    ),
    _refusal(
        "duplicate_header",
        "A header that decides what the request may do occurs twice.",
        "Send it once. A proxy may add a second one.",
        "protocol",
    ),
    _refusal(
        "unknown_url",
        "There is no such path.",
        "Compare it with the routes of the HTTP API. A base URL ends with `/v1`.",
        "protocol",
        status=_NOT_FOUND,
    ),
    _refusal(
        "method_not_allowed",
        "The path exists, and not for this method.",
        "The `allow` header lists the methods.",
        "protocol",
        status=405,
    ),
    _failure(
        500,
        "internal_error",
        "A bug of the gateway.",
        "Report it with the `x-request-id` of the reply; the gateway's log has the cause under the same id.",
        "protocol",
    ),
    # Of the caller.
    _refusal(
        "invalid_api_key",
        "There is no key, or the gateway does not know it.",
        "Send `Authorization: Bearer KEY` with a key of this gateway.",
        "caller",
        status=401,
    ),
    _refusal("key_paused", "The operator has paused the key.", "Ask the operator.", "caller", status=401),
    _refusal("caller_paused", "The operator has paused the caller.", "Ask the operator.", "caller", status=401),
    _failure(503, "caller_erasing", "What is stored of the caller is being deleted.", _RETRY_HEADER, "caller"),
    _refusal(
        "key_without_group",
        "The gateway's file does not have the group of the key any more.",
        "Ask the operator.",
        "caller",
        status=401,
    ),
    _refusal("key_expired", "The key has expired.", "Ask the operator for a new one.", "caller", status=401),
    _failure(
        503,
        "keys_unknown",
        "The gateway cannot reach its storage, and does not know any more which keys are in force.",
        _RETRY_HEADER,
        "caller",
    ),
    _refusal(
        "key_revoked",
        "The operator has withdrawn or replaced the key while the request was being answered.",
        "Use the new key. What was running was cancelled.",
        "caller",
        status=401,
    ),
    _refusal(
        "logged_out",
        "The request has the cookie of a login that has ended.",
        "Log in again, at `/v1/login`.",
        "caller",
        status=401,
    ),
    _refusal(
        "cross_site_request",
        "The request has the cookie of a login, and comes from a page that is not of this gateway.",
        "Use a key, which other pages and programs send by themselves.",
        "caller",
        status=403,
    ),
    _refusal(
        "not_logged_in",
        "The request has no login that could end.",
        "A key is revoked, a token expires.",
        "session",
        status=409,
    ),
    _refusal(
        "origin_not_allowed",
        "The request is from a web page whose origin is not allowed.",
        "The operator adds the origin to `cors_origins`.",
        "caller",
        status=403,
    ),
    _refusal(
        "unknown_host",
        "The `Host` header names a host that is not this gateway's.",
        "The operator adds the host to `listen.allowed_hosts`.",
        "caller",
        status=421,
    ),
    _refusal(
        "forbidden",
        "The key is valid, and has not the role that the route needs; or the route is about all callers, and the key "
        "has a scope.",
        "Use a key that `holodeck keys create NAME --role operator` made, without a scope.",
        "caller",
        status=403,
    ),
    # Limits.
    _failure(
        429,
        "rate_limit_exceeded",
        "A limit is reached: requests at once, requests or tokens a minute, bytes in memory, background responses, "
        "or a limit of the model's provider.",
        _RETRY_HEADER,
        "limits",
        "body",
        "run",
        kind="too_many_requests",
    ),
    _failure(
        429,
        "budget_exceeded",
        "The key has spent the budget that the operator gives it for an hour, a day, a week or a month.",
        "The message says when it is reset, and `retry-after` in how many seconds. Ask the operator for more.",
        "budget",
        "run",
        kind="too_many_requests",
    ),
    _failure(
        503,
        "gateway_overloaded",
        "The gateway has more requests than it can answer, and refused this one before it read its body.",
        f"{_RETRY_HEADER} Nothing was done for it.",
        "load",
    ),
    _failure(503, "shutting_down", "The gateway ends.", _RETRY_HEADER, "drain"),
    _failure(503, "session_moving", "The session of the MCP client is changing its gateway.", _RETRY_HEADER, "drain"),
    # Bodies.
    _refusal("invalid_json", "The body is not JSON, or too deep.", "Send one JSON object.", "body"),
    _refusal(
        "request_timeout",
        "The body came too slowly.",
        "Send it again. The operator can raise `limits.request_seconds`.",
        "body",
        status=408,
    ),
    _refusal(
        "too_large",
        "The body has too many bytes or too many values.",
        "Send less. The operator can raise `limits.body_bytes`.",
        "body",
        status=413,
    ),
    _refusal("unsupported_encoding", "The body is compressed.", "Send it uncompressed.", "body", status=415),
    _refusal(
        "unsupported_media_type",
        "The body is not declared as JSON.",
        "Send the header `content-type: application/json`.",
        "body",
        status=415,
    ),
    _refusal(
        "client_gone",
        "The client disconnected. Only logs and metrics have it.",
        "Nothing: the client is gone.",
        "body",
        status=499,
    ),
    # Fields of a body.
    _refusal("invalid_type", "A value has the wrong type.", "`param` names the field.", "fields", "query"),
    _refusal(
        "invalid_value", "A value is none of those that are possible.", "The message lists them.", "fields", "query"
    ),
    _refusal("unsupported_value", "This gateway does not allow the value.", "The message has the reason.", "servers"),
    _refusal(
        "unsupported_parameter",
        "The gateway, or the model behind it, does not support the field.",
        "Leave it out.",
        "fields",
        "run",
    ),
    _refusal("unknown_parameter", "There is no such field.", "Check its spelling; `param` is its path.", "fields"),
    _refusal("missing_required_parameter", "A required field is missing.", "`param` names it.", "fields"),
    _refusal(
        "mutually_exclusive_parameters",
        "A request has both `previous_response_id` and `conversation`.",
        "Send one of them.",
        "fields",
    ),
    _refusal("string_above_max_length", "A text is too long.", _READ_PARAM, "fields"),
    _refusal("empty_string", "A text is empty.", "Send a text, or leave the field out.", "fields"),
    _refusal("empty_array", "A list is empty.", "Send at least one entry.", "fields"),
    _refusal("array_above_max_length", "A list is too long.", _READ_PARAM, "fields", "servers"),
    _refusal("object_above_max_properties", "An object has too many keys.", _READ_PARAM, "fields"),
    _refusal("integer_below_min_value", "A number is too small.", _READ_PARAM, "fields", "query"),
    _refusal("integer_above_max_value", "A number is too large.", _READ_PARAM, "fields", "query"),
    _refusal("decimal_below_min_value", "A number is too small.", _READ_PARAM, "fields"),
    _refusal("decimal_above_max_value", "A number is too large.", _READ_PARAM, "fields"),
    _refusal("schema_above_max_size", "The JSON Schemas are too large.", "Send smaller or fewer ones.", "fields"),
    _refusal("invalid_json_schema", "A JSON Schema is wrong.", "The message says where.", "fields"),
    _refusal(
        "invalid_url",
        "A URL has the wrong form, or is not allowed.",
        "The message has the reason.",
        "fields",
        "servers",
    ),
    _refusal("duplicate_value", "Two tools or servers have the same name.", "Rename one.", "fields", "servers"),
    # Stored things.
    _refusal(
        "not_found",
        "There is nothing with this id, or it belongs to another caller.",
        "Check the id and the key. Responses that are not stored, or are deleted, cannot be read.",
        "lookup",
        status=_NOT_FOUND,
    ),
    _refusal(
        "model_not_found",
        "The gateway has no model of this name.",
        "The message lists the names, as `/v1/models` does.",
        "model",
        status=_NOT_FOUND,
    ),
    # Changes of keys.
    _refusal(
        "no_keys",
        "The gateway has no keys: everything on its machine may use it.",
        "Make the first key at its terminal.",
        "keys",
        status=409,
    ),
    _refusal(
        "key_in_file",
        "The key is in the gateway's file, which is not changed over HTTP.",
        "Change the file; a gateway that runs applies it.",
        "keys",
        status=409,
    ),
    _refusal("key_exists", "There is a key of this name.", "Use another name, or rotate it.", "keys", status=409),
    _refusal(
        "too_many_keys",
        "A person has as many own keys as it may have.",
        "Revoke one that is not used any more.",
        "keys",
        status=409,
    ),
    _refusal(
        "key_changed",
        "Another request has changed the key at the same moment.",
        "Look at the key, and try again.",
        "keys",
        status=409,
    ),
    _refusal(
        "key_in_use",
        "The key is that of the request.",
        "Use another operator's key for it.",
        "keys",
        status=409,
    ),
    _refusal(
        "tool_changed",
        "A tool is not withheld any more, or has changed since it was looked at.",
        "List the servers again, and look at its digest.",
        "file",
        status=409,
    ),
    _refusal(
        "no_login",
        "The MCP server needs no login, or its definition has no `auth` for one.",
        "The message says which, and what to write into the definition.",
        "login",
        status=409,
    ),
    # Questions of MCP servers.
    _refusal(
        "elicitation_answered",
        "The question was answered already.",
        "Read the response: its call goes on with the first answer.",
        "elicitation",
        status=409,
    ),
    # Input items.
    _refusal("duplicate_item", "Two items have the same id.", "Leave one out, or leave its id out.", "input"),
    _refusal(
        "item_not_found",
        "A reference, or `after`, names an item that is not there.",
        "Send the item itself, or another id.",
        "input",
        "query",
    ),
    _refusal(
        "invalid_encrypted_content",
        "Encrypted content is changed, or was made for another caller or gateway.",
        "Send it back as it came, with the same key.",
        "input",
    ),
    _refusal("context_too_long", "The conversation is too large.", f"Compact it with `{COMPACT_PATH}`.", "input"),
    # Continuing.
    _refusal(
        None,
        "The previous response has not ended, or there are several models and the request names none.",
        "The message says which. Wait for the end, or add `model`.",
        "continuation",
    ),
    _refusal(
        "previous_response_not_found",
        "The previous response was not stored, is deleted, or belongs to another caller.",
        "Send the whole conversation as `input`.",
        "continuation",
    ),
    _refusal(
        "thread_not_found",
        "The thread of a message is no longer held, or belongs to another caller.",
        "Send the whole conversation again, and begin a thread with it. Anthropic's tool runners do.",
        "thread",
        status=_NOT_FOUND,
    ),
    _refusal(
        "conversation_locked",
        "Another response is going on in the conversation.",
        "Wait for it, and send the request again.",
        "continuation",
    ),
    _refusal("missing_tool_output", "A call has no output.", "Send the output of each call.", "continuation"),
    _refusal("unknown_call_id", "An output has no call.", "Send it with the `call_id` of its call.", "continuation"),
    _refusal("duplicate_tool_output", "A call has an output already.", "Send each output once.", "continuation"),
    _refusal(
        "approval_request_not_found",
        "There is no such request for approval, or it was changed.",
        "Send it back as it came.",
        "continuation",
    ),
    _refusal(
        "approval_request_used",
        "The request for approval is answered already.",
        "Continue the response that the message names.",
        "continuation",
    ),
    _refusal(
        "calls_taken",
        "Another response goes on with the same calls.",
        "Wait for it, and continue from it.",
        "continuation",
    ),
    _refusal(
        "paused_turn_gone",
        "The response whose calls wait for this output is not stored.",
        "Continue on the same connection, or send the input without that turn.",
        "continuation",
    ),
    _refusal(
        "missing_credentials",
        "A call that waited needs a token that the request does not have.",
        "Send the declaration of the server with its `authorization` again.",
        "servers",
    ),
    # Failed runs.
    _refusal("context_length_exceeded", "The conversation is too long for the model.", "Compact or shorten it.", "run"),
    _refusal("invalid_prompt", "The model does not accept the request.", "The message is the provider's.", "run"),
    _failure(
        422,
        "answer_does_not_fit",
        "The model was asked several times, and no answer has the format of the request. A stored response has the "
        "code `server_error`.",
        "Make the schema simpler, or ask another model. Packages do not send it again by themselves.",
        "run",
        kind="model_error",
    ),
    _failure(
        500,
        "server_error",
        "The model or the run failed. Streams and stored responses have this code for the failures below, too.",
        "Try again, unless the reply has `x-should-retry: false`: then a second attempt would fail as well, or repeat "
        "tools. The gateway's log has the cause under the `x-request-id` of the reply.",
        "run",
    ),
    _failure(
        500,
        "cancelled",
        "The run of a chat completion was cancelled.",
        "Send the request again.",
        "run",
    ),
    _failure(503, "overloaded", "The gateway's machine has no capacity to ask the model.", _RETRY_HEADER, "run"),
    _failure(
        503, "model_unavailable", "The model cannot be reached, is overloaded, or keeps failing.", _RETRY_HEADER, "run"
    ),
    _failure(
        503,
        "server_unavailable",
        "An MCP server that is required is not available, or a login at one failed before its page was known.",
        "Wait as many seconds as the `retry-after` header says, if there is one. The message of a login has the cause.",
        "run",
        "login",
    ),
    _failure(
        503,
        "storage_error",
        "The gateway cannot reach its storage, or could not store the response.",
        "Send the request again, unless the reply has `x-should-retry: false`: then tools have run.",
        "storage",
    ),
    _refusal(
        "idempotency_key_reused",
        "The `Idempotency-Key` was sent with another body in the last 24 hours.",
        "Use a new key for another request, and the same body with the same key.",
        "idempotency",
        status=422,
    ),
    # WebSockets.
    _refusal(
        "websocket_connection_limit_reached",
        "The WebSocket was open for as long as one may be.",
        "Open a new one, and continue there.",
        "socket",
    ),
    _refusal(
        "token_expired",
        "The token of the WebSocket has expired.",
        "Open a new one with a new token.",
        "socket",
        status=401,
    ),
    _failure(
        429,
        "too_many_messages",
        "Too many messages wait behind the running response.",
        "Wait for its end.",
        "socket",
        kind="too_many_requests",
    ),
)
