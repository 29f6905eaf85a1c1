"""Messages and failures of MCP servers as plain data, without what differs from run to run.

Ids of messages, progress tokens and the `_meta` of requests are no part of what is asked. A notification that belongs
to a request refers to the entry of the request instead.

`ReplayedTransport` has no server: a cassette answers requests, and its messages come in their recorded place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from holodeck.cassettes.cassette import Entry
from holodeck.lib.errors import (
    CassetteMismatchError,
    MCPConnectionError,
    MCPError,
    MCPProtocolError,
    MCPTimeoutError,
    MCPToolNotFoundError,
)
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, encode
from holodeck.tools.mcp.protocol.versions import META_SUBSCRIPTION, mapping
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup

if TYPE_CHECKING:
    from holodeck.cassettes.player import ReplayedTrack

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
_ASKED = "cassette-"
"""The prefix of the ids of recorded requests of a server; the number of the entry follows."""


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


class ReplayedTransport:
    """Stands for one connection to a server."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage, track: ReplayedTrack) -> None:
        self._server = setup.tool.name
        self._errors = setup.errors
        self._on_message = on_message
        self._track = track
        self._request_ids: dict[int, RequestId] = {}
        """By number of an entry, the id of the request of this run."""
        self._received_at = 0.0
        self.failure: asyncio.Future[MCPConnectionError] = asyncio.get_running_loop().create_future()
        self._answers: set[asyncio.Future[Entry]] = set()

    async def open(self) -> None:
        try:
            failure = self._track.open_server(self._server, self)
        except CassetteMismatchError as error:
            raise self._errors.connection("start", str(error)) from error
        if failure is not None:
            raise decode_failure(self._track.localize(failure), self._server)

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        return

    async def request(self, message: Message, delivery: Delivery) -> Message:
        if self.failure.done():
            raise self.failure.result()
        request_id, method = message["id"], str(message["method"])

        def register(asked: Entry) -> None:
            self._request_ids[asked["entry"]] = request_id
            # Results have the id, which depends on what else the client asks in the meantime.
            delivery.request_id = asked.get("id", request_id)

        try:
            answer = self._track.ask_server(self._server, method, to_params(message), register)
            delivery.may_have_been_sent = True
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
            entry = self._track.localize(await answer)
        except CassetteMismatchError as error:
            if method in UNORDERED_METHODS:
                # The track has stored it, and the next request to the model raises it.
                raise self._errors.connection("start", str(error)) from error
            raise
        self._received_at = asyncio.get_running_loop().time()
        if "failure" in entry:
            delivery.may_have_been_sent = bool(entry["failure"].get("was_sent"))
            raise decode_failure(entry["failure"], self._server)
        return {"jsonrpc": "2.0", "id": request_id, **to_answer(entry)}

    def cancel(self, request_id: RequestId, reason: str) -> None:
        return

    def end_request(self, request_id: RequestId, reason: str) -> None:
        return

    async def send(self, message: Message) -> None:
        if "method" in message:
            self._track.record_notification(self._server, str(message["method"]))
        elif isinstance(number := message.get("id"), str) and number.startswith(_ASKED):
            self._track.check_reply(int(number.removeprefix(_ASKED)), to_answer(message))

    def is_stuck(self, since: float) -> bool:
        return False

    def last_received_at(self) -> float:
        return self._received_at

    def stderr_tail(self) -> str:
        return ""

    def stray_output(self) -> str:
        return ""

    def fail(self, error: MCPConnectionError) -> None:
        if not self.failure.done():
            self.failure.set_result(error)
        for answer in list(self._answers):
            if not answer.done():
                answer.set_exception(error)

    async def close(self) -> None:
        return

    def receive(self, entry: Mapping[str, Any]) -> None:
        """Pass on a recorded message of the server, or the loss of its connection."""
        self._received_at = asyncio.get_running_loop().time()
        if "lost" in entry:
            error: MCPError = decode_failure(entry["lost"], self._server)
            if isinstance(error, MCPConnectionError):
                self.fail(error)
            return
        message: Message = {"jsonrpc": "2.0", "method": entry.get("notification", entry.get("asked"))}
        if "params" in entry:
            about = self._request_ids.get(entry.get("about", 0))
            message["params"] = entry["params"] if about is None else put_reference(entry["params"], about)
        if "asked" in entry:
            message["id"] = f"{_ASKED}{entry['entry']}"
        self._on_message(message)
