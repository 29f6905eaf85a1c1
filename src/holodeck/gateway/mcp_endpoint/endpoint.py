"""`/mcp` and `/mcp/{server}`: the gateway as an MCP server, over streamable HTTP in both eras of the protocol.

A reply is JSON if the request is answered within `STREAM_AFTER` seconds without a message on the way; otherwise it is
an event stream. In the legacy era a request goes on without its connection, and its client can come back; in the modern
era a client that closes its connection cancels the request.

Only requests that do something count against the limits of their caller: a client must be able to answer a question
while it is at its limit. Streams on which clients listen are counted apart from requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from contextlib import ExitStack
from typing import Any

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
from holodeck.gateway.mcp_endpoint.endpoint_sessions import OWN_STREAM, EndpointSession, EndpointSessions
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
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.errors import BadRequestError
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.context import Send
from holodeck.mcp_server.errors import INVALID_REQUEST, PARSE_ERROR, RPCError
from holodeck.mcp_server.legacy_session import LegacySession
from holodeck.mcp_server.list_changes import ListChanges
from holodeck.mcp_server.methods import Methods
from holodeck.mcp_server.modern_requests import ModernRequests, is_modern, require_meta
from holodeck.mcp_server.view import View
from holodeck.models.gateway import MCPEndpointSettings
from holodeck.tools.mcp.executor import ToolRoute
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, Message, RequestId, encode
from holodeck.tools.mcp.protocol.versions import mapping

# Seconds after which a reply becomes an event stream, whose comments keep the connection open.
STREAM_AFTER = 2.0
# Seconds for requests that are not of a session to end when the gateway stops.
CLOSE_TIMEOUT = 5.0
# Messages of one batch: more than a client has to ask for at one time.
MAX_BATCH = 100
# The only version with batches of messages.
_BATCH_VERSION = "2025-03-26"

# Requests that only talk about the session, and count against no limit.
_UNCOUNTED = frozenset({"initialize", "ping", "logging/setLevel", "server/discover"})
# The request that lasts as long as its client listens. It counts as a stream.
_LISTEN = "subscriptions/listen"


class _RefusedError(Exception):
    """A request is refused before it is answered, with an HTTP status and a JSON-RPC error."""

    def __init__(self, status: int, error: RPCError, request_id: RequestId | None = None) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.request_id = request_id

    def to_reply(self) -> Reply:
        return Reply(status=self.status, body=encode(self.error.to_response(self.request_id)))


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
    ) -> None:
        """`budget`: for everything that is kept between two requests. `get_settings`, `get_uses`: of this moment."""
        self._get_uses = get_uses
        self._get_settings = get_settings
        self._methods = methods
        self._changes = changes
        self._caller_limits = caller_limits
        self._is_draining = is_draining
        self._budget = budget
        self._stream_memory = StreamMemory(budget)
        self._sessions = EndpointSessions(methods, changes, self._stream_memory)
        self._modern = ModernRequests(methods, changes, budget)
        self._argument_headers = ArgumentHeaders()
        self._tasks = TaskSet()
        """The requests that are of no session, and those of batches."""

    @SEND
    @SEND_TO_SERVER
    async def post(self, request: Request) -> Reply | StreamedReply:
        """Answer one message of a client."""
        try:
            return await self._post(request, self._view_of(request))
        except _RefusedError as refusal:
            return refusal.to_reply()

    async def _post(self, request: Request, view: View) -> Reply | StreamedReply:
        try:
            message = request.json()
        except BadRequestError as error:
            raise _RefusedError(400, RPCError(PARSE_ERROR, str(error))) from error
        if isinstance(message, list):
            return await self._post_batch(request, view, message)
        problem = _find_problem(message)
        if problem is not None:
            raise _RefusedError(400, RPCError(INVALID_REQUEST, problem))
        params = mapping(message.get("params"))
        if is_modern(params) or is_modern_version(request.headers):
            return await self._post_modern(request, view, message, params)
        return await self._post_legacy(request, view, message, params)

    @LISTEN
    @LISTEN_TO_SERVER
    async def get(self, request: Request) -> Reply | StreamedReply:
        """Open the stream of a session for messages that belong to no request, or go on with another one of it."""
        try:
            return self._open_stream(request)
        except _RefusedError as refusal:
            return refusal.to_reply()

    def _open_stream(self, request: Request) -> StreamedReply:
        if is_modern_version(request.headers) or not accepts_events(request.headers):
            raise _method_not_allowed("GET opens the event stream of a session, in versions up to 2025-11-25.")
        session = self._require_session(request, self._view_of(request))
        if self._is_draining():
            raise shutting_down_error()
        last_id = request.headers.get("last-event-id")
        stream_id, number = (OWN_STREAM, None) if last_id is None else parse_event_id(last_id) or ("", None)
        stream = session.find_stream(stream_id)
        if stream is None:
            raise _RefusedError(400, RPCError(INVALID_REQUEST, "This event is not known any more"))
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
        try:
            self._sessions.end(self._require_session(request, self._view_of(request)))
        except _RefusedError as refusal:
            return refusal.to_reply()
        return Reply(status=204)

    def end_all_of(self, caller_ids: Container[str]) -> None:
        """End the sessions and paused calls of callers whose keys are not valid any more."""
        self._sessions.end_all_of(caller_ids)
        self._modern.cancel_callers(caller_ids)

    async def drain(self, seconds: float) -> None:
        """End the streams that only wait, and give requests `seconds` to be answered."""
        self._sessions.end_own_streams()
        self._modern.end_subscriptions()
        await asyncio.gather(self._sessions.wait_running(seconds), self._tasks.wait(seconds))

    async def close(self) -> None:
        await self._tasks.close(CLOSE_TIMEOUT)
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
            raise _RefusedError(400, error, message.get("id")) from error
        method = message.get("method")
        if method == "initialize":
            return await self._initialize(view, message, params)
        session = self._require_session(request, view) if SESSION_HEADER in request.headers else None
        if method is None or "id" not in message:
            if session is not None:
                _take_message(session, message, params)
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
            raise _RefusedError(400, error, message.get("id")) from error
        body = encode({"jsonrpc": "2.0", "id": message.get("id"), "result": result})
        return Reply(body=body, headers={SESSION_HEADER: session.id})

    async def _answer_in_session(
        self, request: Request, session: EndpointSession, request_id: RequestId, method: str, params: Mapping[str, Any]
    ) -> Reply | StreamedReply:
        if session.running.is_running(request_id):
            raise _RefusedError(400, RPCError(INVALID_REQUEST, "This id is in use"), request_id)
        release = self._count(request, method)
        stream = session.open_stream()
        # What the parameters take, which the request that brought them holds as long as its connection is there.
        detached, size = Reservation(self._budget), len(request.body) + request.reservation.size

        async def answer() -> None:
            try:
                stream.finish(await _respond(session.protocol, request_id, method, params, stream.send))
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
        protocol = LegacySession(self._methods, self._changes, view, send=_drop)
        protocol.is_initialized = True
        try:
            work = _respond(protocol, request_id, method, params, _drop)
            response = await self._tasks.start(work, name=f"MCP request {request_id}")
        finally:
            release()
            await protocol.close()
        return Reply(body=encode(response))

    async def _post_batch(self, request: Request, view: View, messages: list[Any]) -> Reply:
        """Answer several messages, which only clients of one version may send."""
        session = self._require_session(request, view)
        problem = _find_batch_problem(session, messages)
        if problem is not None:
            raise _RefusedError(400, RPCError(INVALID_REQUEST, problem))
        asked = []
        for message in messages:
            if "method" in message and "id" in message:
                asked.append(message)
            else:
                _take_message(session, message, mapping(message.get("params")))
        if not asked:
            return Reply(status=202)
        with ExitStack() as counted:
            # All of them before the first is run: a batch that is refused has done nothing.
            for message in asked:
                counted.callback(self._count(request, message["method"]))
            answers = [
                self._tasks.start(
                    _respond(session.protocol, message["id"], message["method"], mapping(message.get("params")), _drop),
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
            raise _RefusedError(400, error, request_id) from error
        release = self._count(request, str(method))
        try:
            await self._check_arguments(request, view, str(method), params)
        except BaseException as error:
            release()
            if isinstance(error, RPCError):
                raise _RefusedError(400, error, request_id) from error
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
                stream.finish(_build_unexpected_error(error, str(method), request_id))
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

    async def _check_arguments(self, request: Request, view: View, method: str, params: Mapping[str, Any]) -> None:
        """Compare the headers that repeat arguments with the arguments of a call."""
        if method != "tools/call" or not isinstance(params.get("name"), str):
            return
        found = await self._methods.catalogue.find_tool(params["name"], view)
        if isinstance(found, ToolRoute):
            self._argument_headers.check(request.headers, found.tool.input_schema, params)

    def _require_session(self, request: Request, view: View) -> EndpointSession:
        """Return the session that a request names. Raises `_RefusedError`."""
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            raise _RefusedError(400, RPCError(INVALID_REQUEST, "The header Mcp-Session-Id is missing"))
        session = self._sessions.find(session_id, view)
        if session is None:
            raise _RefusedError(404, RPCError(INVALID_REQUEST, "Session not found: it has ended. Initialize anew."))
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


async def _respond(
    protocol: LegacySession, request_id: RequestId, method: str, params: Mapping[str, Any], send: Send
) -> Message:
    try:
        result = await protocol.handle_request(method, params, send)
    except RPCError as error:
        return error.to_response(request_id)
    # The boundary: a bug here must not leave the client without an answer.
    except Exception as error:
        return _build_unexpected_error(error, method, request_id)
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


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
        raise _RefusedError(400, RPCError(INVALID_REQUEST, "The request was cancelled"))
    return Reply(status=stream.status or 200 if is_modern else 200, body=body)


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


def _take_message(session: EndpointSession, message: Message, params: Mapping[str, Any]) -> None:
    """Take the answer to a question, or a notification."""
    if message.get("method") == "notifications/cancelled":
        session.running.cancel(params.get("requestId"))
    elif "method" not in message:
        session.protocol.handle_response(message)


def _find_batch_problem(session: EndpointSession, messages: list[Any]) -> str | None:
    if session.protocol.version != _BATCH_VERSION or not messages:
        return f"Only clients of {_BATCH_VERSION} may send several messages"
    if len(messages) > MAX_BATCH:
        return f"A batch has at most {MAX_BATCH} messages, and this one has {len(messages)}"
    return next((problem for problem in map(_find_problem, messages) if problem is not None), None)


def _find_problem(message: object) -> str | None:
    if not isinstance(message, dict):
        return "A message must be an object"
    if message.get("jsonrpc") != "2.0":
        return "'jsonrpc' must be \"2.0\""
    request_id = message.get("id")
    if "id" in message and (isinstance(request_id, bool) or not isinstance(request_id, int | str)):
        return "An id must be a text or a whole number"
    if "method" in message and not isinstance(message["method"], str):
        return "'method' must be a text"
    if "method" not in message and "result" not in message and "error" not in message:
        return "A message must have a method, a result or an error"
    return None


def _build_unexpected_error(error: Exception, method: str, request_id: RequestId) -> Message:
    log.error("mcp_server.failed", method=method, error=repr(error))
    return RPCError(INTERNAL_ERROR, "An unexpected error has happened; the gateway's log has it").to_response(
        request_id
    )


def _method_not_allowed(text: str) -> APIError:
    return APIError(405, text, kind="invalid_request", code="method_not_allowed", allow="POST")


def _drop(message: Message) -> None:
    """Send nothing: a `Send` for a client that keeps no session."""
