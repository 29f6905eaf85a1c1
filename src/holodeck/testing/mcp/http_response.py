"""Responses to one HTTP request: `HTTPMessageWriter` for messages, and the wrong responses of HTTP faults.

The faults are statuses, bodies that are no JSON, redirects, and bodies that end too soon or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from holodeck.testing.mcp.actions import Action, Message, Reply, encode
from holodeck.testing.mcp.faults import RETRY_AFTER_SECONDS, TRICKLE_SECONDS, Fault
from holodeck.testing.mcp.protocol import error_reply

JSON = "application/json"
EVENTS = "text/event-stream"
ELSEWHERE = "/elsewhere"
MOVED = "/moved"
HEADER_MISMATCH = -32020
NO_SESSION = -32000
_TEMPORARY_REDIRECT = 307
_HTML = "text/html; charset=utf-8"
_LOGIN = "<!doctype html><title>Sign in</title><h1>Sign in to continue</h1>"
_CHALLENGE = 'Bearer error="invalid_token", error_description="The token has expired"'
_SCOPE = 'Bearer error="insufficient_scope", scope="tools:call"'
_RETRY = {"Retry-After": str(RETRY_AFTER_SECONDS)}
_STATUS_OF_ERROR = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}
"""HTTP statuses that the modern era prescribes for JSON-RPC errors."""

# Status, content type, body and headers.
_PAGES: dict[Fault, tuple[int, str, str, dict[str, str]]] = {
    Fault.HTTP_400: (400, "text/plain", "Bad request", {}),
    Fault.HTTP_401: (401, "text/plain", "Unauthorized", {"WWW-Authenticate": _CHALLENGE}),
    Fault.HTTP_403: (403, "text/plain", "Forbidden", {"WWW-Authenticate": _SCOPE}),
    Fault.HTTP_404: (404, _HTML, "<h1>Not Found</h1>", {}),
    Fault.HTTP_405: (405, "text/plain", "Method Not Allowed", {"Allow": "HEAD"}),
    Fault.HTTP_429: (429, "text/plain", "Too many requests", _RETRY),
    Fault.HTTP_500: (500, "text/plain", "Internal Server Error: out of luck", {}),
    Fault.HTTP_502: (502, _HTML, "<h1>502 Bad Gateway</h1>", {}),
    Fault.HTTP_503: (503, "text/plain", "Service Unavailable", _RETRY),
    Fault.HTML: (200, _HTML, _LOGIN, {}),
    Fault.BAD_JSON: (200, JSON, '{"jsonrpc": "2.0", "id": 1, "result": {oops}', {}),
    Fault.EMPTY_BODY: (200, JSON, "", {}),
    Fault.ACCEPTED: (202, JSON, "", {}),
    Fault.POST_500: (500, "text/plain", "Internal Server Error: out of luck", {}),
}


class HTTPMessageWriter:
    """Writes messages as JSON, or as a stream of events. The first message decides which, and starts the response."""

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
        """Send bytes in place of a message."""
        await self._write(data, ended=ended, is_answer=True)

    async def send_event(self, text: str) -> None:
        """Send the text of an event unchanged."""
        await (await self._start_response(EVENTS)).write(text.encode())

    async def write_stderr(self, data: bytes) -> None:
        """Do nothing: a network server has no stderr that its client can see."""

    async def die(self, code: int, stderr: str) -> None:
        """Abort the connection, as the end of a process does."""
        if self._request.transport is not None:
            self._request.transport.abort()
        await asyncio.Event().wait()

    async def send_half(self, data: bytes) -> None:
        """Send the Content-Length of `data` but only half of it, and close the connection."""
        content_type = EVENTS if self._always_sse else JSON
        response = web.StreamResponse(headers={"Content-Type": content_type, **self._headers})
        response.content_length = len(data)
        await response.prepare(self._request)
        await response.write(data[: len(data) // 2])
        if self._request.transport is not None:
            self._request.transport.close()
        await asyncio.Event().wait()

    async def open_stream(self) -> None:
        """Start a stream of events before there is an event."""
        await self._start_response(EVENTS)

    async def finish(self) -> web.StreamResponse:
        """End the response. If nothing was sent, the body is empty."""
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


def find_fault_response(fault: Fault, request: web.BaseRequest) -> web.Response | None:
    """Return the response of a fault that does not depend on the message; None for other faults."""
    if fault in _PAGES:
        status, content_type, body, headers = _PAGES[fault]
        return web.Response(status=status, body=body.encode(), headers={"Content-Type": content_type, **headers})
    port = request.url.port
    if fault is Fault.REDIRECT_ELSEWHERE:
        # Another origin that is still this server, so that it records whether a client follows.
        elsewhere = f"http://localhost:{port}{ELSEWHERE}"
        return web.Response(status=_TEMPORARY_REDIRECT, headers={"Location": elsewhere})
    if fault is Fault.REDIRECT_HERE and not request.path.startswith(MOVED):
        return web.Response(status=_TEMPORARY_REDIRECT, headers={"Location": f"{MOVED}{request.path_qs}"})
    return None


def error_response(status: int, request: int | str | None, code: int, message: str) -> web.Response:
    """Return an HTTP error whose body is a JSON-RPC error."""
    return web.Response(status=status, body=encode(error_reply(request, code, message).message), content_type=JSON)


async def send_trickle(request: web.BaseRequest, *, always_sse: bool) -> web.StreamResponse:
    """Send byte by byte a body that begins like an answer and never ends."""
    response = web.StreamResponse(headers={"Content-Type": EVENTS if always_sse else JSON})
    await response.prepare(request)
    beginning = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"'
    for byte in (b"data: " if always_sse else b"") + beginning:
        await response.write(bytes([byte]))
        await asyncio.sleep(TRICKLE_SECONDS)
    while True:
        await response.write(b"x")
        await asyncio.sleep(TRICKLE_SECONDS)


async def send_half_answer(actions: Sequence[Action], writer: HTTPMessageWriter) -> None:
    """Send half of the answer and close the connection."""
    answers: list[Message] = [action.message for action in actions if isinstance(action, Reply)]
    await writer.send_half(b"data: " + encode(answers[-1]) if answers else b"data: nothing")
