"""A stream of messages to one MCP client, which can lose its connection and come back.

Each message is a server-sent event with an id. A client that reconnects sends the id of the last event that it has, and
gets what came after it. There is one reader at a time: a new one ends the one before. A stream keeps its last
`MAX_STREAM_BYTES`; a client that comes back later than that is sent the rest, which may have a gap.

Every byte of a stream is in the budget of the gateway. `StreamMemory` is what all streams of an endpoint share: when
the budget is short, it drops what streams keep only for a client that may come back, the oldest first.
"""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64decode
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator

from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MIB
from holodeck.lib.record import record
from holodeck.mcp_server.errors import RPCError, status_of
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, Message, RequestId, encode

# Bytes of the latest messages that a stream keeps for a client that comes back.
MAX_STREAM_BYTES = 4 * MIB
# Milliseconds that a client waits before it comes back.
RETRY_MS = 1_000
# The stream and the number of an event. A stream is named by the epoch of its session, its number in that, 0 for the
# stream of messages that belong to no request, and the id of its request, encoded, unless that is long.
# No stream has events for more digits, and Python parses no more than 4,300.
_EVENT_ID = re.compile(r"(([0-9]{1,9})-([0-9]{1,18})(?:-([A-Za-z0-9_-]{1,100}))?)\.([0-9]{1,18})")
_NO_ROOM = "The request was answered, but the gateway has no room for the answer at this moment, and has dropped it."


class StreamMemory:
    """The streams that hold bytes, in the order of their latest message, within a budget of bytes."""

    def __init__(self, budget: ByteBudget) -> None:
        self.budget = budget
        self._streams: OrderedDict[EventStream, None] = OrderedDict()
        budget.add_reclaimer(self._reclaim)

    def note(self, stream: EventStream) -> None:
        """Remember a stream as the latest that has got bytes, or forget one that has none."""
        self._streams.pop(stream, None)
        if stream.size:
            self._streams[stream] = None

    def _reclaim(self, size: int) -> None:
        """Release `size` bytes, or as many as are kept only for clients that may come back."""
        freed = 0
        for stream in list(self._streams):
            freed += stream.drop_kept()
            if freed >= size:
                return


class EventStream:
    """The messages of one request, or those of a session that belong to no request. The owner calls `drop`."""

    def __init__(
        self,
        stream_id: str,
        memory: StreamMemory,
        *,
        has_ids: bool = True,
        is_announced: bool = False,
        is_awaited: bool = True,
    ) -> None:
        """`has_ids`: the client can come back. In the modern era it cannot.

        `is_announced`: the first event is an empty one that has an id. Clients before 2025-11-25 cannot read it.
        `is_awaited`: a reply waits for its messages, so that they are not dropped before `leave`.
        """
        self.id = stream_id
        self.is_ended = False
        self.is_used = False
        """True once it has a message beside the response to its request."""
        self._connections = int(is_awaited)
        """Connections that read it, or are about to."""
        self.status: int | None = None
        """The HTTP status of the response in the modern era, when there is one."""
        self.is_lost = False
        """True once what a client could come back for was dropped."""
        self._body: bytes | None = None
        """The response to its request, until it is an event."""
        self._body_size = 0
        """Bytes of the budget for `_body`."""
        self._has_ids = has_ids
        self._is_announced = is_announced
        self._events: deque[tuple[int, bytes, int]] = deque()
        """Number, text, and bytes of the budget."""
        self._count = 0
        self._sent = 0
        """The number of the last event that was written to the latest connection."""
        self._memory = memory
        self._reserved = Reservation(memory.budget)
        self._news = asyncio.Event()
        self._reader: object = None

    @property
    def size(self) -> int:
        """Bytes of the budget that it holds."""
        return self._reserved.size

    @property
    def body(self) -> bytes | None:
        """The response as JSON, for a reply that is not a stream; None if there is none."""
        return self._body

    @property
    def is_awaited(self) -> bool:
        """Whether a connection reads it, or is about to."""
        return self._connections > 0

    @property
    def is_sent(self) -> bool:
        """Whether it has ended, and all of it was written to a connection."""
        return self.is_ended and self._body is None and self._sent == self._count

    def send(self, message: Message) -> None:
        """Add a message, unless there is no room for it. Does not block."""
        if self.is_ended:
            return
        self.is_used = True
        self._append(encode(message))

    def finish(self, response: Message) -> None:
        """Set the response, which is the last message."""
        if self.is_ended:
            return
        body, self.status = encode(response), status_of(response)
        try:
            self._reserved.extend(len(body))
            self._body_size = len(body)
        except OverBudgetError:
            body = encode(RPCError(INTERNAL_ERROR, _NO_ROOM).to_response(response.get("id")))
        self._body = body
        self._memory.note(self)
        self.is_ended = True
        self._news.set()

    def end(self) -> None:
        """Add no more messages. A reader ends when it has all of them."""
        self.is_ended = True
        self._news.set()

    def join(self) -> None:
        """Record that one more connection is going to read it, until `leave`."""
        self._connections += 1

    def leave(self) -> None:
        """Record that one of the connections does not read it any more."""
        self._connections -= 1

    def drop(self) -> None:
        """End it, and release all of its bytes."""
        self.is_ended = self.is_lost = True
        self._news.set()
        self._connections = 0
        self._body, self._body_size = None, 0
        self._events.clear()
        self._reserved.release()
        self._memory.note(self)

    def drop_kept(self) -> int:
        """Release what is kept only for a client that may come back. Returns the bytes."""
        before = self.size
        if self.is_awaited:
            self._forget_until(self._sent)
        else:
            self.is_lost = self.is_ended
            self._forget_until(self._count)
            self._forget_body()
        return before - self.size

    async def wait_news(self, seconds: float) -> None:
        """Wait for the first message or the response, at most `seconds`."""
        if not self.is_used and not self.is_ended:
            timer = asyncio.get_running_loop().call_later(seconds, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()

    async def wait_end(self) -> None:
        """Wait until the stream has ended."""
        while not self.is_ended:
            self._news.clear()
            await self._news.wait()

    async def read(self, after: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yield the events after the one of this number, until the stream ends or another reader begins."""
        self._reader = reader = object()
        self._news.set()
        if self._is_announced and after is None:
            # Lets a client come back that loses its connection before the first message.
            yield b"id: %s\nretry: %d\ndata: \n\n" % (self._event_id(0), RETRY_MS)
        sent = self._sent = after or 0
        while self._reader is reader:
            self._news.clear()
            self._append_response()
            unsent = [each for each in self._events if each[0] > sent]
            for number, event, _ in unsent:
                yield event
                sent = number
                if self._reader is reader:
                    self._sent = number
                if not self._has_ids:
                    self._forget_until(number)
            if not unsent:
                if self.is_ended:
                    return
                await self._news.wait()

    def _append_response(self) -> None:
        """Make the response an event, once. Most responses are read as a whole instead."""
        if self._body is not None:
            body = self._body
            self._forget_body()
            self._append(body, is_response=True)

    def _append(self, message: bytes, *, is_response: bool = False) -> None:
        number = self._count + 1
        identified = b"id: %s\n" % self._event_id(number) if self._has_ids else b""
        event = b"event: message\n%sdata: %s\n\n" % (identified, message)
        size = len(event)
        try:
            self._reserved.extend(size)
        except OverBudgetError:
            # A notification is dropped. The response is read right away by the connection that asks for it.
            if not is_response:
                return
            size = 0
        self._count = number
        self._events.append((number, event, size))
        while self.size > MAX_STREAM_BYTES and len(self._events) > 1:
            self._forget_until(self._events[0][0])
        self._memory.note(self)
        self._news.set()

    def _forget_until(self, number: int) -> None:
        """Release the events up to this number."""
        freed = 0
        while self._events and self._events[0][0] <= number:
            freed += self._events.popleft()[2]
        self._release(freed)

    def _forget_body(self) -> None:
        self._body, size, self._body_size = None, self._body_size, 0
        self._release(size)

    def _release(self, size: int) -> None:
        if size:
            self._reserved.resize(self.size - size)
            self._memory.note(self)

    def _event_id(self, number: int) -> bytes:
        return f"{self.id}.{number}".encode()


@record
class EventId:
    """The id of an event, as a client that comes back names it."""

    stream: str
    """The id of the stream."""
    epoch: int
    is_own: bool
    """Whether the stream is that of messages that belong to no request."""
    request_id: RequestId | None
    """The request of the stream. None: not known."""
    number: int


def parse_event_id(text: str) -> EventId | None:
    """Return the parts of an event id, or None if it is none of ours."""
    found = _EVENT_ID.fullmatch(text)
    if found is None:
        return None
    stream, epoch, place, name, number = found.groups()
    return EventId(
        stream=stream, epoch=int(epoch), is_own=place == "0", request_id=_decode_name(name), number=int(number)
    )


def _decode_name(name: str | None) -> RequestId | None:
    """Return the id of a request in the id of its stream."""
    try:
        decoded = parse_json(urlsafe_b64decode(f"{name or ''}=="))
    except ValueError:
        return None
    return decoded if isinstance(decoded, int | str) and not isinstance(decoded, bool) else None
