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

from holodeck.gateway.attending import Attended, Client, Receive, client_of
from holodeck.gateway.bodies import Bodies, is_small
from holodeck.gateway.callers import Caller, Callers
from holodeck.gateway.hosts import HostPolicy
from holodeck.gateway.metrics import Metrics
from holodeck.gateway.problems import WireError, client_gone, reply_for, shutting_down, unauthorized
from holodeck.gateway.rates import Rates
from holodeck.gateway.replies import CutOffError, Reply, Streamed
from holodeck.gateway.room import RequestReservation, Room
from holodeck.gateway.silence import Silence
from holodeck.gateway.visits import Visit, request_id, socket_span
from holodeck.gateway.wire.dialects import Dialect, dialect_of
from holodeck.lib import log
from holodeck.lib.bounded_json import TooDeepError, parse_json
from holodeck.lib.errors import BadRequestError
from holodeck.lib.limits import (
    DEFAULT_REQUEST_SECONDS,
    DEFAULT_SILENT_SECONDS,
)
from holodeck.lib.record import record

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@record
class Call:
    """A request on its way to its route."""

    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, str]
    reservation: RequestReservation
    body: bytes = b""
    dialect: Dialect = "openai"

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


Handler = Callable[[Call], Awaitable[Reply | Streamed]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """A method and a path with what answers it. `is_open` needs no key; `is_admin` needs an operator's."""

    method: str
    path: str
    handler: Handler
    is_open: bool = False
    is_admin: bool = False
    is_counted: bool = True
    """Whether it counts against the limits of its caller."""
    is_deep: bool = False
    """Whether what its path ends with may have slashes in it, as names of models have."""


READY = "/readyz"
"""What a load balancer asks; while we drain, the answer is no."""
_LEAVING = ((b"connection", b"close"),)
"""Else a client that has a connection would come back by it, and be refused until it gives up."""
_SINGLE = frozenset((b"host", b"origin", b"authorization", b"api-key", b"content-length", b"content-type"))
"""Headers that decide what a request may do, or where it ends."""
SocketHandler = Callable[[Caller, Dialect, Receive, Send, Callable[[], bool]], Awaitable[None]]


class Gateway:
    """An ASGI application. It refuses at once what it cannot take on, and never answers with a traceback."""

    def __init__(
        self,
        routes: list[Route],
        *,
        callers: Callers,
        rates: Rates,
        hosts: HostPolicy,
        metrics: Metrics,
        body_limit: int,
        room: Room,
        body_seconds: float = DEFAULT_REQUEST_SECONDS,
        silent_seconds: float = DEFAULT_SILENT_SECONDS,
        sockets: Mapping[str, SocketHandler] | None = None,
    ) -> None:
        """`room`: for all bodies at once.

        `sockets`: by their paths, what serves WebSockets. They need a key like every route.
        """
        self.routes = routes
        self.sockets = sockets or {}
        self.is_draining = False
        self._callers = callers
        self._rates = rates
        self._hosts = hosts
        self._metrics = metrics
        self._room = room
        self._bodies = Bodies(limit=body_limit, room=room, seconds=body_seconds, is_leaving=lambda: self.is_draining)
        self._silent_seconds = silent_seconds
        self._exact = {(route.method, route.path): route for route in routes if "{" not in route.path}
        self._patterns = [(route, _pattern(route)) for route in routes if "{" in route.path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        with Visit(scope, headers, self._metrics) as visit:

            async def write(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    visit.status = message["status"]
                    message["headers"] = [
                        *message["headers"],
                        (b"x-request-id", visit.id.encode()),
                        *self._hosts.cors(headers),
                        *(_LEAVING if self.is_draining else ()),
                    ]
                await send(message)

            try:
                await self._answer(scope, headers, receive, write, visit)
            except Exception as error:  # the boundary: whatever it was, the client gets a wire error
                if visit.status:
                    raise
                await _write_reply(write, reply_for(error, visit.id))
            except asyncio.CancelledError:
                if not self.is_draining:
                    raise
                if not visit.status:  # else there is nothing more to say, and an error would be told with a traceback
                    await _write_reply(write, reply_for(shutting_down(), visit.id))
            finally:
                self._bodies.give_back(visit)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The checks of every request, then the connection is its handler's. Refusals are plain HTTP answers."""
        headers = _headers(scope)
        request, path = request_id(headers), scope["path"]
        await receive()  # websocket.connect
        with ExitStack() as stack:
            try:
                _check_single(scope, headers)
                self._hosts.check(headers, scope["scheme"])
                handler, caller = self._socket(path), await self._known(headers)
                stack.enter_context(self._rates.socket(caller))
            except Exception as error:  # the boundary, as for HTTP
                reply = reply_for(error, request)
                log.info("gateway.socket", path=path, status=reply.status, request=request)
                await _refuse_socket(send, reply, request)
                return
            await send({"type": "websocket.accept", "headers": [(b"x-request-id", request.encode())]})
            with log.about(request=request, caller=caller.id), socket_span(headers, path, request):
                log.info("gateway.socket", path=path)
                await handler(caller, dialect_of(headers), receive, send, lambda: self.is_draining)

    async def _answer(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send, visit: Visit
    ) -> None:
        _check_single(scope, headers)
        if scope["method"] == "OPTIONS":
            self._hosts.check(headers, scope["scheme"])
            await _write_reply(send, Reply(status=204))
            return
        route, path = self._route(scope["method"], scope["path"])
        visit.route = route.path
        if not route.is_open:  # a probe comes by address, and learns nothing
            self._hosts.check(headers, scope["scheme"])
        caller = Caller(id="") if route.is_open else await self._admitted(headers, route)
        if caller.id:
            log.note(caller=caller.id)
        if self.is_draining and ((route.is_counted and not route.is_open) or route.path == READY):
            raise shutting_down()
        client = client_of(scope)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"))) if scope["query_string"] else {}
        has_body = scope["method"] in {"POST", "PATCH"}
        is_counted = route.is_counted and not route.is_open
        # A body counts from its first byte on: else any number of them could be held in memory.
        if is_counted:
            counted: AbstractContextManager[None] = self._rates.request(caller)
        else:
            counted = self._rates.beside(caller) if has_body and not is_small(headers) else nullcontext()
        with counted, RequestReservation(self._room) as reservation:
            body = await self._bodies.read(receive, headers, client, visit) if has_body else b""
            reservation.acquire_parsed(body)
            call = Call(
                caller=caller,
                path=path,
                query=query,
                reservation=reservation,
                body=body,
                dialect=dialect_of(headers),
            )
            if is_counted:
                await self._write(await _unless_gone(route.handler(call), receive, client), receive, send, client)
                return
            answer = await route.handler(call)
        with self._rates.beside(caller) if isinstance(answer, Streamed) else nullcontext():
            await self._write(answer, receive, send, client)

    def _socket(self, path: str) -> SocketHandler:
        if path not in self.sockets:
            raise WireError(404, f"Unknown request URL: WebSocket {path}.", kind="not_found", code="unknown_url")
        if self.is_draining:
            raise shutting_down()
        return self.sockets[path]

    async def _known(self, headers: Mapping[str, str]) -> Caller:
        caller = await self._callers.caller(headers)
        if caller is None:
            raise unauthorized()
        return caller

    async def _admitted(self, headers: Mapping[str, str], route: Route) -> Caller:
        caller = await self._known(headers)
        if route.is_admin and not caller.is_admin:
            message = "This needs an operator's key, as 'holodeck keys create NAME --admin' makes."
            raise WireError(403, message, kind="invalid_request", code="forbidden")
        return caller

    def _route(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        asked, method = method, "GET" if method == "HEAD" else method  # the server leaves the body out
        found = self._exact.get((method, path))
        if found is not None:
            return found, {}
        allowed = {route.method for route in self.routes if route.path == path}
        for route, pattern in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                if route.method == method:
                    return route, match.groupdict()
                allowed.add(route.method)
        if allowed:
            listed = ", ".join(sorted(allowed))
            message = f"{asked} is not allowed on {path}; {listed} is."
            raise WireError(405, message, kind="invalid_request", code="method_not_allowed", allow=listed)
        raise WireError(404, f"Unknown request URL: {asked} {path}.", kind="not_found", code="unknown_url")

    async def _write(self, answer: Reply | Streamed, receive: Receive, send: Send, client: Client | None) -> None:
        if isinstance(answer, Reply):
            if client is not None:
                client.hold()
            await _write_reply(send, answer)
        else:
            await _write_stream(send, Attended(receive, client), answer, Silence(send, self._silent_seconds), client)


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _check_single(scope: Scope, headers: Mapping[str, str]) -> None:
    """Raise for a header that is there twice and must not be: a proxy may have heeded the other one."""
    if len(headers) == len(scope["headers"]):
        return
    for name, count in Counter(name for name, _ in scope["headers"]).items():
        if count > 1 and name in _SINGLE:
            message = f"The header '{name.decode()}' is there {count} times. Send it once."
            raise WireError(400, message, kind="invalid_request", code="duplicate_header")


async def _unless_gone(work: Awaitable[Reply | Streamed], receive: Receive, client: Client | None) -> Reply | Streamed:
    """Wait for an answer, but not longer than somebody waits for it."""
    answer: Reply | Streamed | None = None
    with Attended(receive, client) as attended:
        answer = await work
    if attended.is_gone or answer is None:
        raise client_gone()
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
    send: Send, attended: Attended, answer: Streamed, silence: Silence, client: Client | None
) -> None:
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),  # else nginx collects events until it has a few kilobytes of them
    ]
    headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    with attended:  # leaving it early closes the pieces, and with them the run behind them
        try:
            await _write_pieces(send, answer, silence)
        except CutOffError:
            if client is None:  # a server that is not ours cuts what fails
                raise
            client.cut()
            await asyncio.Event().wait()  # until it is gone, and this block is left


async def _write_pieces(send: Send, answer: Streamed, silence: Silence) -> None:
    async with aclosing(answer.pieces) as pieces:
        with silence:
            async for piece in pieces:
                silence.pieces += 1
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _pattern(route: Route) -> re.Pattern[str]:
    part = ".+" if route.is_deep else "[^/]+"
    return re.compile(re.sub(r"\{(\w+)\}", rf"(?P<\1>{part})", route.path))
