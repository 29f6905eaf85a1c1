"""The answer to one HTTP request: JSON where one message is the whole answer, otherwise a stream of events."""

from __future__ import annotations

import asyncio

from aiohttp import web

from holodeck.testing.mcp.actions import Message, encode

JSON = "application/json"
EVENTS = "text/event-stream"
_STATUS_OF_ERROR = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}
"""The statuses that the modern era prescribes."""


class HTTPMessageWriter:
    """Decides on JSON or events with its first message, and starts the response only then."""

    def __init__(
        self,
        request: web.BaseRequest,
        *,
        always_sse: bool = False,
        content_type: str | None = None,
        headers: dict[str, str] | None = None,
        modern: bool = False,
    ) -> None:
        self._request = request
        self._always_sse = always_sse
        self._content_type = content_type
        self._headers = headers or {}
        self._modern = modern
        self._response: web.StreamResponse | None = None
        self._is_event_stream = False

    async def send_message(self, message: Message) -> None:
        """Send a message."""
        await self._write(
            encode(message), ended=True, is_answer="method" not in message, status=self._status_of(message)
        )

    async def send_raw(self, data: bytes, *, ended: bool) -> None:
        """Send bytes where a message should be."""
        await self._write(data, ended=ended, is_answer=True)

    async def send_event(self, text: str) -> None:
        """Send an event exactly as written."""
        await (await self._start_response(EVENTS)).write(text.encode())

    async def write_stderr(self, data: bytes) -> None:
        """Do nothing: a network server has no stderr that its client can see."""

    async def die(self, code: int, stderr: str) -> None:
        """Cut the connection, as the end of a process does."""
        if self._request.transport is not None:
            self._request.transport.abort()
        await asyncio.Event().wait()

    async def send_half(self, data: bytes) -> None:
        """Promise the whole body, send half of it and hang up."""
        content_type = EVENTS if self._always_sse else JSON
        response = web.StreamResponse(headers={"Content-Type": content_type, **self._headers})
        response.content_length = len(data)
        await response.prepare(self._request)
        await response.write(data[: len(data) // 2])
        if self._request.transport is not None:
            self._request.transport.close()
        await asyncio.Event().wait()

    async def open_stream(self) -> None:
        """Start a stream of events before there is one."""
        await self._start_response(EVENTS)

    async def finish(self) -> web.StreamResponse:
        """End the response. Where nothing was sent, the body is empty."""
        response = await self._start_response(EVENTS if self._always_sse else JSON)
        await response.write_eof()
        return response

    def _status_of(self, message: Message) -> int:
        code = message.get("error", {}).get("code") if self._modern else None
        return _STATUS_OF_ERROR.get(code, 200) if isinstance(code, int) else 200

    async def _write(self, data: bytes, *, ended: bool, is_answer: bool, status: int = 200) -> None:
        as_json = is_answer and not self._always_sse
        response = await self._start_response(JSON if as_json else EVENTS, status if as_json else 200)
        if not self._is_event_stream:
            await response.write(data + b"\n" if ended else data)
            return
        lines = b"\n".join(b"data: " + line for line in data.split(b"\n"))
        await response.write(b"event: message\n" + lines + (b"\n\n" if ended else b""))

    async def _start_response(self, content_type: str, status: int = 200) -> web.StreamResponse:
        if self._response is None:
            self._is_event_stream = content_type == EVENTS
            headers = {"Content-Type": self._content_type or content_type, **self._headers}
            self._response = web.StreamResponse(status=status, headers=headers)
            await self._response.prepare(self._request)
        return self._response
