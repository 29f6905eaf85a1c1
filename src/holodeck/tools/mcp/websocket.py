"""MCP over a WebSocket: subprotocol `mcp`, one JSON-RPC message in each text frame, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.limits import NOTICE_TIMEOUT, WEBSOCKET_PING
from holodeck.lib.proxies import proxy_for
from holodeck.lib.secret import Secret
from holodeck.lib.tls import tls
from holodeck.lib.urls import shown_origin
from holodeck.tools.mcp.channel import Delivery, Incoming
from holodeck.tools.mcp.errands import Errands
from holodeck.tools.mcp.faults import OVER_BUDGET, Faults
from holodeck.tools.mcp.jsonrpc import Message, RequestId, cancellation, encode
from holodeck.tools.mcp.pipe import PipeChannel

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.provider import MCPAuthProvider

_REFUSED = (401, 403)


class WebsocketChannel(PipeChannel):
    """A server at a WebSocket URL."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, Secret],
        connect_timeout: float,
        faults: Faults,
        incoming: Incoming,
        limit: int,
        budget: ByteBudget,
        auth: MCPAuthProvider | None = None,
    ) -> None:
        super().__init__(faults, incoming, budget)
        self._url = url
        self._headers = headers
        self._connect_timeout = connect_timeout
        self._limit = limit
        self._auth = auth
        self._socket: _Socket | None = None
        self._errands = Errands()

    async def open(self) -> None:
        try:
            self._socket = await self._dial()
        except InvalidStatus as error:
            raise self._rejected(error) from error
        except TimeoutError as error:
            text = f"no connection to {shown_origin(self._url)} within {self._connect_timeout:g} s."
            raise self._faults.timeout("connect", text) from error
        except OSError as error:
            raise self._faults.unreachable(self._url, error) from error
        except (InvalidHandshake, WebSocketException, EOFError) as error:
            text = f"{shown_origin(self._url)} does not speak WebSocket: {self._faults.excerpt(str(error))}"
            raise self._faults.connection("connect", text) from error
        self._socket.reserved = Reservation(self._budget)
        self._errands.run(self._read(self._socket))

    async def close(self) -> None:
        await self._errands.close()
        self.lose(self._faults.connection("close", "the connection was closed"))
        if self._socket is not None:
            await self._socket.close()

    def is_stuck(self, since: float) -> bool:
        return self._socket is not None and self._socket.is_stuck(since)

    def cancel(self, request_id: RequestId, reason: str) -> None:
        self._errands.tell(self.send, cancellation(request_id, reason))

    async def _dial(self) -> _Socket:
        attempt = 0
        while True:
            attempt += 1
            proof = dict(await self._auth.headers("GET", self._url)) if self._auth is not None else {}
            self._faults.learn_token(proof)
            sent = {name: value.reveal() for name, value in self._headers.items()} | proof
            try:
                socket = await _Dial(
                    self._url,
                    create_connection=_Socket,
                    subprotocols=[Subprotocol("mcp")],
                    additional_headers=sent,
                    compression=None,
                    open_timeout=self._connect_timeout,
                    ping_interval=WEBSOCKET_PING,
                    ping_timeout=WEBSOCKET_PING,
                    close_timeout=NOTICE_TIMEOUT,
                    max_size=self._limit,
                    ssl=tls() if self._url.startswith("wss:") else None,
                    proxy=proxy_for(self._url),
                )
            except InvalidStatus as error:
                if attempt > 1 or not await self._has_new_credentials(error, proof):
                    raise
            else:
                assert isinstance(socket, _Socket)  # noqa: S101 - it is what was asked for
                return socket

    async def _has_new_credentials(self, error: InvalidStatus, proof: Mapping[str, str]) -> bool:
        if self._auth is None or error.response.status_code not in _REFUSED:
            return False
        from holodeck.tools.mcp.auth.provider import Refusal

        headers = error.response.headers
        return await self._auth.refused(
            Refusal(
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
            raise self._faults.connection("call", "there is no connection")
        delivery.may_have_left = True
        try:
            await self._socket.send(encode(message), text=True)
        except ConnectionClosed as error:
            self._closed(error)
            raise self.lost.result() from error

    async def _read(self, socket: _Socket) -> None:
        try:
            while True:
                message = await socket.recv(decode=False)
                socket.message_taken()
                self.received(message)
        except ConnectionClosed as error:
            self._closed(error)

    def _closed(self, error: ConnectionClosed) -> None:
        reason = error.rcvd or error.sent
        said = f"{reason.code} {reason.reason}".strip() if reason is not None else "without a reason"
        if self._socket is not None and self._socket.is_over_budget:
            self.lose(self._faults.connection("run", OVER_BUDGET, is_public=True))
            return
        hint = "; see 'max_result_bytes'" if reason is not None and reason.code == CloseCode.MESSAGE_TOO_BIG else ""
        self.lose(self._faults.connection("run", f"the WebSocket was closed ({self._faults.excerpt(said)}){hint}."))

    def _rejected(self, error: InvalidStatus) -> MCPConnectionError:
        response = error.response
        excerpt = self._faults.excerpt(bytes(response.body or b""))
        text = f"HTTP {response.status_code} {response.reason_phrase} instead of a WebSocket. {excerpt}".rstrip()
        return self._faults.connection(
            "authorize" if response.status_code in _REFUSED else "connect",
            text,
            status=response.status_code,
            body=excerpt,
            retry_after=response.headers.get("Retry-After"),
            www_authenticate=", ".join(response.headers.get_all("WWW-Authenticate")) or None,
        )


class _Socket(ClientConnection):
    """A connection that can tell a frame on its way from one that stopped in the middle."""

    grew = 0.0
    reserved: Reservation | None = None
    """Holds what has come and was not taken as a message. None during the handshake."""
    is_over_budget = False

    def data_received(self, data: bytes) -> None:
        self.grew = self.loop.time()
        try:
            if self.reserved is not None:
                self.reserved.grow(len(data))
        except OverBudgetError:
            self.is_over_budget = True
            self.transport.abort()
            return
        super().data_received(data)
        if self.protocol.current_size is None:  # not in the middle of a message: its frames need no room
            self.message_taken()

    def message_taken(self) -> None:
        """Hold only what is still to be taken."""
        if self.reserved is not None:
            waiting = sum(len(frame.data) for frame in self.recv_messages.frames.queue)
            self.reserved.resize(len(self.protocol.reader.buffer) + waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.reserved is not None:
            self.reserved.release()

    def is_stuck(self, since: float) -> bool:
        return len(self.protocol.reader.buffer) > 0 and self.grew < since


class _Dial(connect):
    """A redirect is not followed: it would take our credentials to an address that nobody configured."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc
