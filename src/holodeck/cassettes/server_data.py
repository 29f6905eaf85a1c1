"""Messages and failures of MCP servers as plain data, without what differs from run to run.

Ids of messages, progress tokens and the `_meta` of requests are no part of what is asked. A notification that belongs
to a request refers to the entry of the request instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from holodeck.lib.errors import MCPConnectionError, MCPError, MCPProtocolError, MCPTimeoutError, MCPToolNotFoundError
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, encode
from holodeck.tools.mcp.protocol.versions import META_SUBSCRIPTION, mapping
from holodeck.tools.mcp.transports.base import Delivery

Data = dict[str, Any]

HANDSHAKE_METHODS = frozenset({"initialize", "server/discover"})
"""Requests that are compared by their method alone: what they declare is that of a version of HoloDeck."""
REPEATABLE_METHODS = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})
"""Requests whose number depends on the time that a run takes. The latest answer serves for a further one."""
COURTESY_METHODS = frozenset({"ping", "logging/setLevel"})
"""Requests that any server may get at any time, and that change nothing."""
UNORDERED_METHODS = HANDSHAKE_METHODS | REPEATABLE_METHODS | COURTESY_METHODS
"""Requests that are answered at once, whatever else is pending."""
LISTEN_METHOD = "subscriptions/listen"
_ERRORS: Mapping[str, type[MCPError]] = {
    kind.__name__: kind
    for kind in (MCPError, MCPConnectionError, MCPTimeoutError, MCPProtocolError, MCPToolNotFoundError)
}


def to_params(message: Message) -> Data | None:
    """Return the parameters of a request to a server without its `_meta`; None if there are none."""
    params = copy_plain(message.get("params"))
    if not isinstance(params, dict):
        return None
    params.pop("_meta", None)
    return params or None


def take_reference(params: Any) -> tuple[Any, RequestId | None]:
    """Return the parameters of a notification without the id of the request that it belongs to, and this id."""
    params = copy_plain(params)
    for holder, name in _find_references(params):
        if isinstance(found := holder[name], int | str):
            holder[name] = None
            return params, found
    return params, None


def put_reference(params: Any, request_id: RequestId) -> Any:
    """Return the parameters of a recorded notification with the id of the request of this run."""
    params = copy_plain(params)
    for holder, name in _find_references(params):
        holder[name] = request_id
        break
    return params


def _find_references(params: Any) -> Iterator[tuple[Data, str]]:
    """Yield the members of a notification that may have the id of a request, with the objects that hold them."""
    if isinstance(params, dict):
        for holder, name in (
            (params, "progressToken"),
            (params, "requestId"),
            (params.get("_meta"), META_SUBSCRIPTION),
        ):
            if isinstance(holder, dict) and name in holder:
                yield holder, name


def to_answer(response: Message) -> Data:
    """Return the answer of a server as the keys of an entry."""
    found: Data = {key: copy_plain(response[key]) for key in ("result", "error", "status") if key in response}
    return found if "result" in found or "error" in found else {"result": None}


def encode_failure(error: MCPError, delivery: Delivery | None = None) -> Data:
    """Return the failure of a connection or of one request as plain data."""
    data: Data = {"kind": type(error).__name__, "message": str(error), "phase": error.phase}
    details = {key: value for key, value in error.details.items() if _is_plain(value)}
    if details:
        data["details"] = details
    if delivery is not None and delivery.may_have_been_sent:
        data["was_sent"] = True
    return data


def decode_failure(data: Mapping[str, Any], server: str) -> MCPError:
    """Build the error of a recorded failure."""
    kind = _ERRORS.get(str(data.get("kind")), MCPConnectionError)
    details = mapping(data.get("details"))
    return kind(str(data.get("message", "")), server=server, phase=str(data.get("phase", "")), details=dict(details))


def copy_plain(value: Any) -> Any:
    """Return a copy of the value of a message, without anything that only the encoder knows."""
    return orjson.loads(encode({"value": value}))["value"]


def _is_plain(value: object) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True
