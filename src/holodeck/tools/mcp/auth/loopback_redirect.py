"""HTTP listener on the loopback interface that receives the redirect at the end of a login.

`LoopbackRedirect` listens while its `async with` block runs. It accepts the first request with the expected `state`
and answers all others with an error page. Each connection is a task of the listener, cancelled when the block ends.
`open_loopback_redirect` chooses the port: authorization servers compare the redirect URI with the registered one, many
of them including the port.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from holodeck.lib.errors import MCPError
from holodeck.lib.limits import KIB
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.auth.provider import auth_error
from holodeck.tools.mcp.auth.redirect import LOGIN_TIMEOUT, Redirect, RedirectResult, late_login_error, read_redirect

# Bytes of the head of one request: a single GET with the authorization code in its query.
MAX_REDIRECT_REQUEST_BYTES = 16 * KIB
# Seconds for a connection to send the head of its request.
REDIRECT_REQUEST_TIMEOUT = 10.0
# Seconds for the "you can close this window" page to reach the browser before connections are cancelled.
REDIRECT_LINGER = 0.5

PATH = "/callback"
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>HoloDeck</title>"
    "<body style='font:16px system-ui;margin:15vh auto;max-width:30em;text-align:center'><h1>{title}</h1><p>{text}</p>"
)
_DONE = _PAGE.format(title="You are logged in", text="HoloDeck has what it needs. You can close this window.")
_DENIED = _PAGE.format(title="No login", text="The authorization server refused. The terminal has the details.")
_UNEXPECTED = _PAGE.format(title="Not for HoloDeck", text="This answer does not belong to the login that is under way.")


class LoopbackRedirect:
    """`async with LoopbackRedirect(server) as redirect`: listens on 127.0.0.1 until the block ends."""

    def __init__(self, server: str, *, port: int | None = None, timeout: float = LOGIN_TIMEOUT) -> None:
        self._server_name = server
        self._port = port
        self._timeout = timeout
        self._state: str | None = None
        self._listener: asyncio.Server | None = None
        self._arrived = asyncio.Event()
        self._result = RedirectResult()
        self._connections = TaskSet()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}{PATH}"

    def expect_state(self, state: str) -> None:
        """Accept only a redirect with this state. Before the first call none is accepted."""
        self._state = state

    async def wait_result(self) -> RedirectResult:
        """Wait for the redirect. Raises MCPConnectionError after `timeout` seconds."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._arrived.wait()
        except TimeoutError:
            raise late_login_error(self._server_name, self._timeout) from None
        return self._result

    async def __aenter__(self) -> LoopbackRedirect:
        try:
            self._listener = await asyncio.start_server(
                self._accept_connection, "127.0.0.1", self._port or 0, limit=MAX_REDIRECT_REQUEST_BYTES
            )
        except OSError as error:
            raise auth_error(
                self._server_name,
                f"port {self._port} of this machine, where the browser is to come back, is taken: {error.strerror}."
                " Free it, or change 'redirect_port'.",
            ) from None
        self._port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listener.close()
        # The last page may still be on its way; a spare connection of the browser would stay open for much longer.
        await self._connections.wait(REDIRECT_LINGER)
        self._connections.cancel()

    def _accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REDIRECT_REQUEST_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer_request(head))
                await writer.drain()
        # A port scan, a preconnect or an aborted request: the redirect itself may still come.
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _answer_request(self, head: bytes) -> bytes:
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method != "GET" or target.path != PATH:
            return _response("404 Not Found", _UNEXPECTED)
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        if self._state is None or not hmac.compare_digest(query.get("state", "").encode(), self._state.encode()):
            return _response("400 Bad Request", _UNEXPECTED)
        arrival = read_redirect(query)
        if not self._arrived.is_set():
            self._result = arrival
            self._arrived.set()
        return _response("200 OK", _DONE if arrival.is_granted else _DENIED)


@asynccontextmanager
async def open_loopback_redirect(
    registered_uris: Sequence[str], *, server: str, port: int | None = None
) -> AsyncIterator[Redirect]:
    """Listen on `port`; without one, on the port of a registered URI if it is free, else on any free port."""
    wanted = port or _find_port(registered_uris)
    async with AsyncExitStack() as stack:
        try:
            redirect = await stack.enter_async_context(LoopbackRedirect(server, port=wanted))
        except MCPError:
            if port is not None or wanted is None:
                raise
            redirect = await stack.enter_async_context(LoopbackRedirect(server))
        yield redirect


def _find_port(uris: Sequence[str]) -> int | None:
    """Return the port of the first URI that is one of this listener. Others belong to the gateway."""
    for uri in uris:
        with suppress(ValueError):
            parts = urlsplit(uri)
            if (parts.scheme, parts.hostname, parts.path) == ("http", "127.0.0.1", PATH):
                return parts.port
    return None


def _response(status: str, page: str) -> bytes:
    body = page.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
