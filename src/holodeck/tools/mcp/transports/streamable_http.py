"""Streamable HTTP: each request is a POST of its own in the caller's task, so a fault of one is never another's."""

from __future__ import annotations

import asyncio

import aiohttp

from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.limits import MAX_HTTP_ERROR_BYTES, NOTICE_TIMEOUT
from holodeck.lib.net import aiohttp_client
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, build_cancellation, encode
from holodeck.tools.mcp.protocol.versions import META_VERSION
from holodeck.tools.mcp.transports.base import Delivery, OnMessage
from holodeck.tools.mcp.transports.errands import SideTasks
from holodeck.tools.mcp.transports.http_exchange import ServerHTTPClient
from holodeck.tools.mcp.transports.http_headers import build_routing_headers
from holodeck.tools.mcp.transports.streams import CONNECTION_ERRORS, FIRST_ERROR_STATUS, ResponseStreams

_BAD_REQUEST = 400
_NOT_FOUND = 404
_NO_SESSION_TO_END = frozenset({404, 405, 501})  # it has forgotten the session, or never lets clients end one
_CALLER_STATUSES = frozenset({401, 403, 429})
_NO_ANSWER_STATUSES = frozenset({202, 204})
_JSON_HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_PHASES = {"tools/call": "call", "server/discover": "initialize"}


class StreamableHTTPTransport:
    """A server at a URL."""

    def __init__(
        self,
        http: ServerHTTPClient,
        *,
        on_message: OnMessage,
        limit: int,
        read_timeout: float,
        terminate_on_close: bool,
        budget: ByteBudget,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[MCPConnectionError] = self._loop.create_future()
        self._http = http
        self._errors = http.errors
        self._streams = ResponseStreams(
            http=http,
            headers=self._build_headers,
            on_message=on_message,
            limit=limit,
            read_timeout=read_timeout,
            budget=budget,
        )
        self._budget = budget
        self._terminate_on_close = terminate_on_close
        self._session_id: str | None = None
        self._version: str | None = None
        self._is_modern = False
        self._side_tasks = SideTasks()

    async def open(self) -> None:
        return

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        self._version, self._is_modern = version, is_modern

    async def request(self, message: Message, delivery: Delivery) -> Message:
        if self.failure.done():
            raise self.failure.result()
        phase = _PHASES.get(message["method"], str(message["method"]))
        response: aiohttp.ClientResponse | None = None
        returned = Reservation(self._budget)
        try:
            response = await self._post(message, delivery)
            return await self._read_answer(response, message, phase, delivery.reserved or returned)
        except OverBudgetError as error:
            raise self._errors.over_budget(phase) from error
        except TimeoutError as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                raise self._http.connection_error(error, phase, delivery) from error
            raise
        except CONNECTION_ERRORS as error:
            raise self._http.connection_error(error, phase, delivery) from error
        finally:
            returned.release()
            if response is not None and not response.closed:
                response.close()  # whatever was not read to its end: to a modern server this is the cancellation

    def cancel(self, request_id: RequestId, reason: str) -> None:
        if not self._is_modern:
            self._side_tasks.send_in_background(self.send, build_cancellation(request_id, reason))

    def end_request(self, request_id: RequestId, reason: str) -> None:
        return

    async def send(self, message: Message) -> None:
        try:
            response = await self._post(message, Delivery())
        except (*CONNECTION_ERRORS, TimeoutError) as error:
            raise self._http.connection_error(error, str(message.get("method", "answer"))) from error
        try:
            if response.status >= FIRST_ERROR_STATUS:
                raise await self._http.read_failure(response, str(message.get("method", "answer")))
        finally:
            response.release()
        if message.get("method") == "notifications/initialized" and self._session_id is not None:
            self._side_tasks.start(self._streams.listen(self.failure))

    def is_stuck(self, since: float) -> bool:
        return False

    def fail(self, error: MCPConnectionError) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    def last_received_at(self) -> float:
        return self._streams.last_received_at

    def stderr_tail(self) -> str:
        return ""

    async def close(self) -> None:
        await self._side_tasks.close()
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

    async def _post(self, message: Message, delivery: Delivery) -> aiohttp.ClientResponse:
        headers = self._build_headers(message)
        if delivery.headers:
            headers.update(delivery.headers)
        return await self._http.send("POST", self._http.url, headers=headers, body=encode(message), delivery=delivery)

    async def _read_answer(
        self, response: aiohttp.ClientResponse, message: Message, phase: str, reserved: Reservation
    ) -> Message:
        if response.status >= FIRST_ERROR_STATUS:
            return await self._read_refusal(response, message["id"], phase)
        if response.status in _NO_ANSWER_STATUSES:
            raise self._errors.protocol(phase, f"HTTP {response.status}: the request was taken, but not answered")
        if message["method"] == "initialize":
            self._session_id = response.headers.get("Mcp-Session-Id")
        kind = response.content_type
        if kind == "text/event-stream":
            return await self._streams.read_answer(
                response, message["id"], phase, can_resume=not self._is_modern, reserved=reserved
            )
        if kind != "application/json":
            excerpt = self._errors.excerpt(await aiohttp_client.read_excerpt(response, MAX_HTTP_ERROR_BYTES))
            text = f"the answer is {kind}, not JSON. Is 'url' the address of an MCP server? It begins: {excerpt}"
            raise self._errors.protocol(phase, text, content_type=kind, raw=excerpt)
        try:
            body = await aiohttp_client.read_body(response, self._streams.limit, reserved)
        except aiohttp_client.BodyTooLargeError as error:
            raise self._streams.too_large_error(phase) from error
        answer = self._streams.extract_answer(body, message["id"], phase)
        if answer is None:
            excerpt = self._errors.excerpt(body)
            raise self._errors.protocol(phase, f"the answer does not belong to the request: {excerpt}", raw=excerpt)
        return answer

    async def _read_refusal(self, response: aiohttp.ClientResponse, request_id: RequestId, phase: str) -> Message:
        error = await self._http.read_rpc_error(response)
        is_stale = self._session_id is not None and response.status in (_BAD_REQUEST, _NOT_FOUND)
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
                response = await self._http.send("DELETE", self._http.url, headers=self._build_headers())
                response.release()
        except (TimeoutError, *CONNECTION_ERRORS) as error:
            raise self._http.connection_error(error, "close") from error
        if response.status >= FIRST_ERROR_STATUS and response.status not in _NO_SESSION_TO_END:
            raise self._errors.connection("close", f"HTTP {response.status} for the end of the session.")
