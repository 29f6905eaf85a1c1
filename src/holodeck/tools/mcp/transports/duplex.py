"""Matches responses to requests on transports with one stream of messages in each direction.

A pending request is a future in a table, not a task. A message that cannot be parsed fails only the request that it
answers, where its id can still be read; every other request goes on. An answer with an id that was never sent fails no
request: it is discarded, and the first one on a connection is logged.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from holodeck.lib import log
from holodeck.lib.byte_budget import OverBudgetError, Reservation
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.json.parse import JSONLimitError
from holodeck.tools.mcp.protocol.jsonrpc import Message, PrettyPrintedAnswer, RequestId, decode, sniff_id
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup

UNEXPECTED_ANSWER = "no request waits for this answer"
"""Why an answer is discarded that comes too late, or that no request has asked for."""


class DuplexTransport(ABC):
    """Base of stdio, SSE and WebSocket. A subclass passes incoming bytes to `receive` and sends in `_deliver`."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage) -> None:
        self._budget = setup.budget
        self._limit = setup.message_limit
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[MCPConnectionError] = self._loop.create_future()
        self._errors = setup.errors
        self._on_message = on_message
        self._pending: dict[RequestId, tuple[asyncio.Future[Message], Reservation]] = {}
        """By request, the future of its answer, and the reservation for the bytes of the answer."""
        self._open_ended: set[RequestId] = set()
        self._highest_id = 0
        self._received_at = 0.0
        self._pretty = PrettyPrintedAnswer()
        self.discarded_count = 0
        """Messages that could not be parsed, or that answer no pending request."""
        self._first_stray = ""
        self._is_stray_answer_logged = False

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _deliver(self, message: Message, delivery: Delivery) -> None:
        """Send the message. Marks `delivery` as sent before the first byte may leave."""

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        return

    async def request(self, message: Message, delivery: Delivery) -> Message:
        if self.failure.done():
            raise self.failure.result()
        request_id = message["id"]
        future: asyncio.Future[Message] = self._loop.create_future()
        reserved = delivery.reserved or Reservation(self._budget)
        self._pending[request_id] = future, reserved
        if type(request_id) is int:
            self._highest_id = request_id
        if delivery.is_open_ended:
            self._open_ended.add(request_id)
        try:
            await self._deliver(message, delivery)
            return await future
        finally:
            if reserved is not delivery.reserved:
                reserved.release()
            del self._pending[request_id]
            if delivery.is_open_ended:
                self._open_ended.discard(request_id)

    async def send(self, message: Message) -> None:
        if not self.failure.done():
            await self._deliver(message, Delivery())

    def cancel(self, request_id: RequestId, reason: str) -> None:
        raise NotImplementedError

    def end_request(self, request_id: RequestId, reason: str) -> None:
        self._fail_request(request_id, self._errors.protocol("call", f"the server ended the request: {reason}"))

    def is_stuck(self, since: float) -> bool:
        return False

    def last_received_at(self) -> float:
        return self._received_at

    def stderr_tail(self) -> str:
        return ""

    def stray_output(self) -> str:
        return ""

    def receive(self, raw: bytes | bytearray) -> None:
        """Parse and dispatch one message."""
        self._received_at = self._loop.time()
        try:
            # On the event loop, whatever the size: the parser holds the GIL, so that in a thread it would block the
            # loop just as long. Measured in both: 50 MB take 0.3 s as one string and 0.6 s as objects.
            # 'max_result_bytes' bounds the size.
            message = decode(raw)
        except ValueError as error:
            self._fail_unreadable(bytes(raw), error)
            return
        message = self._errors.mask_message(message, raw)
        if type(message) is dict and "method" not in message and "result" in message and "id" in message:
            self._resolve_answer(message, raw)
        else:
            self._dispatch(message, raw)

    def fail(self, error: MCPConnectionError) -> None:
        if not self.failure.done():
            self.failure.set_result(error)
        for future, _ in self._pending.values():
            if not future.done():
                future.set_exception(error)

    def _dispatch(self, message: object, raw: bytes | bytearray) -> None:
        if type(message) is dict:
            if "method" in message:
                self._on_message(message)
                return
            if "id" in message and ("result" in message or "error" in message):
                self._resolve_answer(message, raw)
                return
        # A batch, as protocol version 2025-03-26 allows.
        elif type(message) is list:
            for item in message:
                self._dispatch(item, raw)
            return
        self._record_stray(raw)
        self._discard("not a JSON-RPC message", raw)

    def _resolve_answer(self, message: Message, raw: bytes | bytearray) -> None:
        request_id = message["id"]
        # Some servers answer request 7 with the id "7". Compared as texts: thousands of digits cannot be parsed.
        if isinstance(request_id, str) and request_id not in self._pending:
            request_id = next((known for known in self._pending if str(known) == request_id), request_id)
        pending = self._pending.get(request_id) if isinstance(request_id, int | str) else None
        if pending is None:
            self._discard_unexpected(message["id"], message, raw)
            return
        future, reserved = pending
        if not future.done():
            try:
                reserved.extend(len(raw))
            except OverBudgetError:
                self._fail_request(request_id, self._errors.over_budget("call"))
            else:
                future.set_result(message)

    def _discard_unexpected(self, request_id: object, message: Message, raw: bytes | bytearray) -> None:
        calls = [pending for pending in self._pending if pending not in self._open_ended]
        if request_id is None and "error" in message and len(calls) == 1:
            # The server could not read a request. It can only be the pending one, and no other answer would come.
            text = f"the answer does not belong to any request ({self._errors.excerpt(str(message['error']))})"
            self._fail_request(calls[0], self._errors.protocol("call", text, raw=self._errors.excerpt(raw)))
        was_ours = isinstance(request_id, int) and 0 < request_id <= self._highest_id
        if not was_ours and not self._is_stray_answer_logged:
            self._is_stray_answer_logged = True
            log.warning("mcp.stray_answer", server=self._errors.server, raw=self._errors.excerpt(raw))
        self._discard(UNEXPECTED_ANSWER, raw)

    def _fail_unreadable(self, raw: bytes, error: ValueError) -> None:
        self._record_stray(raw)
        if isinstance(error, JSONLimitError):
            self._fail_answer(sniff_id(raw), str(error), raw)
            return
        request_id = self._pretty.find_id(raw)
        problem = "it is spread over several lines" if request_id is not None else str(error)
        self.fail_unusable(request_id if request_id is not None else sniff_id(raw), problem, raw)

    def fail_unusable(self, request_id: RequestId | None, problem: str, raw: bytes | bytearray) -> None:
        """Discard a message that is not JSON on one line, and fail the request that it answers, if the id is known."""
        self._fail_answer(request_id, f"not a JSON message on one line ({problem})", raw)

    def _fail_answer(self, request_id: RequestId | None, problem: str, raw: bytes | bytearray) -> None:
        self._discard(problem, raw)
        if request_id is not None:
            excerpt = self._errors.excerpt(raw)
            text = f"the answer is {problem}. It begins: {excerpt}"
            self._fail_request(request_id, self._errors.protocol("call", text, raw=excerpt))

    def _fail_request(self, request_id: RequestId, error: MCPError) -> None:
        pending = self._pending.get(request_id)
        if pending is not None and not pending[0].done():
            pending[0].set_exception(error)

    def _record_stray(self, raw: bytes | bytearray) -> None:
        """Store the beginning of the first text that is no message."""
        self._first_stray = self._first_stray or self._errors.excerpt(raw)

    def _discard(self, problem: str, raw: bytes | bytearray) -> None:
        self.discarded_count += 1
        log.debug(
            "mcp.discarded",
            server=self._errors.server,
            problem=problem,
            count=self.discarded_count,
            raw=self._errors.excerpt(raw),
        )
