"""`/v1/responses` over a WebSocket.

Each message creates a response, and its events are sent as messages. One response runs at a time; further messages are
queued up to a limit of number and bytes. A connection remembers its latest responses (`SocketHistory`), so that a
message can continue one that is not stored. Its end cancels the running response.

Messages arrive with their bytes already acquired from the byte budget, by `server/ws_protocol.py`; they are released
here once a message is answered, refused, or dropped at the end of the connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial

import orjson

from holodeck.gateway.auth.callers import Caller, Callers
from holodeck.gateway.continuation.memory import SocketHistories, SocketHistory
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.http.asgi import Message, Receive, Send
from holodeck.gateway.http.errors import APIError, overloaded_error, shutting_down_error, websocket_error_event
from holodeck.gateway.http.observation import Refusals
from holodeck.gateway.http.request import (
    OVER_BUDGET_MESSAGE,
    RequestReservation,
    over_budget_error,
    too_many_values_error,
)
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.runs.response_builder import ResponseBuilder
from holodeck.gateway.server.admission import LARGE_BODY_BYTES, Admission
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import read_socket_message, stream_id_of
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import BadRequestError
from holodeck.lib.json.parse import JSONLimitError, TooManyValuesError, parse_json

# Messages of one WebSocket that may be queued behind the running response.
MAX_QUEUED_MESSAGES = 16

# The path of these WebSockets, for the log.
_ROUTE = "/v1/responses"
# Close codes of RFC 6455.
_GOING_AWAY = 1001
_INVALID_TEXT = 1007


class _DisconnectedError(Exception):
    """The client has disconnected."""


class _InvalidTextError(Exception):
    """A message is not UTF-8, whether it was sent as text or as binary."""


class ResponseSockets:
    """Serves the WebSockets of all callers."""

    def __init__(
        self,
        builder: ResponseBuilder,
        caller_limits: CallerLimits,
        continuations: ContinuationResolver,
        callers: Callers,
        *,
        seconds: float,
        max_queued_bytes: int,
        budget: ByteBudget,
        refusals: Refusals,
        admission: Admission,
        histories: SocketHistories,
    ) -> None:
        """`seconds`: the longest time that a connection may be open.

        `max_queued_bytes`: of the queued messages of one connection; a single larger one is queued nevertheless.
        `budget`: from which messages have acquired their bytes.
        `admission`: knows whether the gateway is overloaded, and gives large messages turns.
        """
        self._max_queued_bytes = max_queued_bytes
        self._budget = budget
        self._refusals = refusals
        self._admission = admission
        self._histories = histories
        self._builder = builder
        self._caller_limits = caller_limits
        self._continuations = continuations
        self._callers = callers
        self._seconds = seconds

    async def serve(
        self, caller: Caller, client_kind: ClientKind, receive: Receive, send: Send, is_draining: Callable[[], bool]
    ) -> None:
        """Serve one accepted connection until it ends, which also cancels its running response."""
        messages = _MessageQueue(self._max_queued_bytes, self._budget, partial(self._refuse, caller, send))
        async with messages, asyncio.TaskGroup() as group:
            answerer = group.create_task(
                _run_until_disconnect(self._answer_all(caller, client_kind, messages, send, is_draining))
            )
            receiver = group.create_task(_run_until_disconnect(messages.receive_all(receive)))
            receiver.add_done_callback(lambda _: answerer.cancel())
            answerer.add_done_callback(lambda _: receiver.cancel())

    async def _answer_all(
        self,
        caller: Caller,
        client_kind: ClientKind,
        messages: _MessageQueue,
        send: Send,
        is_draining: Callable[[], bool],
    ) -> None:
        loop, opened_by = asyncio.get_running_loop(), caller
        seconds, reason = self._seconds, _socket_time_limit_error(self._seconds)
        if caller.expires_at is not None and (until_expiry := caller.expires_at - time.time()) < seconds:
            seconds, reason = until_expiry, _token_expired_error()
        deadline = loop.time() + seconds
        with self._histories.open_history(caller.id) as history:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        message = await messages.get()
                except TimeoutError:
                    await _close_socket(send, reason)
                    return
                try:
                    # A queued message is returned without waiting, so that the timeout does not fire.
                    if loop.time() >= deadline or opened_by.has_expired():
                        await _close_socket(send, reason)
                        return
                    # The client sends the message again to another gateway.
                    if is_draining():
                        await _close_socket(send, shutting_down_error())
                        return
                    # Each message is a request: it has the limits of now, and not those of the handshake.
                    caller = self._callers.find_current(caller)
                    with self._builder.configurations.current.uses:
                        await self._answer(message, caller, client_kind, history, send)
                except _InvalidTextError:
                    await self._refuse(caller, send, _invalid_text_error())
                    await _send_message(send, {"type": "websocket.close", "code": _INVALID_TEXT})
                    return
                finally:
                    messages.release(message)
                    # Frees the memory now instead of at the next message.
                    del message

    async def _answer(
        self, message: bytes, caller: Caller, client_kind: ClientKind, socket_history: SocketHistory, send: Send
    ) -> None:
        body: object = None
        stream_id: str | None = None
        if self._admission.is_overloaded:
            self._admission.count_refusal()
            await self._refuse(caller, send, overloaded_error())
            return
        try:
            with RequestReservation(self._budget) as reservation:
                if len(message) > LARGE_BODY_BYTES:
                    await self._admission.wait_large_turn()
                reservation.acquire_parsed(message)
                body = _parse_message(message)
                stream_id = stream_id_of(body)
                find = await self._continuations.build_item_lookup(body, caller)
                with self._caller_limits.count_request(caller):
                    sealed = await self._continuations.open_sealed(body, find, caller, reservation.acquire)
                    request = read_socket_message(
                        body,
                        sealed=sealed,
                        find_item=find,
                        extra_parameters_of=self._builder.extra_parameters_for(caller),
                    )
                    request = replace(request, stream=True)
                    live = await self._builder.build(request, caller, socket_history, client_kind=client_kind)
                    live.has_request_log = False
                    async with live, aclosing(live.stream()) as batches:
                        async for batch in batches:
                            for payload in batch:
                                await _send_event(send, payload, stream_id)
            is_failed = live.result is None or live.result.status == "failed"
        except (_DisconnectedError, _InvalidTextError):
            raise
        # The boundary: every error becomes an error event, and the connection stays open.
        except Exception as error:
            is_failed = True
            await self._refuse(caller, send, error, stream_id)
        if is_failed and isinstance(body, dict):
            socket_history.delete(str(body.get("previous_response_id")))

    async def _refuse(self, caller: Caller, send: Send, error: BaseException, stream_id: str | None = None) -> None:
        """Answer a message with an error, and record the refusal."""
        event = websocket_error_event(error)
        sent = orjson.loads(event)
        self._refusals.report(sent["status"], sent["error"], route=_ROUTE, caller_id=caller.id)
        await _send_event(send, event, stream_id)


class _MessageQueue:
    """The messages of one connection that are not answered yet.

    Their bytes are released by `release`, or at the end of the `async with` block for those that are still queued.
    """

    def __init__(
        self, max_queued_bytes: int, budget: ByteBudget, refuse: Callable[[BaseException], Awaitable[None]]
    ) -> None:
        """`refuse`: answers a message that is not queued."""
        self._refuse = refuse
        self._max_queued_bytes = max_queued_bytes
        self._budget = budget
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._queued_bytes = 0

    async def __aenter__(self) -> None:
        """Acquire nothing: messages come with their bytes."""

    async def __aexit__(self, *_: object) -> None:
        while not self._queue.empty():
            self._budget.release(len(self._queue.get_nowait()))

    async def get(self) -> bytes:
        """Wait for the next message. The caller passes it to `release` when it is answered."""
        message = await self._queue.get()
        self._queued_bytes -= len(message)
        return message

    def release(self, message: bytes) -> None:
        self._budget.release(len(message))

    async def receive_all(self, receive: Receive) -> None:
        """Queue messages until the client disconnects. What does not fit is refused, never waited for.

        Otherwise a disconnect behind it would not be received.
        """
        while (received := await receive())["type"] != "websocket.disconnect":
            if received["type"] == OVER_BUDGET_MESSAGE:
                await self._refuse(over_budget_error())
            elif received["type"] == "websocket.receive" and not self._enqueue(received["bytes"]):
                await self._refuse(_queue_full_error(self._max_queued_bytes))
            # Frees the memory now instead of at the next message.
            del received

    def _enqueue(self, message: bytes) -> bool:
        is_too_much = self._queued_bytes and self._queued_bytes + len(message) > self._max_queued_bytes
        if is_too_much or self._queue.full():
            self._budget.release(len(message))
            return False
        self._queued_bytes += len(message)
        self._queue.put_nowait(message)
        return True


async def _run_until_disconnect(coroutine: Awaitable[None]) -> None:
    with suppress(_DisconnectedError):
        await coroutine


def _parse_message(message: bytes) -> object:
    try:
        return parse_json(message)
    except TooManyValuesError:
        raise too_many_values_error() from None
    except JSONLimitError as error:
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
    message = (
        "The key or token with which this WebSocket was opened has expired. Open a new one with a new key or token."
    )
    return APIError(401, message, kind="invalid_request", code="token_expired")


def _queue_full_error(max_bytes: int) -> APIError:
    message = (
        f"At most {MAX_QUEUED_MESSAGES} messages, of {max_bytes} bytes together, wait for the response that is being "
        "made. Wait for its end."
    )
    return APIError(429, message, kind="too_many_requests", code="too_many_messages")


async def _close_socket(send: Send, reason: APIError) -> None:
    await _send_event(send, websocket_error_event(reason))
    await _send_message(send, {"type": "websocket.close", "code": _GOING_AWAY})


async def _send_event(send: Send, event: bytes, stream_id: str | None = None) -> None:
    if stream_id is not None:
        event = b'%b,"stream_id":"%b"}' % (event[:-1], stream_id.encode())
    await _send_message(send, {"type": "websocket.send", "text": event.decode()})


async def _send_message(send: Send, message: Message) -> None:
    try:
        await send(message)
    except OSError as error:
        raise _DisconnectedError from error
