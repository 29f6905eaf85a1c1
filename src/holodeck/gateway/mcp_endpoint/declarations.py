"""The declarations of the routes of the MCP endpoint: each handler has one for all servers, and one for each alone.

Their messages are those of the Model Context Protocol, so the document has the frame of a message only. Errors have the
form of JSON-RPC, also those that the gateway answers before the endpoint is reached, such as a wrong key.
"""

from __future__ import annotations

from functools import partial

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.http.errors import MCP_PATH
from holodeck.gateway.http.replies import EVENTS

_SERVER_PATH = f"{MCP_PATH}/{{server}}"
_OLD_CLIENTS = "For clients up to version 2025-11-25; later ones have no sessions."
_SENDING = (
    "A request is answered by JSON, or by events if it takes more than two seconds or has more to say than its "
    "result. The last event is the answer. A client of version 2026-07-28 that is asked something gets a result with "
    "`resultType: input_required`, and sends its request again with the answers."
)
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

_declare = partial(route, tag="MCP", error="MCPError", is_counted=False)
_declare_send = partial(
    _declare,
    "POST",
    body="MCPMessages",
    reply="MCPMessages",
    stream="MCPMessage",
    empty_replies={202: "A notification or an answer was taken."},
    counts_itself=True,
)
_declare_listen = partial(
    _declare,
    "GET",
    description=(
        "Messages that belong to no request, such as changed lists. With `Last-Event-ID`, what came after that "
        f"event on the stream that it was on. {_OLD_CLIENTS}"
    ),
    reply="MCPMessage",
    media_type=EVENTS,
    example=examples.MCP_LIST_CHANGED,
    counts_itself=True,
)
_declare_end = partial(
    _declare,
    "DELETE",
    description=f"Cancels what still runs in it. {_OLD_CLIENTS}",
    reply=None,
    empty_replies={204: "The session has ended."},
)

SEND = _declare_send(
    MCP_PATH,
    id="sendMCP",
    summary="Send a message",
    description=f"To all servers and agents of the gateway.\n\n{_SENDING}",
    example_body=examples.MCP_CALL,
    example=examples.MCP_CALL_RESULT,
    refusals={400: _BAD_MESSAGE, 404: f"{_NOT_FOUND} {_NO_METHOD}"},
)
SEND_TO_SERVER = _declare_send(
    _SERVER_PATH,
    id="sendMCPOfServer",
    summary="Send a message to one server",
    description=f"Only what this server has is listed and found, and no agents.\n\n{_SENDING}",
    example_body=examples.MCP_PING,
    example=examples.MCP_PONG,
    refusals={400: _BAD_MESSAGE, 404: f"{_NO_SERVER} {_NO_METHOD}"},
)
LISTEN = _declare_listen(
    MCP_PATH,
    id="listenMCP",
    summary="Open the event stream of a session",
    refusals={400: _NO_EVENT, 404: _NOT_FOUND, 405: _NO_STREAM},
)
LISTEN_TO_SERVER = _declare_listen(
    _SERVER_PATH,
    id="listenMCPOfServer",
    summary="Open the event stream of a session with one server",
    refusals={400: _NO_EVENT, 404: _NO_SERVER, 405: _NO_STREAM},
)
END = _declare_end(MCP_PATH, id="endMCP", summary="End a session", refusals={400: _NO_SESSION, 404: _NOT_FOUND})
END_WITH_SERVER = _declare_end(
    _SERVER_PATH,
    id="endMCPOfServer",
    summary="End a session with one server",
    refusals={400: _NO_SESSION, 404: _NO_SERVER},
)
