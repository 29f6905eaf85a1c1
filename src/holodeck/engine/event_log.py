"""Event log of one run, in memory: events are appended and numbered, and any number of readers follow them.

A reader may start at any event, before, during or after the run, and sees every event from there on in order.
`append` never waits for a reader. The log is used from one event loop and is not thread-safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from holodeck.models.events import Event, RunFinished


class EventSink(Protocol):
    """Takes the events of one run in order, and never waits. The last one is `RunFinished`."""

    def append(self, *events: Event) -> object: ...


class EventLog:
    """Append-only list of events with readers. The first event has number 0; the last one is `RunFinished`."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._waiters: list[asyncio.Future[None]] = []
        self.is_finished = False

    def __len__(self) -> int:
        return len(self._events)

    @property
    def last(self) -> Event | None:
        return self._events[-1] if self._events else None

    def append(self, *events: Event) -> int:
        """Add events, wake the readers and return the number of the last. Raises `RuntimeError` after `RunFinished`."""
        if self.is_finished:
            raise RuntimeError("the run has ended; its log takes no more events")
        self._events += events
        self.is_finished = isinstance(events[-1], RunFinished)
        if self._waiters:
            self._wake_readers()
        return len(self._events) - 1

    async def read(self, starting_after: int = -1) -> AsyncIterator[tuple[int, Event]]:
        """Yield every event after a number, with its own number, until the run has ended."""
        position = starting_after + 1
        while batch := await self.wait_events(position):
            for event in batch:
                yield position, event
                position += 1

    async def wait_events(self, position: int) -> list[Event]:
        """Wait until there are events from `position` on and return them. An empty list: the run ended before it."""
        while position >= len(self._events):
            if self.is_finished:
                return []
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return self._events[position:]

    def _wake_readers(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
