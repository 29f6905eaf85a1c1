"""Requests of MCP clients that another gateway answers, through the database that both share.

`Relays.send` stores a request for a gateway and returns what that gateway replies: a whole body, or a stream whose
chunks follow one by one. The other gateway finds the request, answers it once, and adds the messages of its reply. The
row of the request lasts as long as its sender waits: when the sender's client leaves, the answer is cancelled as on a
closed connection. When either gateway dies the other one notices, since the database knows which gateways are alive.

One task of the service, `follow`, looks for both, often while there is traffic and rarely while there is none. The
bytes of requests and of messages that wait here are in the byte budget.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import field
from functools import partial
from typing import Any

import orjson

from holodeck.gateway.http.errors import mcp_error_reply, reply_for
from holodeck.gateway.http.replies import Reply, StreamCutError, StreamedReply
from holodeck.gateway.http.request import RequestReservation
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.errors import HoloDeckError, StorageError
from holodeck.lib.ids import new_id
from holodeck.lib.record import record
from holodeck.lib.tasks import TaskSet
from holodeck.storage.mcp_sessions import MCPSessionStore

# Seconds between two looks while there is traffic; each look that finds nothing makes the next pause longer.
FIRST_PAUSE = 0.005
PAUSE_GROWTH = 1.3
# The longest such pause, while this gateway has something that others may ask for, and while it has nothing.
LONGEST_PAUSE = 0.1
IDLE_PAUSE = 1.0
# Seconds between two checks whether the other gateways of relays are alive.
ALIVE_SECONDS = 1.0
# Seconds for the answers to other gateways to end when this one does.
CLOSE_TIMEOUT = 5.0

# The first byte of a message.
_WHOLE, _STREAM, _CHUNK, _END, _CUT, _MOVED = b"R", b"S", b"C", b"E", b"X", b"M"


class LostGatewayError(HoloDeckError):
    """The gateway that was to answer has died."""


@record
class RelayedRequest:
    """A request as the gateway that answers it needs it. Its caller was authenticated by the sender."""

    method: str
    target: str
    """The id of a session, or the `requestState` of a paused call."""
    caller_id: str
    scope: str
    """The digest of the caller's scope."""
    server: str
    """The server of the path. Empty: all."""
    headers: Mapping[str, str]
    id: str
    """Of the request, for the log."""
    body: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        head = [self.method, self.target, self.caller_id, self.scope, self.server, dict(self.headers), self.id]
        return b"%b\n%b" % (orjson.dumps(head), self.body)


def _decode_request(data: bytes) -> RelayedRequest:
    head, _, body = data.partition(b"\n")
    method, target, caller_id, scope, server, headers, request_id = orjson.loads(head)
    return RelayedRequest(
        method=method,
        target=target,
        caller_id=caller_id,
        scope=scope,
        server=server,
        headers=headers,
        id=request_id,
        body=body,
    )


AnswerRequest = Callable[[RelayedRequest, RequestReservation], Awaitable[Reply | StreamedReply | None]]
"""Answers a request of another gateway. None: its target is not here."""


class _Answer:
    """The reply of another gateway, as far as it has come."""

    def __init__(self, budget: ByteBudget) -> None:
        self.last = 0
        """The number of the last message."""
        self.is_lost = False
        self.is_ended = False
        self._messages: deque[bytes] = deque()
        self._reserved = Reservation(budget)
        self._news = asyncio.Event()

    @property
    def wants_more(self) -> bool:
        """Whether messages should be read: a slow client leaves them in the database."""
        return not self._messages

    def add(self, number: int, message: bytes) -> bool:
        """Take the next message. False: it is not the next one, or there is no room for it now."""
        if number <= self.last:
            return True
        if number != self.last + 1:
            return False
        try:
            self._reserved.extend(len(message))
        except OverBudgetError:
            return False
        self.last = number
        self._messages.append(message)
        self._news.set()
        return True

    def lose(self) -> None:
        self.is_lost = True
        self._news.set()

    def end(self) -> None:
        """Add nothing more. A reader ends when it has what is there."""
        self.is_ended = True
        self._news.set()

    async def read(self) -> bytes:
        """Return the next message. Raises `LostGatewayError` where none can come any more."""
        while not self._messages:
            if self.is_ended:
                return _END
            if self.is_lost:
                raise LostGatewayError("The gateway that was to answer has died.")
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        self._reserved.resize(self._reserved.size - len(message))
        return message

    def drop(self) -> None:
        self._messages.clear()
        self._reserved.release()


class Relays:
    """The requests that this gateway has others answer, and those that it answers for others."""

    def __init__(
        self,
        store: MCPSessionStore,
        budget: ByteBudget,
        answer: AnswerRequest,
        *,
        is_needed: Callable[[], bool],
        checks_before_loss: int = 1,
    ) -> None:
        """`is_needed`: whether other gateways may ask this one for something.

        `checks_before_loss`: checks in a row at which a gateway must be missing before it counts as dead.
        """
        self._store = store
        self._budget = budget
        self._answer = answer
        self._is_needed = is_needed
        self._checks_before_loss = checks_before_loss
        self._awaited: dict[str, _Answer] = {}
        self._listening: set[str] = set()
        """Those that last as long as their client listens."""
        self._answering: dict[str, asyncio.Task[None]] = {}
        """Also those that have ended, until their sender has read the answer: none is answered twice."""
        self._missing: Counter[str] = Counter()
        self._checked_at = 0.0
        self._pause = FIRST_PAUSE
        self._wake = asyncio.Event()
        self._closed = asyncio.Event()
        self._tasks = TaskSet()

    def wake(self) -> None:
        """Have `follow` look often for a while: there is something that others may ask for."""
        self._pause = FIRST_PAUSE
        self._wake.set()

    async def close(self) -> None:
        for answer in self._awaited.values():
            answer.lose()
        await self._tasks.close(CLOSE_TIMEOUT)

    async def drain(self, seconds: float) -> None:
        """End the streams that only wait, and give all other relays `seconds` to be answered: this gateway stops."""
        for relay_id in self._listening:
            self._awaited[relay_id].end()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._awaited:
                    self._closed.clear()
                    await self._closed.wait()
                if self._answering:
                    await asyncio.wait(self._answering.values())

    async def send(self, gateway_id: int, request: RelayedRequest) -> Reply | StreamedReply | None:
        """Have a gateway answer a request. None: what the request is for is not there any more.

        Raises `LostGatewayError` when that gateway dies before its reply has begun; `StreamedReply.chunks` raises it
        when it dies later. Raises `StorageError`.
        """
        relay_id, answer = new_id("relay"), _Answer(self._budget)
        self._awaited[relay_id] = answer
        close = partial(self._close, relay_id)
        try:
            await self._store.open_relay(relay_id, gateway_id, request.encode())
            self.wake()
            message = await answer.read()
        except BaseException:
            self._tasks.start(close(), name="close MCP relay")
            raise
        kind, (head, _, body) = message[:1], message[1:].partition(b"\n")
        if kind != _STREAM:
            self._tasks.start(close(), name="close MCP relay")
            if kind == _MOVED:
                return None
            about = orjson.loads(head)
            return Reply(
                status=about["status"], body=body, content_type=about["content_type"], headers=about["headers"]
            )
        about = orjson.loads(head)
        if request.method == "GET":
            self._listening.add(relay_id)
        return StreamedReply(
            chunks=_read_chunks(answer), content_type=about["content_type"], headers=about["headers"], on_close=close
        )

    async def _close(self, relay_id: str) -> None:
        self._listening.discard(relay_id)
        answer = self._awaited.pop(relay_id, None)
        self._closed.set()
        if answer is not None:
            answer.drop()
        try:
            await self._store.close_relay(relay_id)
        # Its row ends with this gateway.
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)

    async def follow(self) -> None:
        """Look for requests and for messages. Runs until it is cancelled."""
        while True:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._wake.wait()
            longest = LONGEST_PAUSE if self._awaited or self._answering or self._is_needed() else IDLE_PAUSE
            try:
                has_news = await self._look()
            except StorageError as error:
                log.debug("gateway.storage_failed", error=error)
                self._pause = IDLE_PAUSE
            else:
                self._pause = FIRST_PAUSE if has_news else min(self._pause * PAUSE_GROWTH, longest)

    async def _look(self) -> bool:
        """Start new answers, cancel those that are not waited for any more, and take messages.

        Returns whether there was any.
        """
        asked = await self._store.list_relays()
        for relay_id in self._answering.keys() - asked:
            self._answering.pop(relay_id).cancel()
        has_news = bool(new := asked - self._answering.keys())
        if new:
            for relay_id, request in (await self._store.read_requests(new)).items():
                work = self._answer_relay(relay_id, _decode_request(request))
                self._answering[relay_id] = self._tasks.start(work, name="answer MCP relay")
        if wanted := [relay_id for relay_id, answer in self._awaited.items() if answer.wants_more]:
            has_news = await self._take_messages(wanted) or has_news
        if (self._awaited or self._answering) and time.monotonic() - self._checked_at >= ALIVE_SECONDS:
            self._checked_at = time.monotonic()
            await self._check_alive()
        return has_news

    async def _take_messages(self, relay_ids: Collection[str]) -> bool:
        taken: dict[str, int] = {}
        for relay_id, number, message in await self._store.read_messages(relay_ids):
            answer = self._awaited.get(relay_id)
            if answer is not None and answer.add(number, message):
                taken[relay_id] = number
        if taken:
            await self._store.delete_messages(taken)
        return bool(taken)

    async def _check_alive(self) -> None:
        lost = await self._store.list_lost_relays()
        self._missing = Counter({relay_id: self._missing[relay_id] + 1 for relay_id in lost})
        for relay_id in [each for each, checks in self._missing.items() if checks >= self._checks_before_loss]:
            if relay_id in self._awaited:
                self._awaited[relay_id].lose()
            else:
                await self._store.close_relay(relay_id)

    async def _answer_relay(self, relay_id: str, request: RelayedRequest) -> None:
        number = 0

        async def send(message: bytes) -> None:
            nonlocal number
            number += 1
            await self._store.add_message(relay_id, number, message)
            self.wake()

        with log.scope(request=request.id, caller=request.caller_id):
            try:
                # Of its body, and of what is parsed of it.
                with RequestReservation(self._budget) as held, RequestReservation(self._budget) as parsed:
                    await self._answer_with(request, held, parsed, send)
            except StorageError as error:
                # Its sender finds out when this gateway is gone, or its client gives up.
                log.warning("gateway.storage_failed", error=error)

    async def _answer_with(
        self,
        request: RelayedRequest,
        held: RequestReservation,
        parsed: RequestReservation,
        send: Callable[[bytes], Awaitable[None]],
    ) -> None:
        try:
            held.acquire(len(request.body))
            if request.body:
                parsed.acquire_parsed(request.body)
            reply = await self._answer(request, parsed)
        # The boundary: every error becomes a reply, as the application has it for a request of its own.
        except Exception as error:
            reply = mcp_error_reply(reply_for(error, request.id), "")
        if reply is None:
            await send(_MOVED)
        elif isinstance(reply, Reply):
            await send(_WHOLE + _encode_head(reply, status=reply.status) + reply.body)
        else:
            async with aclosing(reply):
                await send(_STREAM + _encode_head(reply))
                try:
                    async for chunk in reply.chunks:
                        await send(_CHUNK + chunk)
                except StreamCutError:
                    await send(_CUT)
                else:
                    await send(_END)


def _encode_head(reply: Reply | StreamedReply, **more: Any) -> bytes:
    return orjson.dumps({"content_type": reply.content_type, "headers": dict(reply.headers), **more}) + b"\n"


async def _read_chunks(answer: _Answer) -> AsyncGenerator[bytes, None]:
    while (message := await answer.read())[:1] == _CHUNK:
        yield message[1:]
    if message == _CUT:
        raise StreamCutError
