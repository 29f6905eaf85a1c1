"""Wrong answers on the level of HTTP: statuses, bodies that are no JSON, redirects, streams that end too soon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from holodeck.testing.mcp.actions import Action, Message, Reply, encode
from holodeck.testing.mcp.faults import RETRY_AFTER_SECONDS, TRICKLE_SECONDS, Fault
from holodeck.testing.mcp.http_response import EVENTS, JSON, HTTPMessageWriter
from holodeck.testing.mcp.protocol import error_reply

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


def find_fault_response(fault: Fault, request: web.BaseRequest) -> web.Response | None:
    """Return the answer of a fault that needs to know nothing of the message, or None if it is another fault."""
    if fault in _PAGES:
        status, content_type, body, headers = _PAGES[fault]
        return web.Response(status=status, body=body.encode(), headers={"Content-Type": content_type, **headers})
    port = request.url.port
    if fault is Fault.REDIRECT_ELSEWHERE:
        # Another origin that is still this server, so that it sees whether a client followed.
        elsewhere = f"http://localhost:{port}{ELSEWHERE}"
        return web.Response(status=_TEMPORARY_REDIRECT, headers={"Location": elsewhere})
    if fault is Fault.REDIRECT_HERE and not request.path.startswith(MOVED):
        return web.Response(status=_TEMPORARY_REDIRECT, headers={"Location": f"{MOVED}{request.path_qs}"})
    return None


def error_response(status: int, request: int | str | None, code: int, message: str) -> web.Response:
    """Return an HTTP error whose body is a JSON-RPC error."""
    return web.Response(status=status, body=encode(error_reply(request, code, message).message), content_type=JSON)


async def send_trickle(request: web.BaseRequest, *, always_sse: bool) -> web.StreamResponse:
    """Send a body byte by byte that begins like an answer and never ends."""
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
    """Send half of the answer and hang up."""
    answers: list[Message] = [action.message for action in actions if isinstance(action, Reply)]
    await writer.send_half(b"data: " + encode(answers[-1]) if answers else b"data: nothing")
