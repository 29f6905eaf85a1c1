"""`/mcp` and `/mcp/{server}`: the gateway as an MCP server, over streamable HTTP in both eras of the protocol.

A reply is JSON if the request is answered within `STREAM_AFTER` seconds without a message on the way; otherwise it is
an event stream. In the legacy era a request goes on without its connection, and its client can come back; in the modern
era a client that closes its connection cancels the request.

Only requests that do something count against the limits of their caller: a client must be able to answer a question
while it is at its limit. Streams on which clients listen are counted apart from requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from holodeck.gateway.auth.callers import RevokedCallers
from holodeck.gateway.configuration import UseCount
from holodeck.gateway.http.errors import APIError, shutting_down_error, unknown_server_text
from holodeck.gateway.http.replies import Reply, StreamedReply
from holodeck.gateway.http.request import Request
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.mcp_endpoint.declarations import (
    END,
    END_WITH_SERVER,
    LISTEN,
    LISTEN_TO_SERVER,
    SEND,
    SEND_TO_SERVER,
)
from holodeck.gateway.mcp_endpoint.endpoint_sessions import EndpointSession, EndpointSessions
from holodeck.gateway.mcp_endpoint.event_stream import EventStream, StreamMemory, parse_event_id
from holodeck.gateway.mcp_endpoint.headers import (
    SESSION_HEADER,
    ArgumentHeaders,
    accepts_events,
    accepts_json,
    check_legacy_version,
    check_modern_headers,
    is_modern_version,
)
from holodeck.gateway.mcp_endpoint.posted_messages import (
    RefusedError,
    drop,
    find_batch_problem,
    find_problem,
    no_session,
    take_message,
)
from holodeck.gateway.mcp_endpoint.shared_sessions import SharedSessions, encode_event, encode_lost_error
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.errors import BadRequestError
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.errors import INVALID_REQUEST, PARSE_ERROR, RPCError, build_unexpected_error
from holodeck.mcp_server.legacy_session import LegacySession
from holodeck.mcp_server.list_changes import ListChanges
from holodeck.mcp_server.methods import Methods
from holodeck.mcp_server.modern_requests import ModernRequests, is_modern, require_meta
from holodeck.mcp_server.view import View
from holodeck.models.gateway import MCPEndpointSettings
from holodeck.storage.mcp_sessions import MCPSessionStore
from holodeck.tools.mcp.executor import ToolRoute
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, encode
from holodeck.tools.mcp.protocol.versions import mapping

# Seconds after which a reply becomes an event stream, whose comments keep the connection open.
STREAM_AFTER = 2.0
# Seconds for requests that are not of a session to end when the gateway stops.
CLOSE_TIMEOUT = 5.0
# Requests that only talk about the session, and count against no limit.
_UNCOUNTED = frozenset({"initialize", "ping", "logging/setLevel", "server/discover"})
# Requests that change what belongs to a session.
_CHANGING = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
# The request that lasts as long as its client listens. It counts as a stream.
_LISTEN = "subscriptions/listen"


class MCPEndpoint:
    """Serves MCP clients. Owns their sessions and requests; `methods` and `changes` belong to the service."""

    def __init__(
        self,
        methods: Methods,
        changes: ListChanges,
        caller_limits: CallerLimits,
        budget: ByteBudget,
        *,
        get_settings: Callable[[], MCPEndpointSettings],
        get_uses: Callable[[], UseCount],
        is_draining: Callable[[], bool],
        store: MCPSessionStore | None = None,
        checks_before_takeover: int = 1,
    ) -> None:
        """`budget`: for everything that is kept between two requests. `get_settings`, `get_uses`: of this moment.

        `store`: shared with other gateways. None: there are no others. `checks_before_takeover`: see `SharedSessions`.
        """
        self._get_uses = get_uses
        self._get_settings = get_settings
        self._methods = methods
        self._changes = changes
        self._caller_limits = caller_limits
        self._is_draining = is_draining
        self._budget = budget
        self._stream_memory = StreamMemory(budget)
        self._sessions = EndpointSessions(methods, changes, self._stream_memory, store)
        self._modern = ModernRequests(methods, changes, budget, holder="" if store is None else str(store.gateway_id))
        self._shared = (
            None
            if store is None
            else SharedSessions(
                store,
                self._sessions,
                self._modern,
                budget,
                answer=self._answer_here,
                is_draining=is_draining,
                checks_before_takeover=checks_before_takeover,
            )
        )
        self._argument_headers = ArgumentHeaders()
        self._tasks = TaskSet()
        """The requests that are of no session, and those of batches."""

    @SEND
    @SEND_TO_SERVER
    async def post(self, request: Request) -> Reply | StreamedReply:
        """Answer one message of a client."""
        return await self._answer(request, "POST", self._view_of(request))

    async def _post(self, request: Request, view: View) -> Reply | StreamedReply:
        try:
            message = request.json()
        except BadRequestError as error:
            raise RefusedError(400, RPCError(PARSE_ERROR, str(error))) from error
        if isinstance(message, list):
            return await self._post_batch(request, view, message)
        problem = find_problem(message)
        if problem is not None:
            raise RefusedError(400, RPCError(INVALID_REQUEST, problem))
        params = mapping(message.get("params"))
        if is_modern(params) or is_modern_version(request.headers):
            return await self._post_modern(request, view, message, params)
        return await self._post_legacy(request, view, message, params)

    @LISTEN
    @LISTEN_TO_SERVER
    async def get(self, request: Request) -> Reply | StreamedReply:
        """Open the stream of a session for messages that belong to no request, or go on with another one of it."""
        if is_modern_version(request.headers) or not accepts_events(request.headers):
            raise _method_not_allowed("GET opens the event stream of a session, in versions up to 2025-11-25.")
        return await self._answer(request, "GET", self._view_of(request))

    def _open_stream(self, request: Request, view: View) -> StreamedReply:
        session = self._require_session(request, view)
        if self._is_draining():
            raise shutting_down_error()
        last_id, stream, number = request.headers.get("last-event-id"), session.own_stream, None
        if last_id is not None:
            event = parse_event_id(last_id)
            found = None if event is None else session.find_stream(event.stream)
            if event is None or (found is None and event.epoch >= session.epoch):
                raise RefusedError(400, RPCError(INVALID_REQUEST, "This event is not known any more"))
            if found is not None:
                stream, number = found, event.number
            elif not event.is_own:
                # Of a gateway that held the session before.
                return StreamedReply(chunks=_answer_lost(event.request_id), headers={SESSION_HEADER: session.id})
        release = self._count_stream(request)
        stream.join()

        def leave() -> None:
            release()
            session.leave_stream(stream)

        return _stream_reply(session, stream, leave, after=number)

    @END
    @END_WITH_SERVER
    async def delete(self, request: Request) -> Reply:
        """End a session."""
        reply = await self._answer(request, "DELETE", self._view_of(request))
        assert isinstance(reply, Reply)  # noqa: S101 - nothing is streamed to a DELETE
        return reply

    async def _answer(self, request: Request, method: str, view: View) -> Reply | StreamedReply:
        """Answer a request here, or at the gateway that holds its session."""
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is not None and self._shared is not None and self._sessions.get(session_id) is None:
            reply = await self._shared.reach(request, method, session_id, view)
            if reply is not None:
                return reply
        return await self._answer_here(request, method, view)

    async def _answer_here(self, request: Request, method: str, view: View) -> Reply | StreamedReply:
        try:
            if method == "POST":
                return await self._post(request, view)
            if method == "GET":
                return self._open_stream(request, view)
            await self._sessions.delete(self._require_session(request, view))
            return Reply(status=204)
        except RefusedError as refusal:
            return refusal.to_reply()

    async def follow_relays(self) -> None:
        """Answer what other gateways relay. Runs until it is cancelled."""
        if self._shared is not None:
            await self._shared.follow()

    async def watch_sessions(self) -> None:
        """Keep the rows of the sessions current. Runs until it is cancelled."""
        await self._sessions.watch()

    def end_all_of(self, revoked: RevokedCallers) -> None:
        """End the sessions and paused calls of callers whose keys are not valid any more."""
        self._sessions.end_all_of(revoked)
        self._modern.cancel_callers(revoked)
        if self._shared is not None:
            self._tasks.start(self._shared.delete_all_of(revoked), name="delete MCP sessions")

    async def drain(self, seconds: float) -> None:
        """End the streams that only wait, and give requests `seconds` to be answered."""
        self._sessions.end_own_streams()
        self._modern.end_subscriptions()
        await self._sessions.release_idle()
        relayed = [] if self._shared is None else [self._shared.drain(seconds)]
        await asyncio.gather(self._sessions.wait_running(seconds), self._tasks.wait(seconds), *relayed)

    async def close(self) -> None:
        await self._tasks.close(CLOSE_TIMEOUT)
        if self._shared is not None:
            await self._shared.close()
        await self._sessions.close()
        await self._modern.close()
        self._changes.close()
        await self._methods.close()

    def _view_of(self, request: Request) -> View:
        """Return the part of the servers and agents that a request may use. Raises `APIError` 404."""
        settings, server = self._get_settings(), request.path_params.get("server")
        if not settings.enabled:
            message = "This gateway is no MCP server: its file says 'mcp_endpoint: {enabled: false}'."
            raise APIError(404, message, kind="not_found", code="unknown_url")
        view = View(
            caller_id=request.caller.id,
            scope=request.caller.scope,
            server=server,
            has_agents=settings.agents,
            account=request.caller,
        )
        if server is not None and not (server in self._methods.catalogue.executor.servers and view.has_server(server)):
            known = self._methods.catalogue.servers(View(caller_id=view.caller_id, scope=view.scope))
            message = unknown_server_text(server, (each.name for each in known))
            raise APIError(404, message, kind="not_found", code="not_found")
        return view

    async def _post_legacy(
        self, request: Request, view: View, message: Message, params: Mapping[str, Any]
    ) -> Reply | StreamedReply:
        try:
            check_legacy_version(request.headers)
        except RPCError as error:
            raise RefusedError(400, error, message.get("id")) from error
        method = message.get("method")
        if method == "initialize":
            return await self._initialize(view, message, params)
        session = self._require_session(request, view) if SESSION_HEADER in request.headers else None
        if method is None or "id" not in message:
            if session is not None:
                take_message(session, message, params)
            return Reply(status=202)
        request_id: RequestId = message["id"]
        if session is None:
            return await self._answer_without_session(request, view, request_id, str(method), params)
        return await self._answer_in_session(request, session, request_id, str(method), params)

    async def _initialize(self, view: View, message: Message, params: Mapping[str, Any]) -> Reply:
        if self._is_draining():
            raise shutting_down_error()
        session = self._sessions.open(view)
        try:
            result = await session.protocol.handle_request("initialize", params, session.own_stream.send)
        except RPCError as error:
            self._sessions.end(session)
            raise RefusedError(400, error, message.get("id")) from error
        if self._shared is not None:
            await self._shared.add(session)
        body = encode({"jsonrpc": "2.0", "id": message.get("id"), "result": result})
        return Reply(body=body, headers={SESSION_HEADER: session.id})

    async def _answer_in_session(
        self, request: Request, session: EndpointSession, request_id: RequestId, method: str, params: Mapping[str, Any]
    ) -> Reply | StreamedReply:
        if session.running.is_running(request_id):
            raise RefusedError(400, RPCError(INVALID_REQUEST, "This id is in use"), request_id)
        release = self._count(request, method)
        stream = session.open_stream(request_id)
        # What the parameters take, which the request that brought them holds as long as its connection is there.
        detached, size = Reservation(self._budget), len(request.body) + request.reservation.size

        async def answer() -> None:
            try:
                response = await session.protocol.respond(request_id, method, params, stream.send)
                if method in _CHANGING:
                    await self._sessions.update_row(session)
                stream.finish(response)
            finally:
                release()
                detached.release()
                if not stream.is_ended:
                    stream.end()
                session.keep_stream(stream)

        running = session.running.start(request_id, answer())

        def leave() -> None:
            session.leave_stream(stream)
            if not running.done():
                try:
                    detached.resize(size)
                except OverBudgetError:
                    running.cancel()

        try:
            reply = await _reply_with(stream, request, lambda: _stream_reply(session, stream, leave))
        except BaseException:
            leave()
            raise
        if isinstance(reply, Reply):
            session.drop_stream(stream)
        return reply

    async def _answer_without_session(
        self, request: Request, view: View, request_id: RequestId, method: str, params: Mapping[str, Any]
    ) -> Reply:
        """Answer a client that keeps no session: it can be told nothing on the way, and cannot be asked."""
        release = self._count(request, method)
        protocol = LegacySession(self._methods, self._changes, view, send=drop)
        protocol.is_initialized = True
        try:
            work = protocol.respond(request_id, method, params, drop)
            response = await self._tasks.start(work, name=f"MCP request {request_id}")
        finally:
            release()
            await protocol.close()
        return Reply(body=encode(response))

    async def _post_batch(self, request: Request, view: View, messages: list[Any]) -> Reply:
        """Answer several messages, which only clients of one version may send."""
        session = self._require_session(request, view)
        problem = find_batch_problem(session, messages)
        if problem is not None:
            raise RefusedError(400, RPCError(INVALID_REQUEST, problem))
        asked = []
        for message in messages:
            if "method" in message and "id" in message:
                asked.append(message)
            else:
                take_message(session, message, mapping(message.get("params")))
        if not asked:
            return Reply(status=202)
        with ExitStack() as counted:
            # All of them before the first is run: a batch that is refused has done nothing.
            for message in asked:
                counted.callback(self._count(request, message["method"]))
            answers = [
                self._tasks.start(
                    session.protocol.respond(message["id"], message["method"], mapping(message.get("params")), drop),
                    name=f"MCP request {message['id']}",
                )
                for message in asked
            ]
            return Reply(body=b"[%s]" % b",".join(map(encode, await asyncio.gather(*answers))))

    async def _post_modern(
        self, request: Request, view: View, message: Message, params: Mapping[str, Any]
    ) -> Reply | StreamedReply:
        method = message.get("method")
        if method is None or "id" not in message:
            # Nothing that a modern client may notify a server of changes anything here.
            return Reply(status=202)
        request_id: RequestId = message["id"]
        try:
            require_meta(params)
            check_modern_headers(request.headers, str(method), params)
        except RPCError as error:
            raise RefusedError(400, error, request_id) from error
        if "requestState" in params and self._shared is not None:
            elsewhere = await self._reach_paused(self._shared, request, params["requestState"], view)
            if elsewhere is not None:
                return elsewhere
        release = self._count(request, str(method))
        try:
            await self._check_arguments(request, view, str(method), params)
        except BaseException as error:
            release()
            if isinstance(error, RPCError):
                raise RefusedError(400, error, request_id) from error
            raise
        stream = EventStream("", self._stream_memory, has_ids=False)

        async def answer() -> None:
            try:
                result = await self._modern.handle_request(request_id, str(method), params, view, stream.send)
                stream.finish({"jsonrpc": "2.0", "id": request_id, "result": result})
            except RPCError as error:
                stream.finish(error.to_response(request_id))
            # The boundary: a bug here must not leave the client without an answer.
            except Exception as error:
                stream.finish(build_unexpected_error(error, str(method), request_id))
            finally:
                release()
                stream.end()

        task = self._tasks.start(answer(), name=f"MCP request {request_id}")

        async def cancel() -> None:
            task.cancel()
            stream.drop()

        try:
            reply = await _reply_with(
                stream, request, lambda: StreamedReply(chunks=stream.read(), on_close=cancel), is_modern=True
            )
        except BaseException:
            await cancel()
            raise
        if isinstance(reply, Reply):
            stream.drop()
        return reply

    async def _reach_paused(
        self, shared: SharedSessions, request: Request, state: object, view: View
    ) -> Reply | StreamedReply | None:
        """Have the gateway answer that holds a paused call. None: this one does, or there is none."""
        if self._modern.find_paused(state) is not None:
            return None
        with ExitStack() as counted:
            # Nobody may ask for gateways that there are not, without a limit.
            counted.callback(self._count(request, "tools/call"))
            reply = await shared.reach_paused(request, state, view)
            if not isinstance(reply, StreamedReply):
                return reply
            until_end, close = counted.pop_all(), reply.on_close

        async def end() -> None:
            until_end.close()
            await close()

        return replace(reply, on_close=end)

    async def _check_arguments(self, request: Request, view: View, method: str, params: Mapping[str, Any]) -> None:
        """Compare the headers that repeat arguments with the arguments of a call."""
        if method != "tools/call" or not isinstance(params.get("name"), str):
            return
        found = await self._methods.catalogue.find_tool(params["name"], view)
        if isinstance(found, ToolRoute):
            self._argument_headers.check(request.headers, found.tool.input_schema, params)

    def _require_session(self, request: Request, view: View) -> EndpointSession:
        """Return the session that a request names. Raises `RefusedError`."""
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            raise RefusedError(400, RPCError(INVALID_REQUEST, "The header Mcp-Session-Id is missing"))
        session = self._sessions.find(session_id, view)
        if session is None:
            raise no_session()
        return session

    def _count(self, request: Request, method: str) -> Callable[[], None]:
        """Count a request against the limits of its caller until the returned function is called.

        It is also counted as one that uses the configuration of now.

        Raises `TooManyError`, and the 503 of a gateway that stops.
        """
        if self._is_draining():
            raise shutting_down_error()
        if method in _UNCOUNTED:
            return _release_nothing
        if method == _LISTEN:
            return self._count_stream(request)
        caller, uses = request.caller, self._get_uses()
        self._caller_limits.start_request(caller)
        uses.acquire()

        def release() -> None:
            uses.release()
            self._caller_limits.end_request(caller)

        return release

    def _count_stream(self, request: Request) -> Callable[[], None]:
        """Count a stream on which a client listens until the returned function is called. Raises `TooManyError`."""
        counted = ExitStack()
        counted.enter_context(self._caller_limits.count_mcp_stream(request.caller))
        return counted.close


async def _reply_with(
    stream: EventStream, request: Request, open_stream: Callable[[], StreamedReply], *, is_modern: bool = False
) -> Reply | StreamedReply:
    """Reply with the response alone, or with a stream if it does not come soon or is not the only message."""
    may_stream, may_reply = accepts_events(request.headers), accepts_json(request.headers)
    if may_reply:
        await (stream.wait_news(STREAM_AFTER) if may_stream else stream.wait_end())
    body = stream.body
    if may_stream and (body is None or stream.is_used or not may_reply):
        return open_stream()
    if body is None:
        raise RefusedError(400, RPCError(INVALID_REQUEST, "The request was cancelled"))
    return Reply(status=stream.status or 200 if is_modern else 200, body=body)


async def _answer_lost(request_id: RequestId | None) -> AsyncGenerator[bytes, None]:
    """Yield the answer to a request that ran at a gateway which has ended. None: it is not known which one it was."""
    if request_id is not None:
        yield encode_event(encode_lost_error(request_id))


def _release_nothing() -> None:
    """End the count of what is not counted."""


def _stream_reply(
    session: EndpointSession, stream: EventStream, leave: Callable[[], None], after: int | None = None
) -> StreamedReply:
    """Reply with the events of a stream. `leave` is called when the connection has ended."""
    session.readers += 1

    async def close() -> None:
        session.readers -= 1
        leave()

    return StreamedReply(chunks=stream.read(after), headers={SESSION_HEADER: session.id}, on_close=close)


def _method_not_allowed(text: str) -> APIError:
    return APIError(405, text, kind="invalid_request", code="method_not_allowed", allow="POST")
