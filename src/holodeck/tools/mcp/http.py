"""Streamable HTTP: each request is a POST of its own in the caller's task, so a fault of one is never another's."""

from __future__ import annotations

import asyncio

import aiohttp

from holodeck.lib import net
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.limits import MAX_HTTP_ERROR_BYTES, NOTICE_TIMEOUT
from holodeck.tools.mcp.channel import Delivery, Incoming
from holodeck.tools.mcp.era import META_VERSION
from holodeck.tools.mcp.errands import Errands
from holodeck.tools.mcp.jsonrpc import Message, RequestId, cancellation, encode
from holodeck.tools.mcp.routing import request_headers
from holodeck.tools.mcp.streams import BREAKS, FIRST_ERROR, Streams
from holodeck.tools.mcp.web import Web

_BAD_REQUEST = 400
_NOT_FOUND = 404
_NO_SESSION_TO_END = frozenset({404, 405, 501})  # it has forgotten the session, or never lets clients end one
_ABOUT_THE_CALLER = frozenset({401, 403, 429})
_NO_ANSWER = frozenset({202, 204})
_JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_PHASES = {"tools/call": "call", "server/discover": "initialize"}


class HttpChannel:
    """A server at a URL."""

    def __init__(
        self,
        web: Web,
        *,
        incoming: Incoming,
        limit: int,
        silence: float,
        terminate_on_close: bool,
        budget: ByteBudget,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[MCPConnectionError] = self._loop.create_future()
        self._web = web
        self._faults = web.faults
        self._streams = Streams(
            web=web, headers=self._headers, incoming=incoming, limit=limit, silence=silence, budget=budget
        )
        self._budget = budget
        self._terminate_on_close = terminate_on_close
        self._session_id: str | None = None
        self._version: str | None = None
        self._is_modern = False
        self._errands = Errands()

    async def open(self) -> None:
        return

    def established(self, version: str, *, is_modern: bool) -> None:
        self._version, self._is_modern = version, is_modern

    async def request(self, message: Message, delivery: Delivery) -> Message:
        if self.lost.done():
            raise self.lost.result()
        phase = _PHASES.get(message["method"], str(message["method"]))
        response: aiohttp.ClientResponse | None = None
        returned = Reservation(self._budget)
        try:
            response = await self._post(message, delivery)
            return await self._answer(response, message, phase, delivery.reserved or returned)
        except OverBudgetError as error:
            raise self._faults.over_budget(phase) from error
        except TimeoutError as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                raise self._web.broken(error, phase, delivery) from error
            raise
        except BREAKS as error:
            raise self._web.broken(error, phase, delivery) from error
        finally:
            returned.release()
            if response is not None and not response.closed:
                response.close()  # whatever was not read to its end: to a modern server this is the cancellation

    def cancel(self, request_id: RequestId, reason: str) -> None:
        if not self._is_modern:
            self._errands.tell(self.send, cancellation(request_id, reason))

    def end_request(self, request_id: RequestId, reason: str) -> None:
        return

    async def send(self, message: Message) -> None:
        try:
            response = await self._post(message, Delivery())
        except (*BREAKS, TimeoutError) as error:
            raise self._web.broken(error, str(message.get("method", "answer"))) from error
        try:
            if response.status >= FIRST_ERROR:
                raise await self._web.failure(response, str(message.get("method", "answer")))
        finally:
            response.release()
        if message.get("method") == "notifications/initialized" and self._session_id is not None:
            self._errands.run(self._streams.listen(self.lost))

    def is_stuck(self, since: float) -> bool:
        return False

    def lose(self, error: MCPConnectionError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)

    def last_heard(self) -> float:
        return self._streams.last_heard

    def last_words(self) -> str:
        return ""

    async def close(self) -> None:
        await self._errands.close()
        try:
            if self._session_id is not None and self._terminate_on_close and not self.lost.done():
                await self._end_session()
        finally:
            await self._web.close()

    def _headers(self, message: Message | None = None) -> dict[str, str]:
        headers = dict(_JSON)
        params = message.get("params", {}) if message is not None else {}
        modern_version = params.get("_meta", {}).get(META_VERSION) if isinstance(params, dict) else None
        if message is not None and modern_version is not None:
            headers["MCP-Protocol-Version"] = modern_version
            headers.update(request_headers(message["method"], params))
        elif self._version is not None and (message is None or message.get("method") != "initialize"):
            headers["MCP-Protocol-Version"] = self._version
        if self._session_id is not None:
            headers["Mcp-Session-Id"] = self._session_id
        return headers

    async def _post(self, message: Message, delivery: Delivery) -> aiohttp.ClientResponse:
        headers = self._headers(message)
        if delivery.headers:
            headers.update(delivery.headers)
        return await self._web.exchange("POST", self._web.url, headers=headers, body=encode(message), delivery=delivery)

    async def _answer(
        self, response: aiohttp.ClientResponse, message: Message, phase: str, reserved: Reservation
    ) -> Message:
        if response.status >= FIRST_ERROR:
            return await self._refusal(response, message["id"], phase)
        if response.status in _NO_ANSWER:
            raise self._faults.protocol(phase, f"HTTP {response.status}: the request was taken, but not answered")
        if message["method"] == "initialize":
            self._session_id = response.headers.get("Mcp-Session-Id")
        kind = response.content_type
        if kind == "text/event-stream":
            return await self._streams.answer(
                response, message["id"], phase, can_resume=not self._is_modern, reserved=reserved
            )
        if kind != "application/json":
            excerpt = self._faults.excerpt(await net.read_excerpt(response, MAX_HTTP_ERROR_BYTES))
            text = f"the answer is {kind}, not JSON. Is 'url' the address of an MCP server? It begins: {excerpt}"
            raise self._faults.protocol(phase, text, content_type=kind, raw=excerpt)
        try:
            body = await net.read_body(response, self._streams.limit, reserved)
        except net.BodyTooLargeError as error:
            raise self._streams.too_large(phase) from error
        answer = self._streams.take(body, message["id"], phase)
        if answer is None:
            excerpt = self._faults.excerpt(body)
            raise self._faults.protocol(phase, f"the answer does not belong to the request: {excerpt}", raw=excerpt)
        return answer

    async def _refusal(self, response: aiohttp.ClientResponse, request_id: RequestId, phase: str) -> Message:
        error = await self._web.rpc_error(response)
        is_stale = self._session_id is not None and response.status in (_BAD_REQUEST, _NOT_FOUND)
        is_answer = error is not None and (error.get("id") == request_id or not is_stale)
        if error is not None and is_answer and response.status not in _ABOUT_THE_CALLER:
            return {"jsonrpc": "2.0", "id": request_id, "error": error["error"], "status": response.status}
        failure = await self._web.failure(response, phase)
        if is_stale and isinstance(failure, MCPConnectionError):
            failure.details["stale_session"] = True
            self.lose(failure)
        raise failure

    async def _end_session(self) -> None:
        try:
            async with asyncio.timeout(NOTICE_TIMEOUT):
                response = await self._web.exchange("DELETE", self._web.url, headers=self._headers())
                response.release()
        except (TimeoutError, *BREAKS) as error:
            raise self._web.broken(error, "close") from error
        if response.status >= FIRST_ERROR and response.status not in _NO_SESSION_TO_END:
            raise self._faults.connection("close", f"HTTP {response.status} for the end of the session.")
