"""The event streams of streamable HTTP: an answer that may go on after a break, and what a server says unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.errors import MCPError
from holodeck.lib.limits import MAX_STREAM_RETRY, MIN_STREAM_RETRY, STREAM_RESUMES, STREAM_RETRY, STREAM_TAIL_TIMEOUT
from holodeck.tools.mcp.faults import OUTCOME_UNKNOWN
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, decode
from holodeck.tools.mcp.transports.base import OnMessage
from holodeck.tools.mcp.transports.http_exchange import ServerHTTPClient
from holodeck.tools.mcp.transports.sse_events import EventStream, EventTooLargeError

CONNECTION_ERRORS = (aiohttp.ClientError, OSError)
FIRST_ERROR_STATUS = 300
_FIRST_SERVER_ERROR = 500
_ACCEPT_EVENTS = {"Accept": "text/event-stream"}


@dataclass(kw_only=True)
class ResponseStreams:
    """Reads the event streams of one server."""

    http: ServerHTTPClient
    headers: Callable[[], dict[str, str]]
    """What every request of the session carries."""
    on_message: OnMessage
    limit: int
    read_timeout: float
    budget: ByteBudget
    last_received_at: float = 0.0
    _can_await_end: bool = True

    def extract_answer(self, data: bytes, request_id: RequestId | None, phase: str) -> Message | None:
        """The answer to this request, if it is in there; everything else goes its way."""
        self.last_received_at = asyncio.get_running_loop().time()
        try:
            decoded = self.http.errors.mask_message(decode(data), data)
        except ValueError as error:
            raw = self.http.errors.excerpt(data)
            text = f"the answer is not JSON ({error}). It begins: {raw}"
            raise self.http.errors.protocol(phase, text, raw=raw) from error
        answer: Message | None = None
        for message in decoded if isinstance(decoded, list) else [decoded]:
            if not isinstance(message, dict):
                continue
            if "method" in message:
                self.on_message(message)
            elif message.get("id") == request_id or ("error" in message and message.get("id") is None):
                answer = message
        return answer

    async def read_answer(
        self,
        response: aiohttp.ClientResponse,
        request_id: RequestId,
        phase: str,
        *,
        can_resume: bool,
        reserved: Reservation,
    ) -> Message:
        """The answer out of an event stream, which a legacy server may continue after a break.

        `reserved` holds its bytes.
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
            except CONNECTION_ERRORS as error:
                broke = error
            finally:
                stream.close()
                if not response.closed:
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
        """A legacy server's own stream, for what it says unasked; opened again whenever it ends."""
        last_id, failures = "", 0
        while not failure.done():
            headers = {**self.headers(), **_ACCEPT_EVENTS, **({"Last-Event-ID": last_id} if last_id else {})}
            retry: float | None = None
            try:
                response = await self.http.send("GET", self.http.url, headers=headers)
                async with response:
                    if response.status < FIRST_ERROR_STATUS and response.content_type == _ACCEPT_EVENTS["Accept"]:
                        failures = 0
                        stream = EventStream(
                            response, read_timeout=self.read_timeout, limit=self.limit, budget=self.budget
                        )
                        try:
                            while (event := await stream.next()) is not None:
                                last_id = stream.last_id or last_id
                                self.extract_answer(event.data, None, "listen")
                        finally:
                            stream.close()
                        last_id, retry = stream.last_id or last_id, stream.retry
                    elif response.status < _FIRST_SERVER_ERROR:
                        log.debug("mcp.no_stream", server=self.http.errors.server, status=response.status)
                        return  # it has none, or has forgotten us
                    else:
                        failures += 1
            except (MCPError, EventTooLargeError, OverBudgetError, TimeoutError, *CONNECTION_ERRORS) as error:
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
            answer = self.extract_answer(event.data, request_id, phase)
            if answer is not None:
                reserved.extend(len(event.data))
                return answer

    async def _drain(self, response: aiohttp.ClientResponse) -> None:
        """Most servers end the stream right after the answer: a moment's wait saves the next call a connection."""
        if response.content.at_eof() or not self._can_await_end:
            return
        try:
            async with asyncio.timeout(STREAM_TAIL_TIMEOUT):
                while await response.content.readany():
                    pass
        except (TimeoutError, *CONNECTION_ERRORS):
            self._can_await_end = False

    async def _resume(self, last_id: str, phase: str) -> aiohttp.ClientResponse:
        headers = {**self.headers(), **_ACCEPT_EVENTS, "Last-Event-ID": last_id}
        response = await self.http.send("GET", self.http.url, headers=headers)
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
    """As long as the server says; never so short that it becomes a flood, nor so long that nobody waits for it."""
    wanted = STREAM_RETRY * 2 ** min(failures, 5) if retry is None else retry
    return min(max(wanted, MIN_STREAM_RETRY), MAX_STREAM_RETRY)
