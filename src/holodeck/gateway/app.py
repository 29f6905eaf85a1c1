"""The HTTP surface: who asks, whether they may, which route it is, and the answer written down."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, ExitStack, aclosing, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from holodeck.gateway.auth.callers import Caller, Callers
from holodeck.gateway.auth.hosts import HostPolicy
from holodeck.gateway.http.errors import APIError, client_gone_error, reply_for, shutting_down_error, unauthorized_error
from holodeck.gateway.http.replies import Reply, StreamCutError, StreamedReply
from holodeck.gateway.http.request_body import BodyReader, GatewayBudget, RequestReservation, is_small_body
from holodeck.gateway.http.request_scope import RequestScope, open_socket_span, request_id_of
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.metrics import Metrics
from holodeck.gateway.server.disconnect import CancelOnDisconnect, Client, Receive, find_client
from holodeck.gateway.server.sse_keepalive import SSEKeepAlive
from holodeck.gateway.wire.client_kind import ClientKind, detect_client_kind
from holodeck.lib import log
from holodeck.lib.errors import BadRequestError
from holodeck.lib.json.parse import TooDeepError, parse_json
from holodeck.lib.limits import (
    DEFAULT_REQUEST_SECONDS,
    DEFAULT_SILENT_SECONDS,
)
from holodeck.lib.types import record

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@record
class Request:
    """A request on its way to its route."""

    caller: Caller
    path_params: Mapping[str, str]
    query: Mapping[str, str]
    reservation: RequestReservation
    body: bytes = b""
    client_kind: ClientKind = "openai"

    def json(self) -> Any:
        """The body as data. Raises the 400 of a body that is none.

        Not in a thread: the parser holds the interpreter, and a thread would hold the loop up as long (32 MB: 0.2 to
        0.4 s). 'limits.body_bytes' bounds it.
        """
        try:
            return parse_json(self.body)
        except TooDeepError as error:
            raise BadRequestError(f"The body is {error}.", code="invalid_json") from None
        except ValueError:
            raise BadRequestError("The body is not valid JSON.", code="invalid_json") from None


Handler = Callable[[Request], Awaitable[Reply | StreamedReply]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """A method and a path with what answers it. `is_public` needs no key; `is_admin` needs an operator's."""

    method: str
    path: str
    handler: Handler
    is_public: bool = False
    is_admin: bool = False
    is_counted: bool = True
    """Whether it counts against the limits of its caller."""
    may_have_slashes: bool = False
    """Whether what its path ends with may have slashes in it, as names of models have."""


READY_PATH = "/readyz"
"""What a load balancer asks; while we drain, the answer is no."""
_CLOSE_HEADERS = ((b"connection", b"close"),)
"""Else a client that has a connection would come back by it, and be refused until it gives up."""
_SINGLE_HEADERS = frozenset((b"host", b"origin", b"authorization", b"api-key", b"content-length", b"content-type"))
"""Headers that decide what a request may do, or where it ends."""
SocketHandler = Callable[[Caller, ClientKind, Receive, Send, Callable[[], bool]], Awaitable[None]]


class Gateway:
    """An ASGI application. It refuses at once what it cannot take on, and never answers with a traceback."""

    def __init__(
        self,
        routes: list[Route],
        *,
        callers: Callers,
        caller_limits: CallerLimits,
        hosts: HostPolicy,
        metrics: Metrics,
        body_limit: int,
        budget: GatewayBudget,
        body_seconds: float = DEFAULT_REQUEST_SECONDS,
        silent_seconds: float = DEFAULT_SILENT_SECONDS,
        sockets: Mapping[str, SocketHandler] | None = None,
    ) -> None:
        """`budget`: for all bodies at once.

        `sockets`: by their paths, what serves WebSockets. They need a key like every route.
        """
        self.routes = routes
        self.sockets = sockets or {}
        self.is_draining = False
        self._callers = callers
        self._caller_limits = caller_limits
        self._hosts = hosts
        self._metrics = metrics
        self._budget = budget
        self._body_reader = BodyReader(
            limit=body_limit, budget=budget, seconds=body_seconds, is_draining=lambda: self.is_draining
        )
        self._silent_seconds = silent_seconds
        self._routes_by_path = {(route.method, route.path): route for route in routes if "{" not in route.path}
        self._route_patterns = [(route, _compile_path_pattern(route)) for route in routes if "{" in route.path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve_http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send)

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _decode_headers(scope)
        with RequestScope(scope, headers, self._metrics) as visit:

            async def write(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    visit.status = message["status"]
                    message["headers"] = [
                        *message["headers"],
                        (b"x-request-id", visit.id.encode()),
                        *self._hosts.cors_headers(headers),
                        *(_CLOSE_HEADERS if self.is_draining else ()),
                    ]
                await send(message)

            try:
                await self._dispatch(scope, headers, receive, write, visit)
            except Exception as error:  # the boundary: whatever it was, the client gets a wire error
                if visit.status:
                    raise
                await _write_reply(write, reply_for(error, visit.id))
            except asyncio.CancelledError:
                if not self.is_draining:
                    raise
                if not visit.status:  # else there is nothing more to say, and an error would be told with a traceback
                    await _write_reply(write, reply_for(shutting_down_error(), visit.id))
            finally:
                self._body_reader.release(visit)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The checks of every request, then the connection is its handler's. Refusals are plain HTTP answers."""
        headers = _decode_headers(scope)
        request, path = request_id_of(headers), scope["path"]
        await receive()  # websocket.connect
        with ExitStack() as stack:
            try:
                _check_duplicate_headers(scope, headers)
                self._hosts.check(headers, scope["scheme"])
                handler, caller = self._require_socket_handler(path), await self._authenticate(headers)
                stack.enter_context(self._caller_limits.count_socket(caller))
            except Exception as error:  # the boundary, as for HTTP
                reply = reply_for(error, request)
                log.info("gateway.socket", path=path, status=reply.status, request=request)
                await _refuse_socket(send, reply, request)
                return
            await send({"type": "websocket.accept", "headers": [(b"x-request-id", request.encode())]})
            with log.scope(request=request, caller=caller.id), open_socket_span(headers, path, request):
                log.info("gateway.socket", path=path)
                await handler(caller, detect_client_kind(headers), receive, send, lambda: self.is_draining)

    async def _dispatch(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send, request_scope: RequestScope
    ) -> None:
        _check_duplicate_headers(scope, headers)
        if scope["method"] == "OPTIONS":
            self._hosts.check(headers, scope["scheme"])
            await _write_reply(send, Reply(status=204))
            return
        route, path = self._match_route(scope["method"], scope["path"])
        request_scope.route = route.path
        if not route.is_public:  # a probe comes by address, and learns nothing
            self._hosts.check(headers, scope["scheme"])
        caller = Caller(id="") if route.is_public else await self._authorize(headers, route)
        if caller.id:
            log.add_fields(caller=caller.id)
        if self.is_draining and ((route.is_counted and not route.is_public) or route.path == READY_PATH):
            raise shutting_down_error()
        client = find_client(scope)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"))) if scope["query_string"] else {}
        has_body = scope["method"] in {"POST", "PATCH"}
        is_counted = route.is_counted and not route.is_public
        # A body counts from its first byte on: else any number of them could be held in memory.
        if is_counted:
            counted: AbstractContextManager[None] = self._caller_limits.count_request(caller)
        else:
            counted = (
                self._caller_limits.count_transfer(caller) if has_body and not is_small_body(headers) else nullcontext()
            )
        with counted, RequestReservation(self._budget) as reservation:
            body = await self._body_reader.read(receive, headers, client, request_scope) if has_body else b""
            reservation.acquire_parsed(body)
            call = Request(
                caller=caller,
                path_params=path,
                query=query,
                reservation=reservation,
                body=body,
                client_kind=detect_client_kind(headers),
            )
            if is_counted:
                await self._write_answer(
                    await _run_while_connected(route.handler(call), receive, client), receive, send, client
                )
                return
            answer = await route.handler(call)
        with self._caller_limits.count_transfer(caller) if isinstance(answer, StreamedReply) else nullcontext():
            await self._write_answer(answer, receive, send, client)

    def _require_socket_handler(self, path: str) -> SocketHandler:
        if path not in self.sockets:
            raise APIError(404, f"Unknown request URL: WebSocket {path}.", kind="not_found", code="unknown_url")
        if self.is_draining:
            raise shutting_down_error()
        return self.sockets[path]

    async def _authenticate(self, headers: Mapping[str, str]) -> Caller:
        caller = await self._callers.authenticate(headers)
        if caller is None:
            raise unauthorized_error()
        return caller

    async def _authorize(self, headers: Mapping[str, str], route: Route) -> Caller:
        caller = await self._authenticate(headers)
        if route.is_admin and not caller.is_admin:
            message = "This needs an operator's key, as 'holodeck keys create NAME --admin' makes."
            raise APIError(403, message, kind="invalid_request", code="forbidden")
        return caller

    def _match_route(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        asked, method = method, "GET" if method == "HEAD" else method  # the server leaves the body out
        found = self._routes_by_path.get((method, path))
        if found is not None:
            return found, {}
        allowed = {route.method for route in self.routes if route.path == path}
        for route, pattern in self._route_patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                if route.method == method:
                    return route, match.groupdict()
                allowed.add(route.method)
        if allowed:
            listed = ", ".join(sorted(allowed))
            message = f"{asked} is not allowed on {path}; {listed} is."
            raise APIError(405, message, kind="invalid_request", code="method_not_allowed", allow=listed)
        raise APIError(404, f"Unknown request URL: {asked} {path}.", kind="not_found", code="unknown_url")

    async def _write_answer(
        self, answer: Reply | StreamedReply, receive: Receive, send: Send, client: Client | None
    ) -> None:
        if isinstance(answer, Reply):
            if client is not None:
                client.cork()
            await _write_reply(send, answer)
        else:
            await _write_stream(
                send, CancelOnDisconnect(receive, client), answer, SSEKeepAlive(send, self._silent_seconds), client
            )


def _decode_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _check_duplicate_headers(scope: Scope, headers: Mapping[str, str]) -> None:
    """Raise for a header that is there twice and must not be: a proxy may have heeded the other one."""
    if len(headers) == len(scope["headers"]):
        return
    for name, count in Counter(name for name, _ in scope["headers"]).items():
        if count > 1 and name in _SINGLE_HEADERS:
            message = f"The header '{name.decode()}' is there {count} times. Send it once."
            raise APIError(400, message, kind="invalid_request", code="duplicate_header")


async def _run_while_connected(
    handler_call: Awaitable[Reply | StreamedReply], receive: Receive, client: Client | None
) -> Reply | StreamedReply:
    """Wait for an answer, but not longer than somebody waits for it."""
    answer: Reply | StreamedReply | None = None
    with CancelOnDisconnect(receive, client) as attended:
        answer = await handler_call
    if attended.is_disconnected or answer is None:
        raise client_gone_error()
    return answer


async def _write_reply(send: Send, reply: Reply) -> None:
    headers = [(b"content-type", reply.content_type.encode()), (b"content-length", str(len(reply.body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _refuse_socket(send: Send, reply: Reply, request: str) -> None:
    """Say no before there is a WebSocket."""

    async def write(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"x-request-id", request.encode())]
        await send({**message, "type": message["type"].replace("http.", "websocket.http.", 1)})

    await _write_reply(write, reply)


async def _write_stream(
    send: Send, disconnect: CancelOnDisconnect, answer: StreamedReply, keepalive: SSEKeepAlive, client: Client | None
) -> None:
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),  # else nginx collects events until it has a few kilobytes of them
    ]
    headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    with disconnect:  # leaving it early closes the pieces, and with them the run behind them
        try:
            await _write_chunks(send, answer, keepalive)
        except StreamCutError:
            if client is None:  # a server that is not ours cuts what fails
                raise
            client.cut_connection()
            await asyncio.Event().wait()  # until it is gone, and this block is left


async def _write_chunks(send: Send, answer: StreamedReply, keepalive: SSEKeepAlive) -> None:
    async with aclosing(answer.chunks) as pieces:
        with keepalive:
            async for piece in pieces:
                keepalive.chunks_sent += 1
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _compile_path_pattern(route: Route) -> re.Pattern[str]:
    part = ".+" if route.may_have_slashes else "[^/]+"
    return re.compile(re.sub(r"\{(\w+)\}", rf"(?P<\1>{part})", route.path))
