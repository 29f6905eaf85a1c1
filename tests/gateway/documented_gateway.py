"""The gateway's OpenAPI document as a judge of all that a gateway accepts and sends in tests.

`check_traffic` makes a gateway compare with the document each request that it answers with success, each reply, and
each event of a stream or a WebSocket. What differs is collected, so that a test fails at its end with all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema_rs
import orjson

from holodeck.gateway.all_endpoints import list_routes
from holodeck.gateway.api.route import Route
from holodeck.gateway.app import Gateway
from holodeck.gateway.http.asgi import Message, Receive, Scope, Send
from holodeck.gateway.http.error_codes import errors_of
from holodeck.gateway.http.errors import is_mcp_path, is_messages_path
from holodeck.gateway.http.replies import EVENTS, JSON
from holodeck.gateway.openapi.document import build_document, errors_of_route
from holodeck.gateway.openapi.schemas.event_schemas import EVENT_KINDS
from holodeck.gateway.server.served_request import ServedRequest
from holodeck.gateway.wire.messages.errors import status_of

# Tests of limits send bodies of many megabytes, in which nothing is to be seen that others do not have.
MAX_CHECKED_BYTES = 256 * 1024
# Parameters that operators allow in tests: no document lists them, since it does not depend on the operator.
EXTRA_PARAMETERS = frozenset({"top_k"})
_EVENT_SCHEMAS = {kind.type: kind.schema_name for kind in EVENT_KINDS}
_ANY_ERROR = errors_of(("protocol",))


@cache
def document() -> dict[str, Any]:
    """The document of all routes. It does not depend on what a gateway serves."""
    return build_document(_routes())


@cache
def _routes() -> list[Route]:
    return list_routes()


@cache
def validator(name: str) -> jsonschema_rs.Validator:
    schemas = document()["components"]
    return jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": schemas}, offline=True)


def document_problems(schema: str | Mapping[str, Any], value: Any) -> list[str]:
    """What is wrong with a value, by a schema or by the one of that name."""
    if isinstance(schema, str):
        name, judge = schema, validator(schema)
    else:
        whole = {**schema, "components": document()["components"]}
        name, judge = "", jsonschema_rs.validator_for(whole, offline=True)
    if judge.is_valid(value):
        return []
    return [f"{name}{list(each.instance_path)}: {_shorten(each.message)}" for each in judge.iter_errors(value)]


def without_nulls(value: Any) -> Any:
    """The same JSON without fields that are null: a gateway takes them as left out, known or not."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def _without_extra_parameters(body: Any) -> Any:
    return {key: each for key, each in body.items() if key not in EXTRA_PARAMETERS} if isinstance(body, dict) else body


def check_traffic(gateway: Gateway) -> list[str]:
    """Make the gateway check all that it answers from now on. Returns the list to which it adds what is wrong."""
    gateway.__class__ = _CheckedGateway
    assert isinstance(gateway, _CheckedGateway)
    gateway.problems = []
    return gateway.problems


def check_exchange(method: str, path: str, body: bytes | None, status: int, content_type: str, reply: bytes) -> None:
    """Fail if a request and its reply are not as the document says, for a gateway in another process."""
    problems: list[str] = []
    exchange = _Exchange(method, path.partition("?")[0], problems)
    exchange.receive({"type": "http.request", "body": body or b""})
    headers = [(b"content-type", content_type.encode())]
    exchange.send({"type": "http.response.start", "status": status, "headers": headers})
    exchange.send({"type": "http.response.body", "body": reply})
    fail_with(problems)


def fail_with(problems: list[str]) -> None:
    assert not problems, "\n".join(["What the gateway did is not what its OpenAPI document says:", *problems])


def _find_route(method: str, path: str) -> Route | None:
    method = "GET" if method == "HEAD" else method
    for route in _routes():
        if route.method == method and route.compile_path().fullmatch(path):
            return route
    return None


def _shorten(text: str) -> str:
    return text if len(text) < 400 else f"{text[:300]} ... {text[-80:]}"


class _CheckedGateway(Gateway):
    problems: list[str]

    async def serve_http(self, request: ServedRequest) -> None:
        request.__class__ = _CheckedRequest
        assert isinstance(request, _CheckedRequest)
        _exchanges[request] = _Exchange(request.method, request.path, self.problems)
        try:
            await super().serve_http(request)
        finally:
            del _exchanges[request]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Socket(self.problems)

        async def checked_receive() -> Message:
            message = await receive()
            exchange.receive(message)
            return message

        async def checked_send(message: Message) -> None:
            exchange.send(message)
            await send(message)

        await super().__call__(scope, checked_receive, checked_send)


class _CheckedRequest(ServedRequest):
    __slots__ = ()

    def take_body(self) -> bytes:
        body = super().take_body()
        _exchanges[self].receive({"type": "http.request", "body": body})
        return body

    def write_reply(self, status: int, headers: Mapping[str, str], body: bytes, *, is_last: bool = True) -> None:
        self._check_head(status, headers)
        _exchanges[self].send({"type": "http.response.body", "body": body})
        super().write_reply(status, headers, body, is_last=is_last)

    def start_stream(self, status: int, headers: Mapping[str, str]) -> None:
        self._check_head(status, headers)
        super().start_stream(status, headers)

    def write(self, data: bytes) -> None:
        _exchanges[self].send({"type": "http.response.body", "body": data, "more_body": True})
        super().write(data)

    def _check_head(self, status: int, headers: Mapping[str, str]) -> None:
        written = [(name.encode(), value.encode()) for name, value in headers.items()]
        _exchanges[self].send({"type": "http.response.start", "status": status, "headers": written})


_exchanges: dict[ServedRequest, _Exchange] = {}
"""Of requests that are being answered."""


class _Traffic:
    def __init__(self, problems: list[str], where: str) -> None:
        self._problems = problems
        self._where = where

    def receive(self, message: Message) -> None:
        raise NotImplementedError

    def send(self, message: Message) -> None:
        raise NotImplementedError

    def _check(self, schema: str | Mapping[str, Any], value: Any, what: str) -> None:
        self._problems += [f"{self._where}: {what}: {problem}" for problem in document_problems(schema, value)]


class _Exchange(_Traffic):
    """One HTTP request and its reply."""

    def __init__(self, method: str, path: str, problems: list[str]) -> None:
        super().__init__(problems, f"{method} {path}")
        self._path = path
        self._route = _find_route(method, path)
        self._has_body = method not in ("HEAD", "OPTIONS")
        self._request = bytearray()
        self._reply = bytearray()
        self._status = 0
        self._type = ""

    def receive(self, message: Message) -> None:
        if len(self._request) <= MAX_CHECKED_BYTES:
            self._request += message.get("body", b"")

    def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._type = dict(message["headers"]).get(b"content-type", b"").decode().partition(";")[0]
            self._check_request()
            return
        if len(self._reply) <= MAX_CHECKED_BYTES or self._type == EVENTS:
            self._reply += message.get("body", b"")
        if self._type == EVENTS:
            self._check_events()
        elif not message.get("more_body") and self._has_body and len(self._reply) <= MAX_CHECKED_BYTES:
            self._check_reply()

    def _check_request(self) -> None:
        body = None if self._route is None else self._route.body
        is_accepted = self._status in (200, 202)
        if is_accepted and body is not None and 0 < len(self._request) <= MAX_CHECKED_BYTES:
            sent = orjson.loads(self._request)
            # A null is a value in few bodies, as in one that changes a key; all others are as if they had none.
            if not validator(body).is_valid(sent):
                self._check(body, _without_extra_parameters(without_nulls(sent)), "it accepted")

    def _check_reply(self) -> None:
        if self._status == 200 and self._route is not None:
            if self._type not in (self._route.media_type, *self._route.other_media_types):
                self._problems.append(f"{self._where}: it answered with {self._type}")
            elif self._type == JSON and self._route.reply is not None:
                self._check(self._route.reply, orjson.loads(self._reply), "it answered")
        elif self._route is not None and self._status in self._route.other_replies:
            self._check(self._route.other_replies[self._status], orjson.loads(self._reply), "it answered")
        elif self._route is not None and self._status in self._route.error_pages:
            if self._type != "text/html":
                self._problems.append(f"{self._where}: it answered with {self._type}")
        elif self._status >= 400:
            self._check_error(orjson.loads(self._reply))
        elif self._route is not None and (self._reply or self._status not in self._route.empty_replies):
            self._problems.append(f"{self._where}: a reply that the document does not have: {self._status}")

    def _check_error(self, reply: Any) -> None:
        if self._route is not None and self._status == 503 and self._route.unready_reply and "error" not in reply:
            self._check(self._route.unready_reply, reply, "it answered")
            return
        possible = _ANY_ERROR if self._route is None else [*errors_of_route(self._route), *_ANY_ERROR]
        error = reply["error"]
        if is_mcp_path(self._path):
            self._check("MCPError", reply, "it answered")
            refusals = () if self._route is None else self._route.refusals
            if self._status not in {*refusals, *(each.status for each in possible)}:
                self._problems.append(f"{self._where}: a status that the document does not have: {self._status}")
            return
        if is_messages_path(self._path):
            self._check("MessagesError", reply, "it answered")
            if not any(self._status == status_of(each.code, each.status) for each in possible):
                self._problems.append(f"{self._where}: a status that the document does not have: {self._status}")
            return
        self._check("Error", reply, "it answered")
        if not any((self._status, error["code"], error["type"]) == (e.status, e.code, e.kind) for e in possible):
            self._problems.append(f"{self._where}: an error that the document does not have: {self._status} {error}")

    def _check_events(self) -> None:
        *frames, rest = bytes(self._reply).split(b"\n\n")
        self._reply = bytearray(rest)
        for frame in frames:
            if is_mcp_path(self._path):
                self._check_message(frame)
                continue
            data = frame.rpartition(b"data: ")[2]
            if data == b"[DONE]" or frame.startswith(b":") or len(data) > MAX_CHECKED_BYTES:
                continue
            event = orjson.loads(data)
            if is_messages_path(self._path):
                self._check("MessageEvent", event, "an event")
            elif self._path == "/v1/completions":
                self._check("CompletionChunk", event, "a chunk")
            elif "type" in event:
                self._check(_EVENT_SCHEMAS.get(event["type"], "ResponseEvent"), event, "an event")
            else:
                self._check("ChatError" if "error" in event else "ChatChunk", event, "a chunk")

    def _check_message(self, frame: bytes) -> None:
        """Check an event of the MCP endpoint. The first one of a stream has an id and no message."""
        for line in frame.split(b"\n"):
            data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if data and len(data) <= MAX_CHECKED_BYTES:
                self._check("MCPMessage", orjson.loads(data), "an event")


class _Socket(_Traffic):
    """One WebSocket. A message is checked if it is answered by a response, and no other message came meanwhile."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems, "WebSocket")
        self._unanswered: list[Message] = []

    def receive(self, message: Message) -> None:
        if message["type"] == "websocket.receive":
            self._unanswered.append(message)

    def send(self, message: Message) -> None:
        if message["type"] != "websocket.send" or len(message["text"]) > MAX_CHECKED_BYTES:
            return
        event = orjson.loads(message["text"])
        if event["type"] == "error" and "sequence_number" not in event:
            self._unanswered.clear()
            self._check("SocketError", event, "a message")
            return
        if event["type"] == "response.created":
            if len(self._unanswered) == 1 and len(self._unanswered[0]["bytes"]) <= MAX_CHECKED_BYTES:
                self._check("SocketMessage", without_nulls(orjson.loads(self._unanswered[0]["bytes"])), "it accepted")
            self._unanswered.clear()
        self._check(_EVENT_SCHEMAS.get(event["type"], "ResponseEvent"), event, "a message")
