"""The protocol on top of a channel: requests with a deadline that progress extends, cancellation, both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.lib.limits import MAX_EXTENDED_CALL, MAX_SERVER_REQUESTS, NOTICE_TIMEOUT
from holodeck.tools.mcp.callbacks import INTERACTIVE, ROOTS, Answers, RefusalError
from holodeck.tools.mcp.channel import Channel, Delivery, Incoming
from holodeck.tools.mcp.era import (
    CLIENT_INFO,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_VERSION,
    Era,
    Terms,
    mapping,
)
from holodeck.tools.mcp.faults import OUTCOME_UNKNOWN, Faults
from holodeck.tools.mcp.jsonrpc import INTERNAL_ERROR, Message, RequestId, error_response
from holodeck.tools.mcp.serverlog import ServerLog

OnProgress = Callable[[float, float | None, str | None], None]
"""Called with progress, total (if known) and message (if any)."""
_LONG = frozenset({"tools/call", "prompts/get"})  # what may take long enough to report progress
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class _Call:
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
        make_channel: Callable[[Incoming], Channel],
        *,
        faults: Faults,
        answers: Answers,
        on_notice: Callable[[Message], None],
        spawn: Spawn,
    ) -> None:
        self.faults = faults
        self.terms: Terms | None = None
        self._answers = answers
        self._on_notice = on_notice
        self._spawn = spawn
        self._ids = count(1)
        self._calls: dict[RequestId, _Call] = {}
        self._quiet: asyncio.Event | None = None
        self._given_up: MCPError | None = None
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._log = ServerLog(faults.server if faults.is_heard else None)
        self._meta: dict[str, Any] = {}
        self.roots_asked = False
        self.roots_given = asyncio.Event()
        self.channel = make_channel(self.incoming)

    def agree(self, terms: Terms) -> None:
        """From here on every message follows these terms."""
        self.terms = terms
        self._meta = self.modern_meta(terms.version) if terms.era is Era.MODERN else {}
        self.channel.established(terms.version, is_modern=terms.era is Era.MODERN)

    def modern_meta(self, version: str) -> dict[str, Any]:
        """What a modern request says of its sender."""
        return {
            META_VERSION: version,
            META_CAPABILITIES: self._answers.capabilities(Era.MODERN),
            META_CLIENT: CLIENT_INFO,
            META_LOG_LEVEL: self._log.level(),
        }

    def legacy_capabilities(self) -> dict[str, Any]:
        return self._answers.capabilities(Era.LEGACY)

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
        if method in _LONG:
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
                    self._calls[request_id] = _Call(clock, seconds, latest, on_progress)
                delivery = delivery or Delivery()
                delivery.request_id = request_id
                response = await self.channel.request(message, delivery)
        except TimeoutError as error:
            if is_cancellable and clock.expired() and self._given_up is None:
                self.channel.cancel(request_id, "the client's time limit for this request is over")
            raise self._out_of_time(error, clock, method, seconds) from error
        except asyncio.CancelledError:
            if is_cancellable:
                self.channel.cancel(request_id, "the caller was cancelled")
            raise
        finally:
            self._calls.pop(request_id, None)
            if self._quiet is not None and not self._calls:
                self._quiet.set()
        result = response.get("result")
        if type(result) is dict:
            return result
        raise self._refused(method, response)

    async def quiet(self) -> None:
        """Wait until no call is under way."""
        if self._calls:
            self._quiet = asyncio.Event()
            await self._quiet.wait()

    def give_up(self) -> None:
        """End every call that is still under way. Closing a channel need not wake who reads from it."""
        self._given_up = self.faults.connection("close", "the connection was closed.")
        now = asyncio.get_running_loop().time()
        for call in self._calls.values():
            if not call.clock.expired():
                call.clock.reschedule(now)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send what needs no answer."""
        message: Message = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        async with asyncio.timeout(NOTICE_TIMEOUT):
            await self.channel.send(message)

    def incoming(self, message: Message) -> None:
        """A notification or a request of the server."""
        method, request_id = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return
        if isinstance(request_id, int | str):
            self._asked(request_id, method, mapping(message.get("params")))
            return
        params = mapping(message.get("params"))
        if method == "notifications/progress":
            self._progressed(params)
        elif method == "notifications/message":
            self._log.write(params)
        elif method == "notifications/cancelled":
            self._cancelled(params)
        self._on_notice(message)

    async def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a question of the server; while a person or a model thinks, no call of ours runs out of time."""
        if method not in INTERACTIVE:
            return await self._answers.answer(method, params)
        with self._clocks_stopped():
            return await self._answers.answer(method, params)

    def _asked(self, request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
        if len(self._answering) >= MAX_SERVER_REQUESTS:
            self._spawn(self._send(error_response(request_id, INTERNAL_ERROR, "Too many requests at once")))
            return
        self.roots_asked = self.roots_asked or method == ROOTS
        task = self._spawn(self._respond(request_id, method, params))
        self._answering[request_id] = task
        task.add_done_callback(lambda _: self._answering.pop(request_id, None))

    async def _respond(self, request_id: RequestId, method: str, params: Mapping[str, Any]) -> None:
        try:
            result = await self.answer(method, params)
        except RefusalError as refusal:
            await self._send(error_response(request_id, refusal.code, str(refusal)))
        else:
            await self._send({"jsonrpc": "2.0", "id": request_id, "result": result})
            if method == ROOTS:
                self.roots_given.set()

    async def _send(self, message: Message) -> None:
        try:
            async with asyncio.timeout(NOTICE_TIMEOUT):
                await self.channel.send(message)
        except (MCPError, TimeoutError) as error:
            log.debug("mcp.answer_not_sent", server=self.faults.server, error=error)

    def _progressed(self, params: Mapping[str, Any]) -> None:
        token = params.get("progressToken")
        call = self._calls.get(token) if isinstance(token, int | str) else None
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
                log.error("mcp.listener_failed", server=self.faults.server, error=repr(error))

    def _cancelled(self, params: Mapping[str, Any]) -> None:
        request_id = params.get("requestId")
        if not isinstance(request_id, int | str):
            return
        task = self._answering.get(request_id)
        if task is not None:
            task.cancel()
        else:
            self.channel.end_request(request_id, str(params.get("reason") or "no reason given"))

    @contextmanager
    def _clocks_stopped(self) -> Iterator[None]:
        calls = list(self._calls.values())
        for call in calls:
            if not call.clock.expired():
                call.clock.reschedule(call.latest)
        try:
            yield
        finally:
            now = asyncio.get_running_loop().time()
            for call in self._calls.values():
                if call in calls and not call.clock.expired():
                    call.clock.reschedule(min(now + call.step, call.latest))

    def _out_of_time(self, error: TimeoutError, clock: asyncio.Timeout, method: str, seconds: float | None) -> MCPError:
        if self._given_up is not None:
            return self._given_up
        if not clock.expired():  # something below ran out of its own time
            return self.faults.timeout(method, str(error) or "the connection took too long")
        return self._too_late(method, seconds)

    def _too_late(self, method: str, seconds: float | None) -> MCPError:
        if method != "tools/call":
            words = self.channel.last_words()
            said = f" Its last words:\n{words}" if words else ""
            return self.faults.timeout(method, f"no answer within {seconds:g} s.{said}", stderr=words or None)
        text = f"no answer within {seconds:g} s. {OUTCOME_UNKNOWN} Raise 'request_timeout' if the tool needs longer."
        return self.faults.timeout("call", text, outcome="unknown", seconds=seconds)

    def _refused(self, method: str, response: Message) -> MCPError:
        phase = "call" if method == "tools/call" else method
        error = response.get("error")
        if not isinstance(error, dict):
            raw = self.faults.excerpt(str(response))
            return self.faults.protocol(phase, f"the answer has neither a result nor an error: {raw}", raw=raw)
        code, text = error.get("code"), self.faults.excerpt(str(error.get("message") or "no message"))
        return self.faults.protocol(
            phase, f"{text} (error {code})", code=code, data=error.get("data"), status=response.get("status")
        )
