"""The spine of a run: events are appended and numbered, and any number of readers follow, early or late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from holodeck.models.events import Event, RunFinished


class EventLog:
    """Append-only. The first event has number 0; the last one is `RunFinished`."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._waiters: list[asyncio.Future[None]] = []
        self.is_finished = False

    def __len__(self) -> int:
        return len(self._events)

    @property
    def last(self) -> Event | None:
        return self._events[-1] if self._events else None

    def append(self, event: Event) -> int:
        """Add an event and wake the readers. Nothing can follow the end."""
        if self.is_finished:
            raise RuntimeError("the run has ended; its log takes no more events")
        self._events.append(event)
        if isinstance(event, RunFinished):
            self.is_finished = True
        if self._waiters:
            self._wake_readers()
        return len(self._events) - 1

    def _wake_readers(self) -> None:
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def read(self, starting_after: int = -1) -> AsyncIterator[tuple[int, Event]]:
        """Every event after a number, those to come included, until the run has ended."""
        position = starting_after + 1
        async for batch in self.read_batches(starting_after):
            for event in batch:
                yield position, event
                position += 1

    async def read_batches(self, starting_after: int = -1) -> AsyncGenerator[list[Event], None]:
        """The same, with what has happened since the last look in one piece: cheaper for a reader in a hurry."""
        position = starting_after + 1
        while batch := await self.wait_events(position):
            position += len(batch)
            yield batch

    async def wait_events(self, position: int) -> list[Event]:
        """The events from a number on, as soon as there are any. An empty list: the run has ended before."""
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
