"""`/v1/responses` over a WebSocket: one response at a time, and the connection remembers what nobody stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.continuation.memory import SocketHistories, SocketHistory
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.http.errors import APIError, shutting_down_error, websocket_error_event
from holodeck.gateway.http.request_body import OVER_BUDGET_MESSAGE, GatewayBudget, RequestReservation, over_budget_error
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.response_builder import ResponseBuilder
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import read_socket_message, stream_id_of
from holodeck.lib.errors import BadRequestError
from holodeck.lib.json.parse import TooDeepError, parse_json

# Of a WebSocket whose response is still being made.
MAX_QUEUED_MESSAGES = 16


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_GOING_AWAY = 1001
_INVALID_TEXT = 1007


class _DisconnectedError(Exception):
    """Nobody is at the other end any more."""


class _InvalidTextError(Exception):
    """A message that is not UTF-8, whichever kind it came as."""


class ResponseSockets:
    """Every connection of every caller."""

    def __init__(
        self,
        builder: ResponseBuilder,
        runs: ActiveRuns,
        caller_limits: CallerLimits,
        continuations: ContinuationResolver,
        *,
        seconds: float,
        max_queued_bytes: int,
        budget: GatewayBudget,
        histories: SocketHistories,
    ) -> None:
        """`max_bytes`: of messages that wait for the response that is being made, unless there is only one.

        `budget`: what messages have taken of it before they come here.
        """
        self._max_queued_bytes = max_queued_bytes
        self._budget = budget
        self._histories = histories
        self._builder = builder
        self._runs = runs
        self._caller_limits = caller_limits
        self._continuations = continuations
        self._seconds = seconds

    async def serve(
        self, caller: Caller, client_kind: ClientKind, receive: Receive, send: Send, is_draining: Callable[[], bool]
    ) -> None:
        """Answer one accepted connection until it ends. Its end is the end of the run that it waits for."""
        messages = _MessageQueue(self._max_queued_bytes, self._budget)
        async with messages, asyncio.TaskGroup() as group:
            answering = group.create_task(
                _run_until_disconnect(self._answer_all(caller, client_kind, messages, send, is_draining))
            )
            listening = group.create_task(_run_until_disconnect(messages.receive_all(receive, send)))
            listening.add_done_callback(lambda _: answering.cancel())
            answering.add_done_callback(lambda _: listening.cancel())

    async def _answer_all(
        self,
        caller: Caller,
        client_kind: ClientKind,
        messages: _MessageQueue,
        send: Send,
        is_draining: Callable[[], bool],
    ) -> None:
        loop, why = asyncio.get_running_loop(), _socket_time_limit_error(self._seconds)
        seconds = self._seconds
        if caller.expires_at is not None and (left := caller.expires_at - time.time()) < seconds:
            seconds, why = left, _token_expired_error()
        deadline = loop.time() + seconds
        with self._histories.open_history(caller.id) as recent:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        message = await messages.get()
                except TimeoutError:
                    await _close_socket(send, why)
                    return
                try:
                    if loop.time() >= deadline:  # messages that wait are had without waiting, so without a timeout
                        await _close_socket(send, why)
                        return
                    if is_draining():
                        await _close_socket(send, shutting_down_error())  # the next one is elsewhere
                        return
                    await self._answer(message, caller, client_kind, recent, send)
                except _InvalidTextError:
                    await _close_socket(send, _invalid_text_error(), _INVALID_TEXT)
                    return
                finally:
                    messages.release(message)
                    del message  # else it would be in memory until the next one comes

    async def _answer(
        self, message: bytes, caller: Caller, client_kind: ClientKind, socket_history: SocketHistory, send: Send
    ) -> None:
        body: object = None
        lane: str | None = None
        try:
            with RequestReservation(self._budget) as reservation:
                reservation.acquire_parsed(message)
                body = _parse_message(message)
                lane = stream_id_of(body)
                find = await self._continuations.build_item_lookup(body, caller)
                with self._caller_limits.count_request(caller):
                    sealed = await self._continuations.open_sealed(body, find, caller, reservation.acquire)
                    request = replace(read_socket_message(body, sealed=sealed, find_item=find), stream=True)
                    live = await self._builder.build(request, caller, socket_history, client_kind=client_kind)
                    async with aclosing(self._runs.stream(live, has_request_log=False)) as batches:
                        async for batch in batches:
                            for payload in batch:
                                await _send_event(send, payload, lane)
            is_failed = live.result is None or live.result.status == "failed"
        except (_DisconnectedError, _InvalidTextError):
            raise
        except Exception as error:  # the boundary: whatever it was, the connection goes on
            is_failed = True
            await _send_event(send, websocket_error_event(error), lane)
        if is_failed and isinstance(body, dict):
            socket_history.delete(str(body.get("previous_response_id")))


async def _run_until_disconnect(coroutine: Awaitable[None]) -> None:
    with suppress(_DisconnectedError):
        await coroutine


class _MessageQueue:
    """What a client has sent and nobody has answered yet. It takes room until then, or until the client leaves."""

    def __init__(self, max_queued_bytes: int, budget: GatewayBudget) -> None:
        self._max_queued_bytes = max_queued_bytes
        self._budget = budget
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._queued_bytes = 0

    async def __aenter__(self) -> None:
        """Begin with none."""

    async def __aexit__(self, *_: object) -> None:
        while not self._queue.empty():
            self._budget.release_bytes(len(self._queue.get_nowait()))

    async def get(self) -> bytes:
        """The next one, to be forgotten when it is answered."""
        message = await self._queue.get()
        self._queued_bytes -= len(message)
        return message

    def release(self, message: bytes) -> None:
        self._budget.release_bytes(len(message))

    async def receive_all(self, receive: Receive, send: Send) -> None:
        """Hear everything until the client leaves, whether or not there is room for it: its leaving must be heard."""
        while (heard := await receive())["type"] != "websocket.disconnect":
            if heard["type"] == OVER_BUDGET_MESSAGE:
                await _send_event(send, websocket_error_event(over_budget_error()))
            elif heard["type"] == "websocket.receive" and not self._enqueue(heard["bytes"]):
                await _send_event(send, websocket_error_event(_queue_full_error(self._max_queued_bytes)))
            del heard  # else it would be in memory until more is heard

    def _enqueue(self, message: bytes) -> bool:
        is_too_much = self._queued_bytes and self._queued_bytes + len(message) > self._max_queued_bytes
        if is_too_much or self._queue.full():
            self._budget.release_bytes(len(message))
            return False
        self._queued_bytes += len(message)
        self._queue.put_nowait(message)
        return True


def _parse_message(message: bytes) -> object:
    try:
        return parse_json(message)
    except TooDeepError as error:
        raise BadRequestError(f"The message is {error}.", code="invalid_json") from None
    except ValueError:
        _check_utf8(message)
        raise BadRequestError("The message is not valid JSON.", code="invalid_json") from None


def _check_utf8(message: bytes) -> None:
    try:
        message.decode()
    except UnicodeDecodeError:
        raise _InvalidTextError from None


def _invalid_text_error() -> APIError:
    return APIError(400, "The message is not valid UTF-8.", kind="invalid_request", code="invalid_json")


def _socket_time_limit_error(seconds: float) -> APIError:
    message = f"A WebSocket is open for at most {seconds / 60:.0f} minutes. Open a new one and go on there."
    return APIError(400, message, kind="invalid_request", code="websocket_connection_limit_reached")


def _token_expired_error() -> APIError:
    message = "The token with which this WebSocket was opened has expired. Open a new one with a new token."
    return APIError(401, message, kind="invalid_request", code="token_expired")


def _queue_full_error(max_bytes: int) -> APIError:
    message = (
        f"At most {MAX_QUEUED_MESSAGES} messages, of {max_bytes} bytes together, wait for the response that is being "
        "made. Wait for its end."
    )
    return APIError(429, message, kind="too_many_requests", code="too_many_messages")


async def _close_socket(send: Send, reason: APIError, code: int = _GOING_AWAY) -> None:
    await _send_event(send, websocket_error_event(reason))
    await _send_message(send, {"type": "websocket.close", "code": code})


async def _send_event(send: Send, event: bytes, lane: str | None = None) -> None:
    if lane is not None:
        event = b'%b,"stream_id":"%b"}' % (event[:-1], lane.encode())
    await _send_message(send, {"type": "websocket.send", "text": event.decode()})


async def _send_message(send: Send, message: MutableMapping[str, Any]) -> None:
    try:
        await send(message)
    except OSError as error:
        raise _DisconnectedError from error
