"""A stream of messages to one MCP client, which can lose its connection and come back.

Each message is a server-sent event with an id. A client that reconnects sends the id of the last event that it has, and
gets what came after it. A stream keeps its last `MAX_STREAM_BYTES`; a client that comes back later than that is sent
the rest, which may have a gap. There is one reader at a time: a new one ends the one before.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator

from holodeck.lib.limits import MIB
from holodeck.tools.mcp.protocol.jsonrpc import Message, encode

# Bytes of the latest messages that a stream keeps for a client that comes back.
MAX_STREAM_BYTES = 4 * MIB
# Milliseconds that a client waits before it comes back.
RETRY_MS = 1_000
# The stream and the number of an event. No stream has events for more digits, and Python parses no more than 4,300.
_EVENT_ID = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")


class EventStream:
    """The messages of one request, or those of a session that belong to no request."""

    def __init__(self, stream_id: str, *, has_ids: bool = True, is_announced: bool = False) -> None:
        """`has_ids`: the client can come back. In the modern era it cannot.

        `is_announced`: the first event is an empty one that has an id. Clients before 2025-11-25 cannot read it.
        """
        self.id = stream_id
        self.is_ended = False
        self.is_used = False
        """True once it has a message beside the response to its request."""
        self.response: Message | None = None
        """The response to its request, when it has ended."""
        self._has_ids = has_ids
        self._is_announced = is_announced
        self._has_response_event = False
        self._events: deque[tuple[int, bytes]] = deque()
        self._count = 0
        self._bytes = 0
        self._news = asyncio.Event()
        self._reader: object = None

    def send(self, message: Message) -> None:
        """Add a message. Does not block."""
        if self.is_ended:
            return
        self.is_used = True
        self._append(message)

    def finish(self, response: Message) -> None:
        """Set the response, which is the last message."""
        if not self.is_ended:
            self.response = response
            self.end()

    def end(self) -> None:
        """Add no more messages. A reader ends when it has all of them."""
        self.is_ended = True
        self._news.set()

    async def wait_news(self, seconds: float) -> None:
        """Wait for the first message or the response, at most `seconds`."""
        if not self.is_used and not self.is_ended:
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return

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
        sent = after or 0
        while self._reader is reader:
            self._news.clear()
            self._append_response()
            unsent = [each for each in self._events if each[0] > sent]
            for number, event in unsent:
                yield event
                sent = number
            if not unsent:
                if self.is_ended:
                    return
                await self._news.wait()

    def _append_response(self) -> None:
        """Make the response an event, once. Most responses are read as a whole instead."""
        if self.response is not None and not self._has_response_event:
            self._has_response_event = True
            self._append(self.response)

    def _append(self, message: Message) -> None:
        self._count += 1
        identified = b"id: %s\n" % self._event_id(self._count) if self._has_ids else b""
        event = b"event: message\n%sdata: %s\n\n" % (identified, encode(message))
        self._events.append((self._count, event))
        self._bytes += len(event)
        while self._bytes > MAX_STREAM_BYTES and len(self._events) > 1:
            self._bytes -= len(self._events.popleft()[1])
        self._news.set()

    def _event_id(self, number: int) -> bytes:
        return f"{self.id}.{number}".encode()


def parse_event_id(text: str) -> tuple[str, int] | None:
    """Return the stream and the number of an event id, or None if it is none of ours."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))
