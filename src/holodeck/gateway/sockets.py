"""`/v1/responses` over a WebSocket: one response at a time, and the connection remembers what nobody stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from holodeck.gateway.callers import Caller
from holodeck.gateway.continuing import Continuing
from holodeck.gateway.making import ResponseMaker
from holodeck.gateway.problems import WireError, envelope_for, shutting_down
from holodeck.gateway.rates import Rates
from holodeck.gateway.recent import Memory, Recent
from holodeck.gateway.room import NO_ROOM, RequestReservation, Room, no_room
from holodeck.gateway.runs import Runs
from holodeck.gateway.wire.dialects import Dialect
from holodeck.gateway.wire.request import lane_of, read_message
from holodeck.lib.bounded_json import TooDeepError, parse_json
from holodeck.lib.errors import BadRequestError
from holodeck.lib.limits import MAX_QUEUED_MESSAGES

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_GOING_AWAY = 1001
_NO_TEXT = 1007


class _LeftError(Exception):
    """Nobody is at the other end any more."""


class _NoTextError(Exception):
    """A message that is not UTF-8, whichever kind it came as."""


class ResponseSockets:
    """Every connection of every caller."""

    def __init__(
        self,
        maker: ResponseMaker,
        runs: Runs,
        rates: Rates,
        continuing: Continuing,
        *,
        seconds: float,
        most_bytes: int,
        room: Room,
        memory: Memory,
    ) -> None:
        """`most_bytes`: of messages that wait for the response that is being made, unless there is only one.

        `room`: what messages have taken of it before they come here.
        """
        self._most_bytes = most_bytes
        self._room = room
        self._memory = memory
        self._maker = maker
        self._runs = runs
        self._rates = rates
        self._continuing = continuing
        self._seconds = seconds

    async def serve(
        self, caller: Caller, dialect: Dialect, receive: Receive, send: Send, is_draining: Callable[[], bool]
    ) -> None:
        """Answer one accepted connection until it ends. Its end is the end of the run that it waits for."""
        messages = _Messages(self._most_bytes, self._room)
        async with messages, asyncio.TaskGroup() as group:
            answering = group.create_task(_until_left(self._answer_all(caller, dialect, messages, send, is_draining)))
            listening = group.create_task(_until_left(messages.listen(receive, send)))
            listening.add_done_callback(lambda _: answering.cancel())
            answering.add_done_callback(lambda _: listening.cancel())

    async def _answer_all(
        self,
        caller: Caller,
        dialect: Dialect,
        messages: _Messages,
        send: Send,
        is_draining: Callable[[], bool],
    ) -> None:
        loop, why = asyncio.get_running_loop(), _too_long(self._seconds)
        seconds = self._seconds
        if caller.expires_at is not None and (left := caller.expires_at - time.time()) < seconds:
            seconds, why = left, _token_expired()
        deadline = loop.time() + seconds
        with self._memory.of_one(caller.id) as recent:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        message = await messages.get()
                except TimeoutError:
                    await _close(send, why)
                    return
                try:
                    if loop.time() >= deadline:  # messages that wait are had without waiting, so without a timeout
                        await _close(send, why)
                        return
                    if is_draining():
                        await _close(send, shutting_down())  # the next one is elsewhere
                        return
                    await self._answer(message, caller, dialect, recent, send)
                except _NoTextError:
                    await _close(send, _no_text(), _NO_TEXT)
                    return
                finally:
                    messages.forget(message)
                    del message  # else it would be in memory until the next one comes

    async def _answer(self, message: bytes, caller: Caller, dialect: Dialect, recent: Recent, send: Send) -> None:
        body: object = None
        lane: str | None = None
        try:
            with RequestReservation(self._room) as reservation:
                reservation.acquire_parsed(message)
                body = _data(message)
                lane = lane_of(body)
                find = await self._continuing.found(body, caller)
                with self._rates.request(caller):
                    sealed = await self._continuing.open_sealed(body, find, caller, reservation.acquire)
                    request = replace(read_message(body, sealed=sealed, find=find), stream=True)
                    live = await self._maker.prepare(request, caller, recent, dialect=dialect)
                    async with aclosing(self._runs.advance(live, is_asked=False)) as batches:
                        async for batch in batches:
                            for payload in batch:
                                await _tell(send, payload, lane)
            is_failed = live.result is None or live.result.status == "failed"
        except (_LeftError, _NoTextError):
            raise
        except Exception as error:  # the boundary: whatever it was, the connection goes on
            is_failed = True
            await _tell(send, envelope_for(error), lane)
        if is_failed and isinstance(body, dict):
            recent.forget(str(body.get("previous_response_id")))


async def _until_left(work: Awaitable[None]) -> None:
    with suppress(_LeftError):
        await work


class _Messages:
    """What a client has sent and nobody has answered yet. It takes room until then, or until the client leaves."""

    def __init__(self, most_bytes: int, room: Room) -> None:
        self._most_bytes = most_bytes
        self._room = room
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._bytes = 0

    async def __aenter__(self) -> None:
        """Begin with none."""

    async def __aexit__(self, *_: object) -> None:
        while not self._waiting.empty():
            self._room.give(len(self._waiting.get_nowait()))

    async def get(self) -> bytes:
        """The next one, to be forgotten when it is answered."""
        message = await self._waiting.get()
        self._bytes -= len(message)
        return message

    def forget(self, message: bytes) -> None:
        self._room.give(len(message))

    async def listen(self, receive: Receive, send: Send) -> None:
        """Hear everything until the client leaves, whether or not there is room for it: its leaving must be heard."""
        while (heard := await receive())["type"] != "websocket.disconnect":
            if heard["type"] == NO_ROOM:
                await _tell(send, envelope_for(no_room()))
            elif heard["type"] == "websocket.receive" and not self._take(heard["bytes"]):
                await _tell(send, envelope_for(_too_many(self._most_bytes)))
            del heard  # else it would be in memory until more is heard

    def _take(self, message: bytes) -> bool:
        is_too_much = self._bytes and self._bytes + len(message) > self._most_bytes
        if is_too_much or self._waiting.full():
            self._room.give(len(message))
            return False
        self._bytes += len(message)
        self._waiting.put_nowait(message)
        return True


def _data(message: bytes) -> object:
    try:
        return parse_json(message)
    except TooDeepError as error:
        raise BadRequestError(f"The message is {error}.", code="invalid_json") from None
    except ValueError:
        _check_text(message)
        raise BadRequestError("The message is not valid JSON.", code="invalid_json") from None


def _check_text(message: bytes) -> None:
    try:
        message.decode()
    except UnicodeDecodeError:
        raise _NoTextError from None


def _no_text() -> WireError:
    return WireError(400, "The message is not valid UTF-8.", kind="invalid_request", code="invalid_json")


def _too_long(seconds: float) -> WireError:
    message = f"A WebSocket is open for at most {seconds / 60:.0f} minutes. Open a new one and go on there."
    return WireError(400, message, kind="invalid_request", code="websocket_connection_limit_reached")


def _token_expired() -> WireError:
    message = "The token with which this WebSocket was opened has expired. Open a new one with a new token."
    return WireError(401, message, kind="invalid_request", code="token_expired")


def _too_many(most_bytes: int) -> WireError:
    message = (
        f"At most {MAX_QUEUED_MESSAGES} messages, of {most_bytes} bytes together, wait for the response that is being "
        "made. Wait for its end."
    )
    return WireError(429, message, kind="too_many_requests", code="too_many_messages")


async def _close(send: Send, reason: WireError, code: int = _GOING_AWAY) -> None:
    await _tell(send, envelope_for(reason))
    await _send(send, {"type": "websocket.close", "code": code})


async def _tell(send: Send, payload: bytes, lane: str | None = None) -> None:
    if lane is not None:
        payload = b'%b,"stream_id":"%b"}' % (payload[:-1], lane.encode())
    await _send(send, {"type": "websocket.send", "text": payload.decode()})


async def _send(send: Send, message: MutableMapping[str, Any]) -> None:
    try:
        await send(message)
    except OSError as error:
        raise _LeftError from error
