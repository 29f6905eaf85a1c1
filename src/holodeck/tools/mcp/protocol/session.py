"""The JSON-RPC session with one server on one transport.

`request` sends one request with a deadline, which progress notifications extend: see `pending_requests`. `call` sends
a request until its result is complete, answering the questions of a modern server in between, as one span of
OpenTelemetry.
`dispatch_message` receives the requests and notifications of the server; each request is answered in a task of the
connection. The deadlines of all pending requests are suspended while a person or a model answers the server.

The session does not own its transport: the connection opens and closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from holodeck.lib import log, tracing
from holodeck.lib.call_errors import OUTCOME_UNKNOWN, QUESTION_UNASSIGNED
from holodeck.lib.errors import MCPError, MCPTimeoutError
from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, Message, RequestId, build_error_response
from holodeck.tools.mcp.protocol.legacy_notices import lower_log_level
from holodeck.tools.mcp.protocol.peer import ROOTS_METHOD, Peer, RefusalError
from holodeck.tools.mcp.protocol.pending_requests import OnProgress, PendingRequests
from holodeck.tools.mcp.protocol.server_log import ServerLog, lower_level
from holodeck.tools.mcp.protocol.server_requests import INTERACTIVE_METHODS, ServerRequestResponder
from holodeck.tools.mcp.protocol.task_watches import TASK_NOTIFICATIONS, TaskWatches, with_related_task
from holodeck.tools.mcp.protocol.versions import (
    CLIENT_INFO,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_VERSION,
    NegotiatedTerms,
    ProtocolEra,
    mapping,
)
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, Transport

# Requests of one server that are answered at the same time; further ones are refused.
MAX_SERVER_REQUESTS = 64
# Times that a server may answer one call with questions instead of a result.
MAX_INPUT_ROUNDS = 10
# Seconds before a call is repeated for a server that wants that without asking a question.
INPUT_ROUND_PAUSE = 0.25

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Runs a coroutine as a task that ends with the connection at the latest."""

_TIME_OVER = "the client's time limit for this request is over"
# Methods that may take long enough to report progress.
_LONG_METHODS = frozenset({"tools/call", "prompts/get"})
# Methods that a server may work on when it sends a request of its own.
_CALL_METHODS = _LONG_METHODS | {"resources/read"}
# Methods about something that has a name, with the attribute of a span for it.
_NAME_ATTRIBUTES = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}


class Session:
    """The requests of both sides on one transport."""

    def __init__(
        self,
        build_transport: Callable[[OnMessage], Transport],
        *,
        errors: ErrorFactory,
        responder: ServerRequestResponder,
        on_notification: Callable[[Message], None],
        spawn: Spawn,
        span_attributes: tracing.Attributes,
    ) -> None:
        """`span_attributes`: those of the way to the server, added to the span of every call."""
        self.errors = errors
        self.terms: NegotiatedTerms | None = None
        self.responder = responder
        self._on_notification = on_notification
        self._spawn = spawn
        self._span_attributes = span_attributes
        self._ids = count(1)
        self._pending = PendingRequests()
        self._idle: asyncio.Event | None = None
        self._close_error: MCPError | None = None
        self._answer_tasks: dict[RequestId, asyncio.Task[None]] = {}
        self.server_log = ServerLog(errors.server if errors.is_server_logged else None)
        self._meta: dict[str, Any] = {}
        self.task_watches = TaskWatches()
        self.is_roots_requested = False
        self.roots_sent = asyncio.Event()
        self.transport = build_transport(self.dispatch_message)

    def set_terms(self, terms: NegotiatedTerms) -> None:
        """Use the negotiated terms for all messages from now on."""
        self.terms = terms
        self._meta = self.modern_meta(terms.version) if terms.era is ProtocolEra.MODERN else {}
        self.transport.set_protocol_version(terms.version, is_modern=terms.era is ProtocolEra.MODERN)

    def modern_meta(self, version: str) -> dict[str, Any]:
        """Return the `_meta` of a modern request: version, client and capabilities."""
        return {
            META_VERSION: version,
            META_CAPABILITIES: self.responder.capabilities(ProtocolEra.MODERN),
            META_CLIENT: CLIENT_INFO,
            META_LOG_LEVEL: self.server_log.level(),
        }

    def legacy_capabilities(self) -> dict[str, Any]:
        return self.responder.capabilities(ProtocolEra.LEGACY)

    @property
    def has_roots(self) -> bool:
        return "roots" in self.legacy_capabilities()

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float,
        delivery: Delivery | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        peer: Peer | None = None,
    ) -> Coroutine[Any, Any, Message]:
        """Send a request until its result is complete, and return the result. Raises MCPError.

        A modern server may answer with questions; they are answered, and the request is sent again with the answers.
        It may also answer a tool call with a task, which is returned as it is: see `tasks`.
        `seconds` is the deadline of each of these requests. The whole call is one span, whose `traceparent` and
        `tracestate` travel in `_meta`, in both eras of the protocol. `peer`: the client that the call is made for.
        """
        call = self._call_traced if tracing.tracers else self._request_until_complete
        return call(method, params, seconds, delivery or Delivery(), on_progress, meta, peer)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        seconds: float | None,
        delivery: Delivery | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        peer: Peer | None = None,
        is_cancellable: bool = True,
    ) -> Message:
        """Send one request and return its result, whatever its type. Raises MCPError.

        `seconds`: the deadline; None for none. `is_cancellable`: notify the server when the answer is not needed.
        """
        request_id = next(self._ids)
        message = self._build_request(request_id, method, params, meta, peer)
        pending = None
        if seconds is not None:
            pending = self._pending.add(request_id, seconds, on_progress, peer, method in _CALL_METHODS)
        delivery = delivery or Delivery()
        delivery.request_id = request_id
        try:
            response = await self.transport.request(message, delivery)
        except asyncio.CancelledError as error:
            is_timeout = pending is not None and pending.is_expired and pending.is_only_expired()
            if is_cancellable and (self._close_error is None or not is_timeout):
                self.transport.cancel(request_id, _TIME_OVER if is_timeout else "the caller was cancelled")
            if not is_timeout:
                raise
            raise self._close_error or self._deadline_error(method, seconds) from error
        except TimeoutError as error:
            # A timeout of the transport, not the deadline of the request.
            raise self.errors.timeout(method, str(error) or "the connection took too long") from error
        finally:
            if pending is not None:
                self._pending.remove(request_id)
                if self._idle is not None and not self._pending:
                    self._idle.set()
        result = response.get("result")
        if type(result) is dict:
            return result if pending is None or not pending.has_unasked_question else _with_notice(result)
        raise self._protocol_error(method, response)

    async def wait_idle(self) -> None:
        """Wait until no request is pending."""
        if self._pending:
            self._idle = asyncio.Event()
            await self._idle.wait()

    def abort_calls(self) -> None:
        """Fail every pending request with a connection error: closing a transport need not wake its readers."""
        self._close_error = self.errors.connection("close", "the connection was closed.")
        self._pending.expire_all()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        message: Message = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        async with asyncio.timeout(NOTICE_TIMEOUT):
            await self.transport.send(message)

    def dispatch_message(self, message: Message, related: RequestId | None = None) -> None:
        """Handle a notification or a request of the server. Does not block. `related`: see `OnMessage`."""
        method, request_id = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return
        if isinstance(request_id, int | str):
            self._answer_request(request_id, method, mapping(message.get("params")), related)
            return
        params = mapping(message.get("params"))
        if method == "notifications/progress":
            self._apply_progress(params)
        elif method == "notifications/message":
            self.server_log.write(params)
            if (peer := self._find_peer(related=related)) is not None:
                peer.notify(method, params)
        elif method == "notifications/cancelled":
            self._cancel_request(params)
        elif method in TASK_NOTIFICATIONS:
            self.task_watches.announce(params)
        self._on_notification(message)

    def _find_peer(self, params: Mapping[str, Any] | None = None, related: RequestId | None = None) -> Peer | None:
        """Return the client that the server works for, where that is certain; else None.

        A message of a legacy server does not say which call it belongs to, unless its parameters name a task, or it
        came on the stream of the call (`related`). Any other is passed on only if every call and every task that is
        pending is of the same client.
        """
        task = self.task_watches.find_related(params or {})
        if task is not None:
            return task.peer
        call = None if related is None else self._pending.get(related)
        if call is not None and call.is_call:
            return call.peer
        peers = [pending.peer for pending in self._pending.values() if pending.is_call] + self.task_watches.peers
        if not peers:
            return self.responder.find_only_peer()
        clients = {None if peer is None else id(peer.client) for peer in peers}
        return peers[-1] if len(clients) == 1 else None

    def _build_request(
        self,
        request_id: RequestId,
        method: str,
        params: Mapping[str, Any] | None,
        meta: Mapping[str, Any] | None,
        peer: Peer | None,
    ) -> Message:
        sent_meta = dict(self._meta) if peer is None else {**peer.meta, **self._meta}
        if meta:
            sent_meta.update(meta)
        if peer is not None and self._meta:
            sent_meta[META_CAPABILITIES] = self.responder.capabilities(ProtocolEra.MODERN, peer)
            if peer.log_level is not None:
                sent_meta[META_LOG_LEVEL] = lower_level(sent_meta[META_LOG_LEVEL], peer.log_level)
        if method in _LONG_METHODS:
            sent_meta["progressToken"] = request_id
        message: Message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if sent_meta:
            message["params"] = {**(params or {}), "_meta": sent_meta}
        elif params:
            message["params"] = params
        return message

    async def _call_traced(
        self,
        method: str,
        params: Mapping[str, Any],
        seconds: float,
        delivery: Delivery,
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        peer: Peer | None,
    ) -> Message:
        with self._trace(method, params, delivery) as span:
            meta = {**(meta or {}), **span.carrier()}
            result = await self._request_until_complete(method, params, seconds, delivery, on_progress, meta, peer)
            if result.get("isError") is True:
                span.fail("tool_error")
            return result

    async def _request_until_complete(
        self,
        method: str,
        params: Mapping[str, Any],
        seconds: float,
        delivery: Delivery,
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        peer: Peer | None,
    ) -> Message:
        if peer is not None and peer.log_level is not None:
            await lower_log_level(self, peer.log_level)
        sent = params
        for _ in range(MAX_INPUT_ROUNDS + 1):
            result = await self.request(
                method,
                sent,
                seconds=seconds,
                delivery=delivery,
                on_progress=on_progress,
                meta=meta,
                peer=peer,
            )
            kind = result.get("resultType")
            if kind is None or kind == "complete" or (kind == "task" and method == "tools/call"):
                return result
            if kind != "input_required":
                raise self.errors.protocol("call", f"the result is of an unknown type {kind!r}", result_type=str(kind))
            sent = {**params, **await self._build_next_round(result, peer)}
        raise self.errors.protocol("call", f"the server asked for input more than {MAX_INPUT_ROUNDS} times")

    async def _build_next_round(self, result: Message, peer: Peer | None) -> dict[str, Any]:
        """Return the parameters that the next round adds: the answers, and the server's state unchanged."""
        added: dict[str, Any] = {}
        requests = mapping(result.get("inputRequests"))
        if requests:
            answers = await asyncio.gather(
                *(self.answer_input_request(key, mapping(request), peer) for key, request in requests.items())
            )
            added["inputResponses"] = dict(zip(requests, answers, strict=True))
        else:
            await asyncio.sleep(INPUT_ROUND_PAUSE)
        if "requestState" in result:
            added["requestState"] = result["requestState"]
        return added

    async def answer_input_request(self, key: str, request: Mapping[str, Any], peer: Peer | None) -> Mapping[str, Any]:
        """Answer a question that a modern server has put into a result. Raises MCPError for one that is refused."""
        method = str(request.get("method"))
        try:
            return await self._answer(method, mapping(request.get("params")), peer, key)
        except RefusalError as refusal:
            text = f"the server asked for {method}, which was refused: {refusal}"
            raise self.errors.protocol("call", text, code=refusal.code) from refusal

    @contextmanager
    def _trace(self, method: str, params: Mapping[str, Any], delivery: Delivery) -> Iterator[tracing.Span]:
        """Run the block in a span with the attributes of OpenTelemetry's conventions for MCP."""
        name = str(params["name"]) if method in _NAME_ATTRIBUTES else ""
        attributes: dict[str, tracing.Value | None] = {
            "mcp.method.name": method,
            "mcp.protocol.version": self.terms.version if self.terms is not None else None,
            "gen_ai.operation.name": "execute_tool" if method == "tools/call" else None,
            "holodeck.mcp.server": self.errors.server,
        }
        if method in _NAME_ATTRIBUTES:
            attributes[_NAME_ATTRIBUTES[method]] = name
        with tracing.span(f"{method} {name}".strip(), {**attributes, **self._span_attributes}, kind="client") as span:
            try:
                yield span
            except MCPError as error:
                code = error.details.get("code")
                span.set({"rpc.response.status_code": None if code is None else str(code)})
                span.fail(_error_kind(error, code))
                raise
            finally:
                sent_id = delivery.request_id
                span.set({"jsonrpc.request.id": None if sent_id is None else str(sent_id)})

    async def _answer(
        self, method: str, params: Mapping[str, Any], peer: Peer | None, key: str = ""
    ) -> Mapping[str, Any]:
        """Answer a request of the server. While a person or a model does, no pending request times out."""
        if method not in INTERACTIVE_METHODS:
            return await self.responder.respond(method, params, peer, key)
        with self._pending.pause():
            return await self.responder.respond(method, params, peer, key)

    def _note_unasked(self, method: str, params: Mapping[str, Any]) -> None:
        """Remember that a question may have been for any of several clients, so that none of them is asked."""
        calls = [
            call for call in self._pending.values() if call.peer is not None and call.peer.can_answer(method, params)
        ]
        for call in calls:
            call.has_unasked_question = True
        if calls:
            log.warning("mcp.question_unassigned", server=self.errors.server, method=method, calls=len(calls))

    def _answer_request(
        self, request_id: RequestId, method: str, params: Mapping[str, Any], related: RequestId | None
    ) -> None:
        if len(self._answer_tasks) >= MAX_SERVER_REQUESTS:
            self._spawn(self._send(build_error_response(request_id, INTERNAL_ERROR, "Too many requests at once")))
            return
        self.is_roots_requested = self.is_roots_requested or method == ROOTS_METHOD
        task = self._spawn(self._respond(request_id, method, params, related))
        self._answer_tasks[request_id] = task
        task.add_done_callback(lambda _: self._answer_tasks.pop(request_id, None))

    async def _respond(
        self, request_id: RequestId, method: str, params: Mapping[str, Any], related: RequestId | None
    ) -> None:
        peer = self._find_peer(params, related)
        if peer is None and method in INTERACTIVE_METHODS and related not in self._pending:
            self._note_unasked(method, params)
        try:
            result = with_related_task(await self._answer(method, params, peer), params)
        except RefusalError as refusal:
            await self._send(build_error_response(request_id, refusal.code, str(refusal), refusal.data))
        else:
            await self._send({"jsonrpc": "2.0", "id": request_id, "result": result})
            if method == ROOTS_METHOD:
                self.roots_sent.set()

    async def _send(self, message: Message) -> None:
        try:
            async with asyncio.timeout(NOTICE_TIMEOUT):
                await self.transport.send(message)
        except (MCPError, TimeoutError) as error:
            log.debug("mcp.answer_not_sent", server=self.errors.server, error=error)

    def _apply_progress(self, params: Mapping[str, Any]) -> None:
        token = params.get("progressToken")
        if not isinstance(token, int | str):
            return
        pending = self._pending.get(token)
        if pending is not None:
            pending.extend(asyncio.get_running_loop().time())
        on_progress = pending.on_progress if pending is not None else self.task_watches.find_listener(token)
        progress, total, text = params.get("progress"), params.get("total"), params.get("message")
        if on_progress is not None and isinstance(progress, int | float):
            try:
                on_progress(
                    progress, total if isinstance(total, int | float) else None, text if isinstance(text, str) else None
                )
            # An error of the listener must not end the task that reads the answers.
            except Exception as error:
                log.error("mcp.listener_failed", server=self.errors.server, error=repr(error))

    def _cancel_request(self, params: Mapping[str, Any]) -> None:
        request_id = params.get("requestId")
        if not isinstance(request_id, int | str):
            return
        task = self._answer_tasks.get(request_id)
        if task is not None:
            task.cancel()
        else:
            self.transport.end_request(request_id, str(params.get("reason") or "no reason given"))

    def _deadline_error(self, method: str, seconds: float | None) -> MCPError:
        if method != "tools/call":
            stderr = self.transport.stderr_tail()
            quoted = f" Its last words:\n{stderr}" if stderr else ""
            return self.errors.timeout(method, f"no answer within {seconds:g} s.{quoted}", stderr=stderr or None)
        text = f"no answer within {seconds:g} s. {OUTCOME_UNKNOWN} Raise 'request_timeout' if the tool needs longer."
        return self.errors.timeout("call", text, outcome="unknown", seconds=seconds)

    def _protocol_error(self, method: str, response: Message) -> MCPError:
        phase = "call" if method == "tools/call" else method
        error = response.get("error")
        if not isinstance(error, dict):
            raw = self.errors.excerpt(str(response))
            return self.errors.protocol(phase, f"the answer has neither a result nor an error: {raw}", raw=raw)
        code, text = error.get("code"), self.errors.excerpt(str(error.get("message") or "no message"))
        return self.errors.protocol(
            phase,
            f"{text} (error {code})",
            code=code,
            message=text,
            data=error.get("data"),
            status=response.get("status"),
        )


def _error_kind(error: MCPError, code: object) -> str:
    """Return the kind of an error for a span: the JSON-RPC code of the server, or the class of the error."""
    if code is not None:
        return str(code)
    return "timeout" if isinstance(error, MCPTimeoutError) else type(error).__name__


def _with_notice(result: Message) -> Message:
    """Return the result of a call, with a text for the model about the question that was declined."""
    content = result.get("content")
    if not isinstance(content, list):
        return result
    return {**result, "content": [*content, {"type": "text", "text": QUESTION_UNASSIGNED}]}
