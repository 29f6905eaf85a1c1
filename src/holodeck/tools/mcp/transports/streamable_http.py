"""The streamable HTTP transport: each request is a POST in the task of its caller, so that no failure is shared.

The response is JSON or an event stream. A legacy server may have a session, which `close` ends with a DELETE, and a
stream of its own for notifications, which one background task reads and reopens. A stream that breaks before the answer
is resumed where a legacy server gave event ids. To a modern server, closing the response is the cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.call_errors import OUTCOME_UNKNOWN
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.lib.json.parse import JSONLimitError
from holodeck.lib.limits import MAX_HTTP_ERROR_BYTES, MAX_STREAM_RETRY, NOTICE_TIMEOUT, STREAM_RETRY
from holodeck.lib.net.http1 import BodyTooLargeError, HTTP1Response
from holodeck.lib.net.sse import EventStream, EventTooLargeError
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, build_cancellation, decode, encode
from holodeck.tools.mcp.protocol.versions import META_VERSION
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup, send_quietly
from holodeck.tools.mcp.transports.http_exchange import ServerHTTPClient
from holodeck.tools.mcp.transports.http_headers import build_routing_headers

# Seconds before a stream is opened again, at least: a server may name 0 and end every stream at once.
MIN_STREAM_RETRY = 0.05
# Times that the stream of one answer is resumed before the call fails.
STREAM_RESUMES = 3
# Seconds for a server to end an event stream after its answer, so that the connection can be reused.
STREAM_TAIL_TIMEOUT = 0.05

FIRST_ERROR_STATUS = 300
_FIRST_SERVER_ERROR = 500
# Answers to a session that the server does not know, such as after its restart.
_STALE_STATUSES = frozenset({400, 404})
# Answers to the end of a session: it is unknown to the server, or clients cannot end sessions.
_NO_SESSION_TO_END = frozenset({404, 405, 501})
# Statuses about the caller or its rate: the JSON-RPC error in the body, if any, is not the answer of the request.
_CALLER_STATUSES = frozenset({401, 403, 429})
_NO_ANSWER_STATUSES = frozenset({202, 204})
_ACCEPT_EVENTS = {"Accept": "text/event-stream"}
_JSON_HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_PHASES = {"tools/call": "call", "server/discover": "initialize"}


@dataclass(kw_only=True)
class ResponseStreams:
    """Reads the event streams of one server: those of answers, and the server's own."""

    http: ServerHTTPClient
    headers: Callable[[], dict[str, str]]
    """Returns the headers of every request of the session."""
    on_message: OnMessage
    limit: int
    read_timeout: float
    budget: ByteBudget
    last_received_at: float = 0.0
    _can_await_end: bool = True

    def extract_answer(self, data: bytes, request_id: RequestId | None, phase: str) -> Message | None:
        """Return the answer to this request, or None. Notifications and requests in `data` go to `on_message`."""
        self.last_received_at = asyncio.get_running_loop().time()
        try:
            decoded = self.http.errors.mask_message(decode(data), data)
        except ValueError as error:
            raw = self.http.errors.excerpt(data)
            problem = error if isinstance(error, JSONLimitError) else f"not JSON ({error})"
            text = f"the answer is {problem}. It begins: {raw}"
            raise self.http.errors.protocol(phase, text, raw=raw) from error
        if type(decoded) is dict and "method" not in decoded and decoded.get("id") == request_id:
            return decoded
        answer: Message | None = None
        for message in decoded if isinstance(decoded, list) else [decoded]:
            if not isinstance(message, dict):
                continue
            if "method" in message:
                # What comes on the stream of a request belongs to that request.
                self.on_message(message, request_id)
            elif message.get("id") == request_id or ("error" in message and message.get("id") is None):
                answer = message
        return answer

    async def read_answer(
        self,
        response: HTTP1Response,
        request_id: RequestId,
        phase: str,
        *,
        can_resume: bool,
        reserved: Reservation,
    ) -> Message:
        """Read the answer from an event stream, resuming the stream after a break if `can_resume`.

        `reserved` holds the bytes of the answer. Raises MCPError.
        """
        last_id: str | None = None
        retry: float | None = None
        for _ in range(STREAM_RESUMES + 1):
            stream = EventStream(response, read_timeout=self.read_timeout, limit=self.limit, budget=self.budget)
            broke: Exception | None = None
            try:
                answer = await self._read_until_answer(stream, request_id, phase, reserved)
                if answer is not None:
                    await self._drain(response)
                    return answer
            except OSError as error:
                broke = error
            finally:
                stream.close()
                response.close()
            last_id = stream.last_id or last_id
            retry = stream.retry if stream.retry is not None else retry
            if last_id is None or not can_resume:
                raise self._stream_error(phase, "the event stream ended without the answer.") from broke
            await asyncio.sleep(_retry_pause(retry))
            response = await self._resume(last_id, phase)
        response.close()
        raise self._stream_error(phase, f"the event stream broke more than {STREAM_RESUMES} times.")

    async def listen(self, failure: asyncio.Future[Any]) -> None:
        """Read a legacy server's own stream of notifications and requests, reopening it until `failure` is done."""
        last_id, failures, was_open = "", 0, False
        while not failure.done():
            headers = {**self.headers(), **_ACCEPT_EVENTS, **({"Last-Event-ID": last_id} if last_id else {})}
            retry: float | None = None
            try:
                response = await self.http.send("GET", headers)
                with closing(response):
                    if response.status < FIRST_ERROR_STATUS and response.content_type == _ACCEPT_EVENTS["Accept"]:
                        failures, was_open = 0, True
                        stream = EventStream(
                            response, read_timeout=self.read_timeout, limit=self.limit, budget=self.budget
                        )
                        try:
                            while (event := await stream.next()) is not None:
                                last_id = stream.last_id or last_id
                                self.extract_answer(event[1], None, "listen")
                        finally:
                            stream.close()
                        last_id, retry = stream.last_id or last_id, stream.retry
                    elif response.status < _FIRST_SERVER_ERROR:
                        # The server has no such stream, or no longer knows the session.
                        log.debug("mcp.no_stream", server=self.http.errors.server, status=response.status)
                        if was_open and response.status in _STALE_STATUSES and not failure.done():
                            text = f"HTTP {response.status}: it no longer knows the session."
                            failure.set_result(self.http.errors.connection("listen", text, stale_session=True))
                        return
                    else:
                        failures += 1
            except (MCPError, EventTooLargeError, OverBudgetError, OSError) as error:
                failures += 1
                log.debug("mcp.stream_broke", server=self.http.errors.server, error=error, failures=failures)
            await asyncio.sleep(_retry_pause(retry, failures))

    def too_large_error(self, phase: str) -> MCPError:
        text = f"the answer has more than {self.limit} bytes; see 'max_result_bytes'"
        return self.http.errors.protocol(phase, text)

    async def _read_until_answer(
        self, stream: EventStream, request_id: RequestId, phase: str, reserved: Reservation
    ) -> Message | None:
        while True:
            try:
                event = await stream.next()
            except TimeoutError as error:
                text = f"the event stream was silent for {self.read_timeout:g} s ('sse_read_timeout')."
                unknown = f" {OUTCOME_UNKNOWN}" if phase == "call" else ""
                raise self.http.errors.timeout(phase, text + unknown) from error
            except EventTooLargeError as error:
                raise self.too_large_error(phase) from error
            if event is None:
                return None
            answer = self.extract_answer(event[1], request_id, phase)
            if answer is not None:
                reserved.extend(len(event[1]))
                return answer

    async def _drain(self, response: HTTP1Response) -> None:
        """Wait shortly for the end of the stream, which most servers send at once: the connection can be reused.

        After one server has not done so, its streams are not waited for again.
        """
        if response.is_at_end or not self._can_await_end:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + STREAM_TAIL_TIMEOUT
        try:
            while await response.read(max(until - loop.time(), 0)):
                pass
        except OSError:
            self._can_await_end = False

    async def _resume(self, last_id: str, phase: str) -> HTTP1Response:
        headers = {**self.headers(), **_ACCEPT_EVENTS, "Last-Event-ID": last_id}
        response = await self.http.send("GET", headers)
        if response.status >= FIRST_ERROR_STATUS:
            try:
                raise await self.http.read_failure(response, phase)
            finally:
                response.close()
        return response

    def _stream_error(self, phase: str, text: str) -> MCPError:
        is_call = phase == "call"
        shown = f"{text} {OUTCOME_UNKNOWN}" if is_call else text
        return self.http.errors.connection(phase, shown, outcome="unknown" if is_call else None)


def _retry_pause(retry: float | None, failures: int = 0) -> float:
    """Return the pause that the server named, within bounds, or else one that doubles with each failure."""
    if retry is None:
        # `failures + 1`: a stream that ended without an error counts as none, and is reopened after the first pause.
        return backoff_pause(failures + 1, first=STREAM_RETRY, longest=MAX_STREAM_RETRY)
    return min(max(retry, MIN_STREAM_RETRY), MAX_STREAM_RETRY)


class StreamableHTTPTransport:
    """Sends requests to a server by its URL."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage) -> None:
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[MCPConnectionError] = self._loop.create_future()
        self._http = ServerHTTPClient(setup)
        self._errors = setup.errors
        self._streams = ResponseStreams(
            http=self._http,
            headers=self._build_headers,
            on_message=on_message,
            limit=setup.message_limit,
            read_timeout=setup.tool.sse_read_timeout,
            budget=setup.budget,
        )
        self._budget = setup.budget
        self._terminate_on_close = setup.tool.terminate_on_close
        self._session_id: str | None = None
        self._version: str | None = None
        self._is_modern = False
        # The headers of every request of a legacy session, once it is negotiated.
        self._legacy_headers: dict[str, str] | None = None
        self._tasks = TaskSet()

    async def open(self) -> None:
        self._http.open()

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        self._version, self._is_modern = version, is_modern
        self._legacy_headers = None if is_modern else self._build_headers()

    async def request(self, message: Message, delivery: Delivery) -> Message:
        if self.failure.done():
            raise self.failure.result()
        phase = _PHASES.get(message["method"], str(message["method"]))
        reserved = delivery.reserved or Reservation(self._budget)
        response: HTTP1Response | None = None
        try:
            response = await self._post(message, delivery)
            return await self._read_answer(response, message, phase, reserved)
        except OverBudgetError as error:
            raise self._errors.over_budget(phase) from error
        except OSError as error:
            raise self._http.connection_error(error, phase, delivery) from error
        finally:
            if reserved is not delivery.reserved:
                reserved.release()
            # Not read to its end: to a modern server, closing the response is the cancellation.
            if response is not None:
                response.close()

    def cancel(self, request_id: RequestId, reason: str) -> None:
        if not self._is_modern:
            self._tasks.start(send_quietly(self.send, build_cancellation(request_id, reason)))

    def end_request(self, request_id: RequestId, reason: str) -> None:
        return

    async def send(self, message: Message) -> None:
        try:
            response = await self._post(message, Delivery())
        except OSError as error:
            raise self._http.connection_error(error, str(message.get("method", "answer"))) from error
        try:
            if response.status >= FIRST_ERROR_STATUS:
                raise await self._http.read_failure(response, str(message.get("method", "answer")))
        finally:
            response.close()
        if message.get("method") == "notifications/initialized" and self._session_id is not None:
            name = f"mcp-listen:{self._errors.server}"
            self._tasks.supervise(partial(self._streams.listen, self.failure), name=name)

    def is_stuck(self, since: float) -> bool:
        return False

    def fail(self, error: MCPConnectionError) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    def last_received_at(self) -> float:
        return self._streams.last_received_at

    def stderr_tail(self) -> str:
        return ""

    def stray_output(self) -> str:
        return ""

    async def close(self) -> None:
        await self._tasks.close(NOTICE_TIMEOUT)
        try:
            if self._session_id is not None and self._terminate_on_close and not self.failure.done():
                await self._end_session()
        finally:
            await self._http.close()

    def _build_headers(self, message: Message | None = None) -> dict[str, str]:
        headers = dict(_JSON_HEADERS)
        params = message.get("params", {}) if message is not None else {}
        modern_version = params.get("_meta", {}).get(META_VERSION) if isinstance(params, dict) else None
        if message is not None and modern_version is not None:
            headers["MCP-Protocol-Version"] = modern_version
            headers.update(build_routing_headers(message["method"], params))
        elif self._version is not None and (message is None or message.get("method") != "initialize"):
            headers["MCP-Protocol-Version"] = self._version
        if self._session_id is not None:
            headers["Mcp-Session-Id"] = self._session_id
        return headers

    def _post(self, message: Message, delivery: Delivery) -> Awaitable[HTTP1Response]:
        headers = self._legacy_headers or self._build_headers(message)
        if delivery.headers:
            headers = {**headers, **delivery.headers}
        return self._http.send("POST", headers, encode(message), report=delivery)

    async def _read_answer(
        self, response: HTTP1Response, message: Message, phase: str, reserved: Reservation
    ) -> Message:
        if response.status >= FIRST_ERROR_STATUS:
            return await self._read_refusal(response, message["id"], phase)
        if response.status in _NO_ANSWER_STATUSES:
            raise self._errors.protocol(phase, f"HTTP {response.status}: the request was taken, but not answered")
        if message["method"] == "initialize":
            self._session_id = response.headers.get("mcp-session-id")
        kind = response.content_type
        if kind == "text/event-stream":
            return await self._streams.read_answer(
                response, message["id"], phase, can_resume=not self._is_modern, reserved=reserved
            )
        if kind != "application/json":
            excerpt = self._errors.excerpt(await response.read_excerpt(MAX_HTTP_ERROR_BYTES))
            text = f"the answer is {kind}, not JSON. Is 'url' the address of an MCP server? It begins: {excerpt}"
            raise self._errors.protocol(phase, text, content_type=kind, raw=excerpt)
        try:
            body = await response.read_all(self._streams.limit, reserved)
        except BodyTooLargeError as error:
            raise self._streams.too_large_error(phase) from error
        answer = self._streams.extract_answer(body, message["id"], phase)
        if answer is None:
            excerpt = self._errors.excerpt(body)
            raise self._errors.protocol(phase, f"the answer does not belong to the request: {excerpt}", raw=excerpt)
        return answer

    async def _read_refusal(self, response: HTTP1Response, request_id: RequestId, phase: str) -> Message:
        error = await self._http.read_rpc_error(response)
        is_stale = self._session_id is not None and response.status in _STALE_STATUSES
        is_answer = error is not None and (error.get("id") == request_id or not is_stale)
        if error is not None and is_answer and response.status not in _CALLER_STATUSES:
            return {"jsonrpc": "2.0", "id": request_id, "error": error["error"], "status": response.status}
        failure = await self._http.read_failure(response, phase)
        if is_stale and isinstance(failure, MCPConnectionError):
            failure.details["stale_session"] = True
            self.fail(failure)
        raise failure

    async def _end_session(self) -> None:
        try:
            async with asyncio.timeout(NOTICE_TIMEOUT):
                response = await self._http.send("DELETE", self._build_headers())
                response.close()
        except OSError as error:
            raise self._http.connection_error(error, "close") from error
        if response.status >= FIRST_ERROR_STATUS and response.status not in _NO_SESSION_TO_END:
            raise self._errors.connection("close", f"HTTP {response.status} for the end of the session.")
