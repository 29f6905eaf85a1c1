"""The ASGI application of the gateway.

For an HTTP request, in this order: duplicate headers are refused, the route is matched, host and origin are checked,
the caller is authenticated, the request is counted against its limits, the body is read, the handler runs, a request
of an operator is recorded in the audit log, and the reply is written. A WebSocket goes through the same checks and then
belongs to its handler until it ends.

A counted request is cancelled when its client disconnects; so is every stream. When a caller is revoked, everything
that is open for it is cancelled and told so. While the gateway drains, new counted
requests are refused with 503, and replies close their connections. Every exception becomes a wire error here; only one
that is raised after a reply was started goes on to the server, which cuts the connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, aclosing, nullcontext, suppress
from functools import partial
from urllib.parse import parse_qsl

import orjson

from holodeck.gateway.api.route import BoundRoute, Route
from holodeck.gateway.audit.entry import Door
from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.auth.callers import Caller, Callers
from holodeck.gateway.auth.open_requests import OpenRequest, OpenRequests
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.asgi import (
    Message,
    Receive,
    Scope,
    Send,
    check_duplicate_headers,
    decode_headers,
    find_client_address,
)
from holodeck.gateway.http.errors import (
    APIError,
    client_gone_error,
    is_mcp_path,
    is_messages_path,
    key_revoked_error,
    mcp_error_reply,
    messages_error_reply,
    reply_for,
    shutting_down_error,
    unauthorized_error,
    websocket_error_event,
)
from holodeck.gateway.http.observation import (
    READY_PATH,
    UNKNOWN_ROUTE,
    Refusals,
    RequestScope,
    open_socket_span,
    request_id_of,
)
from holodeck.gateway.http.operator_requests import run_audited
from holodeck.gateway.http.replies import Reply, StreamCutError, StreamedReply
from holodeck.gateway.http.request import BodyReader, Handler, Request, RequestReservation, is_small_body
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.server.disconnect import CancelOnDisconnect, Client, find_client
from holodeck.gateway.server.sse_keepalive import SSEKeepAlive
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.wire.client_kind import ClientKind, detect_client_kind
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.limits import DEFAULT_REQUEST_SECONDS, KIB

SocketHandler = Callable[[Caller, ClientKind, Receive, Send, Callable[[], bool]], Awaitable[None]]
"""Serves one accepted WebSocket. The last argument says whether the gateway is draining."""

# A larger reply is counted in memory until it is read: asyncio's transports pause a writer above so many bytes.
BUFFERED_BYTES = 64 * KIB
# Of replies while the gateway drains: a client would otherwise reuse its connection, and be refused until it gives up.
_CLOSE_HEADERS = ((b"connection", b"close"),)
# Close code of RFC 6455 for a WebSocket whose client may not go on.
_POLICY_VIOLATION = 1008
_DOORS: Mapping[str, Door] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat_completions",
    "/v1/messages": "messages",
}
"""The APIs by their paths, for the audit log. That of MCP has one for each server."""
_NO_CALLER = Caller(id="")
"""Of public routes."""


class Gateway:
    """The ASGI application. It refuses at once what is over a limit, and never replies with a traceback."""

    def __init__(
        self,
        routes: list[BoundRoute],
        *,
        callers: Callers,
        caller_limits: CallerLimits,
        configurations: ConfigurationHolder,
        open_requests: OpenRequests,
        metrics: Metrics,
        refusals: Refusals,
        audit: AuditLog,
        budgets: Budgets,
        body_limit: int,
        budget: ByteBudget,
        body_seconds: float = DEFAULT_REQUEST_SECONDS,
        sockets: Mapping[str, SocketHandler] | None = None,
        mcp_challenge: Callable[[Mapping[str, str], str, str], str] | None = None,
    ) -> None:
        """`body_limit`: bytes of one body. `budget`: bytes of all bodies in memory.

        `body_seconds`: between two chunks of a body.
        `sockets`: the handlers of WebSockets by their paths. They need a key like every route that is not public.
        `mcp_challenge`: the `WWW-Authenticate` of a refused MCP client, by its headers, scheme and path.
        """
        self._mcp_challenge = mcp_challenge
        self.routes = [each.route for each in routes]
        self.sockets = sockets or {}
        self.is_draining = False
        self._callers = callers
        self._caller_limits = caller_limits
        self._configurations = configurations
        self._open_requests = open_requests
        self._metrics = metrics
        self._refusals = refusals
        self._audit = audit
        self._budgets = budgets
        self._budget = budget
        self._body_reader = BodyReader(
            limit=body_limit, budget=budget, seconds=body_seconds, is_draining=lambda: self.is_draining
        )
        self._routes_by_path = {
            (each.route.method, each.route.path): each for each in routes if "{" not in each.route.path
        }
        self._route_patterns = [(each, _compile_path_pattern(each.route)) for each in routes if "{" in each.route.path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve_http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._serve_websocket(scope, receive, send)

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = decode_headers(scope)
        with RequestScope(scope, headers, self._metrics) as request_scope:

            async def write(message: Message) -> None:
                if message["type"] == "http.response.start":
                    request_scope.status = message["status"]
                    message["headers"] = [
                        *message["headers"],
                        *_request_id_headers(scope["path"], request_scope.id),
                        *self._configurations.current.hosts.cors_headers(headers),
                        *(_CLOSE_HEADERS if self.is_draining else ()),
                    ]
                await send(message)

            try:
                with self._open_requests.track() as open_request:
                    await self._dispatch(scope, headers, receive, write, request_scope, open_request)
                if open_request.is_revoked:
                    _refuse_revoked(request_scope)
            # The boundary: every error becomes a wire error.
            except Exception as error:
                if request_scope.status:
                    raise
                await _write_reply(write, self._build_error_reply(error, scope, headers, request_scope))
            except asyncio.CancelledError:
                if not self.is_draining:
                    raise
                # A reply that was started just ends: raising would make the server log a traceback.
                if not request_scope.status:
                    reply = self._build_error_reply(shutting_down_error(), scope, headers, request_scope)
                    await _write_reply(write, reply)
            finally:
                self._body_reader.release(request_scope)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the handshake as every request is, and run the handler. A refusal is a plain HTTP reply."""
        headers = decode_headers(scope)
        request_id, path = request_id_of(headers), scope["path"]
        caller_id = ""
        await receive()  # websocket.connect
        with ExitStack() as stack:
            try:
                check_duplicate_headers(scope, headers)
                self._configurations.current.hosts.check(headers, scope["scheme"])
                handler = self._require_socket_handler(path)
                caller = await self._authenticate(headers, scope, request_id)
                caller_id = caller.id
                open_request = stack.enter_context(self._open_requests.track(caller.id))
                stack.enter_context(self._caller_limits.count_socket(caller))
            # The boundary, as for HTTP.
            except Exception as error:
                reply = reply_for(error, request_id)
                log.info("gateway.socket", path=path, status=reply.status, request=request_id)
                self._refusals.report(
                    reply.status,
                    orjson.loads(reply.body)["error"],
                    route=path if path in self.sockets else UNKNOWN_ROUTE,
                    caller_id=caller_id,
                    address=self._find_address(scope, headers),
                    request=request_id,
                )
                await _refuse_socket(send, reply, request_id)
                return
            await send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode())]})
            with log.scope(request=request_id, caller=caller.id), open_socket_span(headers, path, request_id):
                log.info("gateway.socket", path=path)
                await handler(caller, detect_client_kind(headers), receive, send, lambda: self.is_draining)
        if open_request.is_revoked:
            await _close_revoked_socket(send)

    async def _dispatch(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
        request_scope: RequestScope,
        open_request: OpenRequest,
    ) -> None:
        check_duplicate_headers(scope, headers)
        if scope["method"] == "OPTIONS":
            self._configurations.current.hosts.check(headers, scope["scheme"])
            await _write_reply(send, Reply(status=204))
            return
        found, path_params = self._match_route(scope["method"], scope["path"])
        route = found.route
        request_scope.route = route.path
        caller = _NO_CALLER
        # Probes come by address instead of host name, and public routes reveal nothing.
        if not route.is_public:
            self._configurations.current.hosts.check(headers, scope["scheme"])
            caller = await self._authorize(headers, route, scope, request_scope)
            open_request.caller_id = caller.id
        is_counted = route.is_counted and not route.is_public
        if self.is_draining and (is_counted or route.path == READY_PATH):
            raise shutting_down_error()
        client = find_client(scope)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"))) if scope["query_string"] else {}
        has_body = scope["method"] in {"POST", "PATCH"}
        # Counted before the body is read: otherwise any number of bodies could be in memory.
        counted: AbstractContextManager[None] = nullcontext()
        if is_counted:
            counted = self._caller_limits.count_request(caller)
        elif has_body and not is_small_body(headers):
            counted = self._caller_limits.count_transfer(caller)
        if route.is_paid:
            await self._budgets.check(caller.id)
        # A route of long requests counts their parts itself.
        uses = nullcontext() if route.counts_itself else self._configurations.current.uses
        with counted, uses, RequestReservation(self._budget) as reservation:
            body = await self._body_reader.read(receive, headers, client, request_scope) if has_body else b""
            reservation.acquire_parsed(body)
            request = Request(
                caller=caller,
                path_params=path_params,
                headers=headers,
                scheme=scope.get("scheme", "http"),
                query=query,
                reservation=reservation,
                body=body,
                client_kind=detect_client_kind(headers),
                id=request_scope.id,
            )
            handler = self._find_audited_handler(found, caller) if self._audit.is_enabled else found.handler
            if is_counted or route.counts_itself:
                reply = await _run_while_connected(handler(request), receive, client)
                await self._write_answer(reply, receive, send, client, open_request, nullcontext())
                return
            reply = await handler(request)
        await self._write_answer(reply, receive, send, client, open_request, self._caller_limits.count_transfer(caller))

    def _build_error_reply(
        self, error: BaseException, scope: Scope, headers: Mapping[str, str], request_scope: RequestScope
    ) -> Reply:
        """Build the reply for an error, in the form of the API that the path belongs to, and record the refusal."""
        reply = plain = reply_for(error, request_scope.id)
        path = scope["path"]
        if is_messages_path(path):
            reply = messages_error_reply(plain, request_scope.id)
        elif is_mcp_path(path) and self._mcp_challenge is not None:
            reply = mcp_error_reply(plain, self._mcp_challenge(headers, scope["scheme"], path))
        self._refusals.report(
            reply.status,
            orjson.loads(plain.body)["error"],
            route=request_scope.route,
            caller_id=request_scope.caller_id,
            address=self._find_address(scope, headers),
        )
        return reply

    def _find_address(self, scope: Scope, headers: Mapping[str, str]) -> str:
        return find_client_address(scope, headers, self._configurations.current.gateway.listen.trusted_proxies)

    def _find_audited_handler(self, found: BoundRoute, caller: Caller) -> Handler:
        """Return the handler of a route, which also records the request where it is one of an operator."""
        return partial(run_audited, self._audit, found) if found.route.is_audited_for(caller) else found.handler

    def _require_socket_handler(self, path: str) -> SocketHandler:
        if path not in self.sockets:
            raise APIError(404, f"Unknown request URL: WebSocket {path}.", kind="not_found", code="unknown_url")
        if self.is_draining:
            raise shutting_down_error()
        return self.sockets[path]

    async def _authenticate(self, headers: Mapping[str, str], scope: Scope, request_id: str) -> Caller:
        caller = await self._callers.authenticate(headers)
        if caller is None:
            raise self._record_refused_auth(unauthorized_error(), headers, scope, request_id)
        return caller

    async def _authorize(
        self, headers: Mapping[str, str], route: Route, scope: Scope, request_scope: RequestScope
    ) -> Caller:
        caller = await self._authenticate(headers, scope, request_scope.id)
        request_scope.caller_id = caller.id
        log.add_fields(caller=caller.id)
        if route.is_admin and not caller.is_admin:
            message = "This needs an operator's key, as 'holodeck keys create NAME --admin' makes."
            error = APIError(403, message, kind="invalid_request", code="forbidden")
            raise self._record_refused_auth(error, headers, scope, request_scope.id, caller.id)
        if route.is_unscoped and caller.scope.is_limited:
            message = "This is about all callers, and your key has a scope. It needs an operator's key without one."
            error = APIError(403, message, kind="invalid_request", code="forbidden")
            raise self._record_refused_auth(error, headers, scope, request_scope.id, caller.id)
        return caller

    def _record_refused_auth(
        self, error: APIError, headers: Mapping[str, str], scope: Scope, request_id: str, caller_id: str = ""
    ) -> APIError:
        """Record in the audit log that credentials are refused, and return the error."""
        if self._audit.is_enabled:
            self._audit.post_refused_auth(
                door="mcp" if is_mcp_path(scope["path"]) else _DOORS.get(scope["path"], "other"),
                request_id=request_id,
                error_code=error.code or "",
                caller=caller_id,
                address=self._find_address(scope, headers),
            )
        return error

    def _match_route(self, method: str, path: str) -> tuple[BoundRoute, Mapping[str, str]]:
        # The server leaves out the body of a reply to HEAD.
        sent_method, method = method, "GET" if method == "HEAD" else method
        found = self._routes_by_path.get((method, path))
        if found is not None:
            return found, {}
        allowed = {route.method for route in self.routes if route.path == path}
        for each, pattern in self._route_patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                if each.route.method == method:
                    return each, match.groupdict()
                allowed.add(each.route.method)
        if allowed:
            listed = ", ".join(sorted(allowed))
            message = f"{sent_method} is not allowed on {path}; {listed} is."
            raise APIError(405, message, kind="invalid_request", code="method_not_allowed", allow=listed)
        message = f"Unknown request URL: {sent_method} {path}. There are: {self._list_families()}."
        raise APIError(404, message, kind="not_found", code="unknown_url")

    def _list_families(self) -> str:
        """Return the APIs of this gateway by the beginnings of their paths, without what is below them."""
        paths = [route.path for route in self.routes if not route.is_public and not route.is_admin]
        return ", ".join(path for path in dict.fromkeys(paths) if not any(_is_below(path, each) for each in paths))

    async def _write_answer(
        self,
        reply: Reply | StreamedReply,
        receive: Receive,
        send: Send,
        client: Client | None,
        open_request: OpenRequest,
        stream_count: AbstractContextManager[None],
    ) -> None:
        """Write a reply. A stream is counted by `stream_count`, and closed in any case, also if it is not started."""
        if isinstance(reply, Reply):
            if client is not None:
                client.cork()
            if len(reply.body) <= BUFFERED_BYTES:
                await _write_reply(send, reply)
                return
            with Reservation(self._budget) as unread:
                unread.add_existing(len(reply.body))
                await _write_reply(send, reply, waits=True)
            return
        silent_seconds = self._configurations.current.gateway.limits.silent_seconds
        async with aclosing(reply):
            with stream_count:
                try:
                    await _write_stream(
                        send,
                        CancelOnDisconnect(receive, client),
                        reply,
                        SSEKeepAlive(send, silent_seconds, reply.keepalive),
                        client,
                    )
                except asyncio.CancelledError:
                    if open_request.is_revoked:
                        await _end_revoked_stream(send, reply, client)
                    raise


def _refuse_revoked(request_scope: RequestScope) -> None:
    """Raise `APIError` for a request that was cancelled before its reply was started. A stream has said so itself."""
    if not request_scope.status:
        raise key_revoked_error()


async def _run_while_connected(
    handler_call: Awaitable[Reply | StreamedReply], receive: Receive, client: Client | None
) -> Reply | StreamedReply:
    """Wait for a handler, and cancel it when the client disconnects."""
    reply: Reply | StreamedReply | None = None
    with CancelOnDisconnect(receive, client) as disconnect:
        reply = await handler_call
    if reply is not None and not disconnect.is_disconnected:
        return reply
    if isinstance(reply, StreamedReply):
        await reply.aclose()
    raise client_gone_error()


def _request_id_headers(path: str, request_id: str) -> list[tuple[bytes, bytes]]:
    """Return the headers with the id of a request. Anthropic's packages read it under another name."""
    value = request_id.encode()
    named = [(b"x-request-id", value)]
    return [*named, (b"request-id", value)] if is_messages_path(path) else named


async def _write_reply(send: Send, reply: Reply, *, waits: bool = False) -> None:
    """Write a reply. `waits`: until its client has read nearly all of it."""
    headers = [(b"content-type", reply.content_type.encode()), (b"content-length", str(len(reply.body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body, "more_body": waits})
    if waits:
        # The server sends nothing more before the connection has room again.
        await send({"type": "http.response.body", "body": b""})


async def _refuse_socket(send: Send, reply: Reply, request_id: str) -> None:
    """Answer a WebSocket handshake with an HTTP reply."""

    async def write(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
        await send({**message, "type": message["type"].replace("http.", "websocket.http.", 1)})

    await _write_reply(write, reply)


async def _write_stream(
    send: Send, disconnect: CancelOnDisconnect, reply: StreamedReply, keepalive: SSEKeepAlive, client: Client | None
) -> None:
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"cache-control", b"no-store"),
        # Without it nginx buffers events until it has a few kilobytes of them.
        (b"x-accel-buffering", b"no"),
    ]
    headers += [(name.encode(), value.encode()) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    # A disconnect cancels this block, and the run behind the chunks with it.
    with disconnect:
        try:
            await _write_chunks(send, reply, keepalive)
        except StreamCutError:
            # A server that is not ours cuts the connection of an application that fails.
            if client is None:
                raise
            client.cut_connection()
            # Waits for the disconnect, which cancels this block.
            await asyncio.Event().wait()


async def _end_revoked_stream(send: Send, reply: StreamedReply, client: Client | None) -> None:
    """Tell a client why its stream ends, or cut the connection where its API has no words for it."""
    if reply.encode_error is not None:
        await send({"type": "http.response.body", "body": reply.encode_error(key_revoked_error())})
    elif client is not None:
        client.cut_connection()


async def _close_revoked_socket(send: Send) -> None:
    # The client may have gone meanwhile.
    with suppress(OSError):
        await send({"type": "websocket.send", "text": websocket_error_event(key_revoked_error()).decode()})
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})


async def _write_chunks(send: Send, reply: StreamedReply, keepalive: SSEKeepAlive) -> None:
    with keepalive:
        async for chunk in reply.chunks:
            keepalive.chunks_sent += 1
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _is_below(path: str, other: str) -> bool:
    return path.startswith(f"{other}/")


def _compile_path_pattern(route: Route) -> re.Pattern[str]:
    part = ".+" if route.may_have_slashes else "[^/]+"
    return re.compile(re.sub(r"\{(\w+)\}", rf"(?P<\1>{part})", route.path))
