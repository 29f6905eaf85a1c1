"""The protocol on top of a channel: requests with a deadline that progress extends, cancellation, both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.tools.mcp.errors import OUTCOME_UNKNOWN, ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, Message, RequestId, build_error_response
from holodeck.tools.mcp.protocol.server_log import ServerLog
from holodeck.tools.mcp.protocol.server_requests import (
    INTERACTIVE_METHODS,
    ROOTS_METHOD,
    RefusalError,
    ServerRequestResponder,
)
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

# A call that keeps reporting progress still ends after half an hour.
MAX_EXTENDED_CALL = 1_800.0
# Questions of one server answered at once.
MAX_SERVER_REQUESTS = 64


OnProgress = Callable[[float, float | None, str | None], None]
"""Called with progress, total (if known) and message (if any)."""
_LONG_METHODS = frozenset({"tools/call", "prompts/get"})  # what may take long enough to report progress
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class _PendingRequest:
    """A request that is under way."""

    __slots__ = ("clock", "latest", "on_progress", "step")

    def __init__(self, clock: asyncio.Timeout, step: float, latest: float, on_progress: OnProgress | None) -> None:
        self.clock = clock
        self.step = step
        self.latest = latest
        self.on_progress = on_progress

    def extend(self, now: float) -> None:
        """A sign of life: the full time again, but never past the latest end."""
        until = min(now + self.step, self.latest)
        current = self.clock.when()
        # Moving the clock costs more than a notice does; a flood of notices moves it a few dozen times.
        if current is not None and until - current > self.step * 0.02:
            self.clock.reschedule(until)


class Session:
    """A conversation with one server over one channel."""

    def __init__(
        self,
        build_transport: Callable[[OnMessage], Transport],
        *,
        errors: ErrorFactory,
        responder: ServerRequestResponder,
        on_notification: Callable[[Message], None],
        spawn: Spawn,
    ) -> None:
        self.errors = errors
        self.terms: NegotiatedTerms | None = None
        self._responder = responder
        self._on_notification = on_notification
        self._spawn = spawn
        self._ids = count(1)
        self._pending: dict[RequestId, _PendingRequest] = {}
        self._idle: asyncio.Event | None = None
        self._close_error: MCPError | None = None
        self._answer_tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._log = ServerLog(errors.server if errors.is_server_logged else None)
        self._meta: dict[str, Any] = {}
        self.is_roots_requested = False
        self.roots_sent = asyncio.Event()
        self.transport = build_transport(self.dispatch_message)

    def set_terms(self, terms: NegotiatedTerms) -> None:
        """From here on every message follows these terms."""
        self.terms = terms
        self._meta = self.modern_meta(terms.version) if terms.era is ProtocolEra.MODERN else {}
        self.transport.set_protocol_version(terms.version, is_modern=terms.era is ProtocolEra.MODERN)

    def modern_meta(self, version: str) -> dict[str, Any]:
        """What a modern request says of its sender."""
        return {
            META_VERSION: version,
            META_CAPABILITIES: self._responder.capabilities(ProtocolEra.MODERN),
            META_CLIENT: CLIENT_INFO,
            META_LOG_LEVEL: self._log.level(),
        }

    def legacy_capabilities(self) -> dict[str, Any]:
        return self._responder.capabilities(ProtocolEra.LEGACY)

    @property
    def has_roots(self) -> bool:
        return "roots" in self.legacy_capabilities()

    def log_level(self) -> str:
        return self._log.level()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        seconds: float | None,
        delivery: Delivery | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        is_cancellable: bool = True,
    ) -> Message:
        """Send a request and return its result. A deadline, a refusal or a loss is an MCPError."""
        request_id = next(self._ids)
        sent_meta = {**self._meta, **(meta or {})}
        if method in _LONG_METHODS:
            sent_meta["progressToken"] = request_id
        message: Message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if sent_meta:
            message["params"] = {**(params or {}), "_meta": sent_meta}
        elif params:
            message["params"] = params
        try:
            async with asyncio.timeout(seconds) as clock:
                if seconds is not None:
                    now = asyncio.get_running_loop().time()
                    latest = now + max(seconds, MAX_EXTENDED_CALL)
                    self._pending[request_id] = _PendingRequest(clock, seconds, latest, on_progress)
                delivery = delivery or Delivery()
                delivery.request_id = request_id
                response = await self.transport.request(message, delivery)
        except TimeoutError as error:
            if is_cancellable and clock.expired() and self._close_error is None:
                self.transport.cancel(request_id, "the client's time limit for this request is over")
            raise self._timeout_error(error, clock, method, seconds) from error
        except asyncio.CancelledError:
            if is_cancellable:
                self.transport.cancel(request_id, "the caller was cancelled")
            raise
        finally:
            self._pending.pop(request_id, None)
            if self._idle is not None and not self._pending:
                self._idle.set()
        result = response.get("result")
        if type(result) is dict:
            return result
        raise self._protocol_error(method, response)

    async def wait_idle(self) -> None:
        """Wait until no call is under way."""
        if self._pending:
            self._idle = asyncio.Event()
            await self._idle.wait()

    def abort_calls(self) -> None:
        """End every call that is still under way. Closing a channel need not wake who reads from it."""
        self._close_error = self.errors.connection("close", "the connection was closed.")
        now = asyncio.get_running_loop().time()
        for call in self._pending.values():
            if not call.clock.expired():
                call.clock.reschedule(now)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send what needs no answer."""
        message: Message = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        async with asyncio.timeout(NOTICE_TIMEOUT):
            await self.transport.send(message)

    def dispatch_message(self, message: Message) -> None:
        """A notification or a request of the server."""
        method, request_id = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return
        if isinstance(request_id, int | str):
            self._answer_request(request_id, method, mapping(message.get("params")))
            return
        params = mapping(message.get("params"))
        if method == "notifications/progress":
            self._apply_progress(params)
        elif method == "notifications/message":
            self._log.write(params)
        elif method == "notifications/cancelled":
            self._cancel_request(params)
        self._on_notification(message)

    async def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a question of the server; while a person or a model thinks, no call of ours runs out of time."""
        if method not in INTERACTIVE_METHODS:
            return await self._responder.respond(method, params)
        with self._pause_clocks():
            return await self._responder.respond(method, params)

    def _answer_request(self, request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
        if len(self._answer_tasks) >= MAX_SERVER_REQUESTS:
            self._spawn(self._send(build_error_response(request_id, INTERNAL_ERROR, "Too many requests at once")))
            return
        self.is_roots_requested = self.is_roots_requested or method == ROOTS_METHOD
        task = self._spawn(self._respond(request_id, method, params))
        self._answer_tasks[request_id] = task
        task.add_done_callback(lambda _: self._answer_tasks.pop(request_id, None))

    async def _respond(self, request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
        try:
            result = await self.answer(method, params)
        except RefusalError as refusal:
            await self._send(build_error_response(request_id, refusal.code, str(refusal)))
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
        call = self._pending.get(token) if isinstance(token, int | str) else None
        if call is None:
            return
        call.extend(asyncio.get_running_loop().time())
        progress, total, text = params.get("progress"), params.get("total"), params.get("message")
        if call.on_progress is not None and isinstance(progress, int | float):
            try:
                call.on_progress(
                    progress, total if isinstance(total, int | float) else None, text if isinstance(text, str) else None
                )
            except Exception as error:  # the listener's trouble must not stop the reading of answers
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

    @contextmanager
    def _pause_clocks(self) -> Iterator[None]:
        calls = list(self._pending.values())
        for call in calls:
            if not call.clock.expired():
                call.clock.reschedule(call.latest)
        try:
            yield
        finally:
            now = asyncio.get_running_loop().time()
            for call in self._pending.values():
                if call in calls and not call.clock.expired():
                    call.clock.reschedule(min(now + call.step, call.latest))

    def _timeout_error(
        self, error: TimeoutError, clock: asyncio.Timeout, method: str, seconds: float | None
    ) -> MCPError:
        if self._close_error is not None:
            return self._close_error
        if not clock.expired():  # something below ran out of its own time
            return self.errors.timeout(method, str(error) or "the connection took too long")
        return self._deadline_error(method, seconds)

    def _deadline_error(self, method: str, seconds: float | None) -> MCPError:
        if method != "tools/call":
            words = self.transport.stderr_tail()
            said = f" Its last words:\n{words}" if words else ""
            return self.errors.timeout(method, f"no answer within {seconds:g} s.{said}", stderr=words or None)
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
            phase, f"{text} (error {code})", code=code, data=error.get("data"), status=response.get("status")
        )
