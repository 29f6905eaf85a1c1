"""The HTTP+SSE transport (protocol 2024-11-05): one event stream carries all responses, each request is a POST.

The first event of the stream names the URL for the requests, which must be on the origin of the server. The end of the
stream is the loss of the connection.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urljoin

from holodeck.lib.byte_budget import OverBudgetError
from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.limits import MAX_HTTP_ERROR_BYTES, NOTICE_TIMEOUT
from holodeck.lib.net.http1 import BodyCutError, HTTP1Response
from holodeck.lib.net.sse import EventStream, EventTooLargeError
from holodeck.lib.net.urls import is_same_origin, shown_origin
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.errors import OVER_BUDGET
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, build_cancellation, encode
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup, send_quietly
from holodeck.tools.mcp.transports.duplex import DuplexTransport
from holodeck.tools.mcp.transports.http_exchange import ServerHTTPClient

_FIRST_ERROR_STATUS = 300
# An event without a name is a message.
_MESSAGE_NAMES = (b"", b"message")


class SSETransport(DuplexTransport):
    """Connects to a server by the URL of its event stream."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage) -> None:
        super().__init__(setup, on_message)
        self._http = ServerHTTPClient(setup)
        self._connect_timeout = setup.tool.timeout
        self._read_timeout = setup.tool.sse_read_timeout
        self._version: str | None = None
        self._endpoint: asyncio.Future[str] = self._loop.create_future()
        self._stream: EventStream | None = None
        self._tasks = TaskSet()

    async def open(self) -> None:
        try:
            self._http.open()
            response = await self._http.send("GET", {"Accept": "text/event-stream"})
        except OSError as error:
            raise self._http.connection_error(error, "connect") from error
        if response.status >= _FIRST_ERROR_STATUS:
            try:
                raise await self._http.read_failure(response, "connect")
            finally:
                response.close()
        if response.content_type != "text/event-stream":
            response.close()
            text = f"the answer is {response.content_type}, not an event stream. Is 'transport: http' meant?"
            raise self._errors.protocol("connect", text, content_type=response.content_type)
        self._tasks.start(self._read(response))
        either: list[asyncio.Future[Any]] = [self._endpoint, self.failure]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED, timeout=self._connect_timeout)
        if self._endpoint.done():
            return
        if self.failure.done():
            raise self.failure.result()
        text = f"the event stream did not say within {self._connect_timeout:g} s where messages go. Is 'url' right?"
        raise self._errors.timeout("connect", text)

    async def close(self) -> None:
        await self._tasks.close(NOTICE_TIMEOUT)
        self.fail(self._errors.connection("close", "the connection was closed"))
        await self._http.close()

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        self._version = version

    def is_stuck(self, since: float) -> bool:
        return self._stream is not None and self._stream.is_stuck(since)

    def cancel(self, request_id: RequestId, reason: str) -> None:
        self._tasks.start(send_quietly(self.send, build_cancellation(request_id, reason)))

    async def _deliver(self, message: Message, delivery: Delivery) -> None:
        """POST the message. An error status fails this request only, without waiting for the stream."""
        phase = "call" if message.get("method") == "tools/call" else str(message.get("method", "answer"))
        headers = {"Content-Type": "application/json"}
        if self._version is not None:
            headers["MCP-Protocol-Version"] = self._version
        try:
            response = await self._http.send(
                "POST", headers, encode(message), url=self._endpoint.result(), report=delivery
            )
            try:
                if response.status >= _FIRST_ERROR_STATUS:
                    raise await self._http.read_failure(response, phase)
                # Read, so that the connection can be used again.
                await response.read_excerpt(MAX_HTTP_ERROR_BYTES)
            finally:
                response.close()
        except OSError as error:
            raise self._http.connection_error(error, phase, delivery) from error

    async def _read(self, response: HTTP1Response) -> None:
        stream = self._stream = EventStream(
            response, read_timeout=self._read_timeout, limit=self._limit, budget=self._budget
        )
        text = "the server ended the event stream."
        try:
            while (event := await stream.next()) is not None:
                name, data = event
                if name == b"endpoint":
                    self._set_endpoint(data)
                elif name in _MESSAGE_NAMES:
                    self.receive(data)
        except TimeoutError:
            text = f"the event stream was silent for {self._read_timeout:g} s ('sse_read_timeout')."
        except EventTooLargeError as error:
            text = f"{error}; see 'max_result_bytes'."
        except OverBudgetError:
            text = OVER_BUDGET
        except BodyCutError:
            text = "the event stream was cut off."
        except OSError as error:
            text = f"the event stream broke ({error or type(error).__name__})."
        except MCPConnectionError as error:
            self.fail(error)
        finally:
            stream.close()
            response.close()
            self.fail(self._errors.connection("run", text, is_public=text is OVER_BUDGET or None))

    def _set_endpoint(self, data: bytes) -> None:
        target = urljoin(self._http.url, data.decode("utf-8", "replace").strip())
        if not is_same_origin(target, self._http.url):
            text = f"its messages should go to {shown_origin(target)}, which is another server. That is refused."
            raise self._errors.connection("connect", text)
        if not self._endpoint.done():
            self._endpoint.set_result(target)
