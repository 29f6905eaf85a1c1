"""The stream of a background response on its way into storage: nobody is shown what is not written down.

So whoever reads on after a crash, here or at another gateway, finds every number that was ever shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import orjson

from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.storage.base import ResponseStore

# Seconds between two writes of a stream that somebody follows: it still looks alive.
STREAM_STORE_INTERVAL = 0.2


_ITEM_DONE = b'{"type":"response.output_item.done"'


class StreamWriter:
    """Writes a few times a second what has come since. `publish` is told what may be shown then."""

    def __init__(
        self,
        store: ResponseStore,
        response_id: str,
        writer: ResponseWriter,
        *,
        first_sequence: int,
        publish: Callable[[list[bytes]], None],
        abandon: Callable[[], None],
    ) -> None:
        """`first_sequence`: the number of the next event.

        `abandon` is called when another process writes this stream.
        """
        self._store = store
        self._id = response_id
        self._writer = writer
        self._next_sequence = first_sequence
        self._publish = publish
        self._abandon = abandon
        self._pending: list[bytes] = []
        self._wakeup = asyncio.Event()
        self._is_resource_changed = True
        self._task: asyncio.Task[None] | None = None
        self._write_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._write_all(), name=f"keep {self._id}")

    def append(self, wire_events: Sequence[bytes]) -> None:
        """More of the stream."""
        self._pending += wire_events
        self._is_resource_changed = self._is_resource_changed or any(
            payload.startswith(_ITEM_DONE) for payload in wire_events
        )
        self._wakeup.set()

    async def stop(self) -> list[bytes]:
        """Stop writing, and hand back what is not written."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if (
            self._write_task is not None
        ):  # whether a write that is given up was done is not known; so it is not given up
            await asyncio.wait([self._write_task])
            self._write_task.exception()
        rest, self._pending = self._pending, []
        return rest

    async def _write_all(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            self._write_task = asyncio.create_task(self._write_batch())
            try:
                await asyncio.shield(self._write_task)
            except StorageError as error:
                log.warning("gateway.stream_not_kept", response=self._id, error=error)
                self._wakeup.set()
            await asyncio.sleep(STREAM_STORE_INTERVAL)

    async def _write_batch(self) -> None:
        batch = list(self._pending)
        if not batch:
            return
        state = self._writer.build_resource() if self._is_resource_changed else None
        self._is_resource_changed = False
        try:
            is_kept = await self._store.append_events(
                self._id,
                self._next_sequence,
                batch,
                resource=orjson.dumps(state) if state is not None else None,
                status=str(state["status"]) if state is not None else None,
            )
        except StorageError:
            self._is_resource_changed = self._is_resource_changed or state is not None
            raise
        if not is_kept:
            self._abandon()
            return
        del self._pending[: len(batch)]
        self._next_sequence += len(batch)
        self._publish(batch)
