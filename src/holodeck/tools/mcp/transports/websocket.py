"""The WebSocket transport: subprotocol `mcp`, one JSON-RPC message in each text frame, in both directions.

One task reads the socket; its end is the loss of the connection. Received bytes are counted in the shared budget until
they are dispatched as a message.
"""

from __future__ import annotations

from collections.abc import Mapping

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from holodeck.lib.byte_budget import OverBudgetError, Reservation
from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.lib.net.proxies import find_proxy
from holodeck.lib.net.tls import tls_context
from holodeck.lib.net.urls import shown_origin
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.auth.provider import REFUSED_STATUSES, AuthRefusal
from holodeck.tools.mcp.errors import OVER_BUDGET
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, build_cancellation, encode
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup, send_quietly
from holodeck.tools.mcp.transports.duplex import DuplexTransport

# Seconds between two pings, and for the answer to one: a peer that does not answer is considered lost.
WEBSOCKET_PING = 20.0


class WebSocketTransport(DuplexTransport):
    """Connects to a server by its WebSocket URL."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage) -> None:
        super().__init__(setup, on_message)
        self._url = setup.tool.url or ""
        self._headers = setup.tool.headers
        self._connect_timeout = setup.tool.timeout
        self._auth = setup.auth
        self._socket: _BudgetedConnection | None = None
        self._tasks = TaskSet()

    async def open(self) -> None:
        try:
            self._socket = await self._dial()
        except InvalidStatus as error:
            raise self._handshake_error(error) from error
        except TimeoutError as error:
            text = f"no connection to {shown_origin(self._url)} within {self._connect_timeout:g} s."
            raise self._errors.timeout("connect", text) from error
        except OSError as error:
            raise self._errors.unreachable(self._url, error) from error
        except (InvalidHandshake, WebSocketException, EOFError) as error:
            text = f"{shown_origin(self._url)} does not speak WebSocket: {self._errors.excerpt(str(error))}"
            raise self._errors.connection("connect", text) from error
        self._socket.reserved = Reservation(self._budget)
        self._tasks.start(self._read(self._socket))

    async def close(self) -> None:
        await self._tasks.close(NOTICE_TIMEOUT)
        self.fail(self._errors.connection("close", "the connection was closed"))
        if self._socket is not None:
            await self._socket.close()

    def is_stuck(self, since: float) -> bool:
        return self._socket is not None and self._socket.is_stuck(since)

    def cancel(self, request_id: RequestId, reason: str) -> None:
        self._tasks.start(send_quietly(self.send, build_cancellation(request_id, reason)))

    async def _dial(self) -> _BudgetedConnection:
        attempt = 0
        while True:
            attempt += 1
            proof = dict(await self._auth.headers("GET", self._url)) if self._auth is not None else {}
            self._errors.learn_token(proof)
            sent = {name: value.reveal() for name, value in self._headers.items()} | proof
            try:
                socket = await _ConnectWithoutRedirects(
                    self._url,
                    create_connection=_BudgetedConnection,
                    subprotocols=[Subprotocol("mcp")],
                    additional_headers=sent,
                    compression=None,
                    open_timeout=self._connect_timeout,
                    ping_interval=WEBSOCKET_PING,
                    ping_timeout=WEBSOCKET_PING,
                    close_timeout=NOTICE_TIMEOUT,
                    max_size=self._limit,
                    ssl=tls_context() if self._url.startswith("wss:") else None,
                    proxy=find_proxy(self._url),
                )
            except InvalidStatus as error:
                if attempt > 1 or not await self._renew_credentials(error, proof):
                    raise
            else:
                assert isinstance(socket, _BudgetedConnection)  # noqa: S101 - made by create_connection
                return socket

    async def _renew_credentials(self, error: InvalidStatus, proof: Mapping[str, str]) -> bool:
        if self._auth is None or error.response.status_code not in REFUSED_STATUSES:
            return False

        headers = error.response.headers
        return await self._auth.refused(
            AuthRefusal(
                status=error.response.status_code,
                url=self._url,
                method="GET",
                www_authenticate=", ".join(headers.get_all("WWW-Authenticate")),
                headers=dict(headers.raw_items()),
                body=bytes(error.response.body or b""),
                sent=proof,
            )
        )

    async def _deliver(self, message: Message, delivery: Delivery) -> None:
        if self._socket is None:
            raise self._errors.connection("call", "there is no connection")
        delivery.may_have_been_sent = True
        try:
            await self._socket.send(encode(message), text=True)
        except ConnectionClosed as error:
            self._fail_closed(error)
            raise self.failure.result() from error

    async def _read(self, socket: _BudgetedConnection) -> None:
        try:
            while True:
                message = await socket.recv(decode=False)
                socket.update_reservation()
                self.receive(message)
        except ConnectionClosed as error:
            self._fail_closed(error)

    def _fail_closed(self, error: ConnectionClosed) -> None:
        close = error.rcvd or error.sent
        reason = f"{close.code} {close.reason}".strip() if close is not None else "without a reason"
        if self._socket is not None and self._socket.is_over_budget:
            self.fail(self._errors.connection("run", OVER_BUDGET, is_public=True))
            return
        hint = "; see 'max_result_bytes'" if close is not None and close.code == CloseCode.MESSAGE_TOO_BIG else ""
        self.fail(self._errors.connection("run", f"the WebSocket was closed ({self._errors.excerpt(reason)}){hint}."))

    def _handshake_error(self, error: InvalidStatus) -> MCPConnectionError:
        response = error.response
        excerpt = self._errors.excerpt(bytes(response.body or b""))
        text = f"HTTP {response.status_code} {response.reason_phrase} instead of a WebSocket. {excerpt}".rstrip()
        return self._errors.connection(
            "authorize" if response.status_code in REFUSED_STATUSES else "connect",
            text,
            status=response.status_code,
            body=excerpt,
            retry_after=response.headers.get("Retry-After"),
            www_authenticate=", ".join(response.headers.get_all("WWW-Authenticate")) or None,
        )


class _BudgetedConnection(ClientConnection):
    """A connection that counts its buffered bytes in a budget, and knows when its latest bytes came."""

    received_at = 0.0
    reserved: Reservation | None = None
    """Reserves the bytes that were received and not yet returned as a message. None during the handshake."""
    is_over_budget = False

    def data_received(self, data: bytes) -> None:
        self.received_at = self.loop.time()
        try:
            if self.reserved is not None:
                self.reserved.extend(len(data))
        except OverBudgetError:
            self.is_over_budget = True
            self.transport.abort()
            return
        super().data_received(data)
        # In the middle of a message its frames still take memory.
        if self.protocol.current_size is None:
            self.update_reservation()

    def update_reservation(self) -> None:
        """Reserve only the bytes that are still buffered."""
        if self.reserved is not None:
            queued = sum(len(frame.data) for frame in self.recv_messages.frames.queue)
            self.reserved.resize(len(self.protocol.reader.buffer) + queued)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.reserved is not None:
            self.reserved.release()

    def is_stuck(self, since: float) -> bool:
        return len(self.protocol.reader.buffer) > 0 and self.received_at < since


class _ConnectWithoutRedirects(connect):
    """Follows no redirect: it would send the credentials to an address that is not configured."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc
