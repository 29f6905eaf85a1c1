"""The application of the gateway: `HTTPProtocol` calls `serve_http` for each request.

For an HTTP request, in this order: duplicate headers are refused, the route is matched, host and origin are checked,
the caller is authenticated, the request is counted against its limits, the body is read, the handler runs, a request
of an operator is recorded in the audit log, and the reply is written. A WebSocket goes through the same checks and then
belongs to its handler until it ends.

A counted request is cancelled when its client disconnects; so is every stream. When a caller is revoked, everything
that is open for it is cancelled and told so. While the gateway drains, new counted
requests are refused with 503, and replies close their connections. Every exception becomes a wire error here; one that
is raised after a reply was started is logged, and the connection is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, aclosing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qsl

import orjson

from holodeck.gateway.api.route import BoundRoute, Route
from holodeck.gateway.audit.entry import Door
from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.auth.callers import Caller, Callers
from holodeck.gateway.auth.open_requests import OpenRequests, OpenSocket
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.asgi import (
    Receive,
    Scope,
    Send,
    check_duplicate_headers,
    find_client_address,
    find_scheme,
)
from holodeck.gateway.http.errors import (
    MESSAGES_PATH,
    APIError,
    check_role,
    client_gone_error,
    is_mcp_path,
    is_messages_path,
    key_revoked_error,
    mcp_error_reply,
    messages_error_reply,
    refused_key_error,
    reply_for,
    shutting_down_error,
    websocket_error_event,
)
from holodeck.gateway.http.observation import (
    READY_PATH,
    UNKNOWN_ROUTE,
    Refusals,
    describe_span,
    observe_end,
    open_request_span,
    open_socket_span,
    request_id_of,
)
from holodeck.gateway.http.operator_requests import run_audited
from holodeck.gateway.http.replies import Reply, StreamCutError, StreamedReply
from holodeck.gateway.http.request import BodyReader, Handler, Request, RequestReservation, is_small_body
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.server.admission import LARGE_BODY_BYTES, Admission
from holodeck.gateway.server.served_request import ServedRequest
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.wire.client_kind import ClientKind, detect_client_kind
from holodeck.lib import log, tracing
from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.limits import DEFAULT_REQUEST_SECONDS, KIB

SocketHandler = Callable[[Caller, ClientKind, Receive, Send, Callable[[], bool]], Awaitable[None]]
"""Serves one accepted WebSocket. The last argument says whether the gateway is draining."""

# What a request takes beside its body, with its run: after many of them, memory is returned as after large bodies.
REQUEST_BYTES = 32 * KIB
# A larger reply is counted in memory until it is read: asyncio's transports pause a writer above so many bytes.
BUFFERED_BYTES = 64 * KIB
# They change nothing, so that a page of another site may cause them; it cannot read the replies.
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_BODY_METHODS = frozenset({"POST", "PATCH"})
_NO_PARAMS: Mapping[str, str] = {}
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
    """The application. It refuses at once what is over a limit, and never replies with a traceback."""

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
        admission: Admission,
        body_seconds: float = DEFAULT_REQUEST_SECONDS,
        sockets: Mapping[str, SocketHandler] | None = None,
        mcp_challenge: Callable[[Mapping[str, str], str, str], str] | None = None,
    ) -> None:
        """`body_limit`: bytes of one body. `budget`: of all bodies in memory. `admission`: gives large ones turns.

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
        self._admission = admission
        self._body_reader = BodyReader(
            limit=body_limit, budget=budget, seconds=body_seconds, is_draining=lambda: self.is_draining
        )
        self._routes_by_path = {
            (each.route.method, each.route.path): each for each in routes if "{" not in each.route.path
        }
        self._route_patterns = [(each, each.route.compile_path()) for each in routes if "{" in each.route.path]

    async def serve_http(self, request: ServedRequest) -> None:
        """Answer one HTTP request, whatever happens. Runs in the task of the request."""
        request.id = request_id_of(request.headers)
        fields: dict[str, object] = {"request": request.id}
        log.set_scope(fields)
        self._open_requests.add(request)
        trace = self._open_trace(request) if tracing.tracers else None
        try:
            await self._dispatch(request, fields)
        # The boundary: every error becomes a wire error.
        except Exception as error:
            self._end_early(request, error)
        except asyncio.CancelledError:
            cause = self._find_cause(request)
            self._end_early(request, cause)
            if cause is None:
                raise
        finally:
            self._open_requests.discard(request)
            self._budget.available += request.body_bytes
            self._budget.released += request.body_bytes + REQUEST_BYTES
            observe_end(request, self._metrics)
            if trace is not None:
                trace.close()
            # Tasks that go on log without them.
            fields.clear()

    def _open_trace(self, request: ServedRequest) -> ExitStack:
        """Open the trace span of a request, which is described when it is closed."""
        stack = ExitStack()
        span = stack.enter_context(open_request_span(request, request.headers, self._find_scheme(request)))
        stack.callback(describe_span, span, request)
        return stack

    def _find_scheme(self, request: ServedRequest) -> str:
        proxies = self._configurations.current.gateway.listen.trusted_proxies
        return find_scheme(request.client_address, request.headers, proxies)

    def _find_cause(self, request: ServedRequest) -> APIError | None:
        """Return why a request was cancelled. None: the server ends."""
        if request.is_revoked:
            return key_revoked_error()
        if request.is_disconnected:
            return client_gone_error()
        return shutting_down_error() if self.is_draining else None

    def _end_early(self, request: ServedRequest, error: BaseException | None) -> None:
        """Answer with an error, or cut the connection where a reply was started. A stream may have ended itself."""
        if error is not None and not request.status:
            self._write_reply(request, self._build_error_reply(error, request))
            return
        if error is not None:
            # Logs what is not the client's.
            reply_for(error, request.id)
        if not request.is_answered:
            request.cut_connection()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket, as uvicorn's protocol calls it.

        The handshake is checked as every request is. A refusal is a plain HTTP reply.
        """
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request_id, path = request_id_of(headers), scope["path"]
        address = str((scope.get("client") or ("",))[0])
        caller_id = ""
        await receive()  # websocket.connect
        with ExitStack() as stack:
            try:
                check_duplicate_headers(scope["headers"])
                self._configurations.current.hosts.check(headers)
                handler = self._require_socket_handler(path)
                caller = await self._authenticate(headers, path, address, request_id)
                caller_id = caller.id
                if caller.is_from_browser:
                    self._configurations.current.hosts.check_same_origin(headers)
                check_role(caller)
                stack.enter_context(self._caller_limits.count_socket(caller))
                open_socket = OpenSocket(caller)
                self._open_requests.add(open_socket)
                stack.callback(self._open_requests.discard, open_socket)
            # The boundary, as for HTTP.
            except Exception as error:
                reply = reply_for(error, request_id)
                log.info("gateway.socket", path=path, status=reply.status, request=request_id)
                self._refusals.report(
                    reply.status,
                    orjson.loads(reply.body)["error"],
                    route=path if path in self.sockets else UNKNOWN_ROUTE,
                    caller_id=caller_id,
                    address=self._find_address(address, headers),
                    request=request_id,
                )
                await _refuse_socket(send, reply, request_id)
                return
            await send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode())]})
            with log.scope(request=request_id, caller=caller.id), open_socket_span(headers, path, request_id):
                log.info("gateway.socket", path=path)
                try:
                    await handler(caller, detect_client_kind(headers), receive, send, lambda: self.is_draining)
                except asyncio.CancelledError:
                    if not open_socket.is_revoked or open_socket.task.uncancel():
                        raise
        if open_socket.is_revoked:
            await _close_revoked_socket(send)

    async def _dispatch(self, request: ServedRequest, fields: dict[str, object]) -> None:
        headers, method = request.headers, request.method
        if len(headers) != len(request.header_items):
            check_duplicate_headers(request.header_items)
        configuration = self._configurations.current
        if method == "OPTIONS":
            configuration.hosts.check(headers)
            self._write_reply(request, Reply(status=204))
            return
        # The server leaves out the body of a reply to HEAD.
        found = self._routes_by_path.get(("GET" if method == "HEAD" else method, request.path))
        found, path_params = self._match_route(method, request.path) if found is None else (found, _NO_PARAMS)
        route = found.route
        request.route = route.path
        caller = _NO_CALLER
        # Probes come by address instead of host name, and public routes reveal nothing.
        if not route.is_public:
            configuration.hosts.check(headers)
            caller = await self._authenticate(headers, request.path, request.client_address, request.id)
            request.caller_id = fields["caller"] = caller.id
            request.session_id = caller.session_id
            if caller.is_from_browser and method not in _SAFE_METHODS:
                configuration.hosts.check_same_origin(headers)
            if route.roles or caller.role == "metrics":
                self._check_role(route, caller, request)
        is_counted = route.is_counted and not route.is_public
        if self.is_draining and (is_counted or route.path == READY_PATH):
            raise shutting_down_error()
        if route.is_paid:
            await self._budgets.check(caller)
        if is_counted:
            # Before the body is read: otherwise any number of bodies could be in memory.
            self._caller_limits.start_request(caller)
            try:
                await self._run(request, found, caller, path_params, is_long=True)
            finally:
                self._caller_limits.release(caller.id)
            return
        with self._count_upload(request, caller):
            reply = await self._run(request, found, caller, path_params, is_long=route.counts_itself)
        if reply is not None:
            await self._write_answer(request, reply, self._caller_limits.count_transfer(caller))

    def _count_upload(self, request: ServedRequest, caller: Caller) -> AbstractContextManager[None]:
        """Count an uncounted request as a transfer if its body is not small."""
        if request.method not in _BODY_METHODS or is_small_body(request.headers):
            return nullcontext()
        return self._caller_limits.count_transfer(caller)

    async def _run(
        self,
        request: ServedRequest,
        found: BoundRoute,
        caller: Caller,
        path_params: Mapping[str, str],
        *,
        is_long: bool,
    ) -> Reply | StreamedReply | None:
        """Read the body of a request and run its handler. Returns its reply; one to a long request is written here.

        A long request ends when its client disconnects.
        """
        query = dict(parse_qsl(request.query_string.decode("latin-1"))) if request.query_string else {}
        # A route of long requests counts their parts itself.
        uses = None if found.route.counts_itself else self._configurations.current.uses
        reservation = RequestReservation(self._budget)
        if uses is not None:
            uses.acquire()
        try:
            body = b""
            if request.method in _BODY_METHODS:
                body = await self._body_reader.read(request, is_form=found.route.takes_form)
                if len(body) > LARGE_BODY_BYTES:
                    await self._admission.wait_large_turn()
                reservation.acquire_parsed(body)
            handler = self._find_audited_handler(found, caller) if self._audit.is_enabled else found.handler
            handled = handler(
                Request(
                    caller=caller,
                    path_params=path_params,
                    headers=request.headers,
                    query=query,
                    reservation=reservation,
                    body=body,
                    client_kind=detect_client_kind(request.headers),
                    id=request.id,
                    scheme="http" if "x-forwarded-proto" not in request.headers else self._find_scheme(request),
                )
            )
            if not is_long:
                return await handled
            request.cancel_on_disconnect()
            reply = await handled
            rates = caller.limits or self._caller_limits.default
            if found.route.is_paid and (rates.requests_per_minute or rates.tokens_per_minute):
                reply = replace(reply, headers={**reply.headers, **self._caller_limits.build_headers(caller)})
            await self._write_answer(request, reply, nullcontext())
            return None
        finally:
            reservation.release()
            if uses is not None:
                uses.release()

    def _build_error_reply(self, error: BaseException, request: ServedRequest) -> Reply:
        """Build the reply for an error, in the form of the API that the path belongs to, and record the refusal."""
        reply = plain = reply_for(error, request.id)
        path = request.path
        if is_messages_path(path):
            reply = messages_error_reply(plain, request.id)
        elif is_mcp_path(path) and self._mcp_challenge is not None:
            reply = mcp_error_reply(plain, self._mcp_challenge(request.headers, "http", path))
        self._refusals.report(
            reply.status,
            orjson.loads(plain.body)["error"],
            route=request.route,
            caller_id=request.caller_id,
            address=self._find_address(request.client_address, request.headers),
        )
        return reply

    def _find_address(self, address: str, headers: Mapping[str, str]) -> str:
        return find_client_address(address, headers, self._configurations.current.gateway.listen.trusted_proxies)

    def _find_audited_handler(self, found: BoundRoute, caller: Caller) -> Handler:
        """Return the handler of a route, which also records the request where it is one of an operator."""
        return partial(run_audited, self._audit, found) if found.route.is_audited_for(caller) else found.handler

    def _require_socket_handler(self, path: str) -> SocketHandler:
        if path not in self.sockets:
            raise APIError(404, f"Unknown request URL: WebSocket {path}.", kind="not_found", code="unknown_url")
        if self.is_draining:
            raise shutting_down_error()
        return self.sockets[path]

    async def _authenticate(self, headers: Mapping[str, str], path: str, address: str, request_id: str) -> Caller:
        caller = await self._callers.authenticate(headers, address)
        if caller is None or not f"{path}/".startswith(f"{caller.only_path}/" if caller.only_path else ""):
            error = refused_key_error(await self._callers.explain_refusal(headers, address))
            self._record_refused_auth(error, path, self._find_address(address, headers), request_id)
            jwt = self._configurations.current.gateway.jwt
            if jwt is not None and jwt.login is not None:
                # Tells the console that it may offer a login, relative to its page.
                error.headers["x-holodeck-login"] = "v1/login"
            raise error
        return caller

    def _check_role(self, route: Route, caller: Caller, request: ServedRequest) -> None:
        """Raise `APIError` where a route is for other roles than the caller's, or for callers without a scope."""
        try:
            if route.checks_caller:
                check_role(caller)
            else:
                check_role(caller, route.roles, is_unscoped=route.is_unscoped)
        except APIError as error:
            address = self._find_address(request.client_address, request.headers)
            self._record_refused_auth(error, request.path, address, request.id, caller.id)
            raise

    def _record_refused_auth(
        self, error: APIError, path: str, address: str, request_id: str, caller_id: str = ""
    ) -> None:
        """Record in the audit log that credentials are refused."""
        if self._audit.is_enabled:
            self._audit.post_refused_auth(
                door="mcp" if is_mcp_path(path) else _DOORS.get(path, "other"),
                request_id=request_id,
                error_code=error.code or "",
                caller=caller_id,
                address=address,
            )

    def _match_route(self, sent_method: str, path: str) -> tuple[BoundRoute, Mapping[str, str]]:
        """Find the route of a path with parameters. Raises `APIError` for a path or a method that there is not."""
        method = "GET" if sent_method == "HEAD" else sent_method
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
        paths = [each.path for each in self.routes if not each.is_public and not each.roles and "{" not in each.path]
        return ", ".join(path for path in dict.fromkeys(paths) if not any(_is_below(path, each) for each in paths))

    async def _write_answer(
        self, request: ServedRequest, reply: Reply | StreamedReply, stream_count: AbstractContextManager[None]
    ) -> None:
        """Write a reply. A stream is counted by `stream_count`, and closed in any case, also if it is not started."""
        if isinstance(reply, StreamedReply):
            async with aclosing(reply):
                with stream_count:
                    await self._write_stream(request, reply)
        elif len(reply.body) <= BUFFERED_BYTES:
            self._write_reply(request, reply)
        else:
            with Reservation(self._budget) as unread:
                unread.add_existing(len(reply.body))
                self._write_reply(request, reply, is_last=False)
                await request.drain()
                request.finish()

    def _write_reply(self, request: ServedRequest, reply: Reply, *, is_last: bool = True) -> None:
        """Write a whole reply. `is_last`: end it as well."""
        headers = {"content-type": reply.content_type, "content-length": str(len(reply.body)), **reply.headers}
        self._add_headers(headers, request)
        request.write_reply(reply.status, headers, reply.body, is_last=is_last)

    async def _write_stream(self, request: ServedRequest, reply: StreamedReply) -> None:
        headers = {
            "content-type": reply.content_type,
            "cache-control": "no-store",
            # Without it nginx buffers events until it has a few kilobytes of them.
            "x-accel-buffering": "no",
            **reply.headers,
        }
        self._add_headers(headers, request)
        # A disconnect cancels this, and the run behind the chunks with it.
        request.cancel_on_disconnect()
        request.start_stream(200, headers)
        silent_seconds = self._configurations.current.gateway.limits.silent_seconds
        try:
            await request.write_all(reply.chunks, silent_seconds, reply.keepalive)
        except StreamCutError:
            request.cut_connection()
        except asyncio.CancelledError:
            # Tell the client why its stream ends, where its API has words for it.
            if request.is_revoked and reply.encode_error is not None:
                request.write(reply.encode_error(key_revoked_error()))
                request.finish()
            raise
        else:
            request.finish()

    def _add_headers(self, headers: dict[str, str], request: ServedRequest) -> None:
        """Add the headers that every reply has."""
        headers["x-request-id"] = request.id
        if request.path.startswith(MESSAGES_PATH) and is_messages_path(request.path):
            # Anthropic's packages read it under another name.
            headers["request-id"] = request.id
        if "origin" in request.headers:
            headers |= self._configurations.current.hosts.cors_headers(request.headers)
        if self.is_draining:
            # A client would otherwise reuse its connection, and be refused until it gives up.
            request.keep_alive = False


async def _refuse_socket(send: Send, reply: Reply, request_id: str) -> None:
    """Answer a WebSocket handshake with an HTTP reply."""
    headers = {"content-type": reply.content_type, "content-length": str(len(reply.body)), **reply.headers}
    headers["x-request-id"] = request_id
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": encoded})
    await send({"type": "websocket.http.response.body", "body": reply.body})


async def _close_revoked_socket(send: Send) -> None:
    # The client may have gone meanwhile.
    with suppress(OSError):
        await send({"type": "websocket.send", "text": websocket_error_event(key_revoked_error()).decode()})
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})


def _is_below(path: str, other: str) -> bool:
    return path.startswith(f"{other}/")
