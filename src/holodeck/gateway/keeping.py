"""The stream of a background response on its way into storage: nobody is shown what is not written down.

So whoever reads on after a crash, here or at another gateway, finds every number that was ever shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import orjson

from holodeck.gateway.wire.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import STREAM_KEEP_INTERVAL
from holodeck.storage.store import ResponseStore

_ITEM_DONE = b'{"type":"response.output_item.done"'


class StreamKeeper:
    """Writes a few times a second what has come since. `show` is told what may be shown then."""

    def __init__(
        self,
        store: ResponseStore,
        response_id: str,
        writer: ResponseWriter,
        *,
        first: int,
        show: Callable[[list[bytes]], None],
        lose: Callable[[], None],
    ) -> None:
        """`first`: the number of the next event. `lose` is called when another process writes this stream."""
        self._store = store
        self._id = response_id
        self._writer = writer
        self._next = first
        self._show = show
        self._lose = lose
        self._coming: list[bytes] = []
        self._news = asyncio.Event()
        self._is_changed = True
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._write_all(), name=f"keep {self._id}")

    def add(self, payloads: Sequence[bytes]) -> None:
        """More of the stream."""
        self._coming += payloads
        self._is_changed = self._is_changed or any(payload.startswith(_ITEM_DONE) for payload in payloads)
        self._news.set()

    async def end(self) -> list[bytes]:
        """Stop writing, and hand back what is not written."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._writing is not None:  # whether a write that is given up was done is not known; so it is not given up
            await asyncio.wait([self._writing])
            self._writing.exception()
        rest, self._coming = self._coming, []
        return rest

    async def _write_all(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            self._writing = asyncio.create_task(self._write())
            try:
                await asyncio.shield(self._writing)
            except StorageError as error:
                log.warning("gateway.stream_not_kept", response=self._id, error=error)
                self._news.set()
            await asyncio.sleep(STREAM_KEEP_INTERVAL)

    async def _write(self) -> None:
        batch = list(self._coming)
        if not batch:
            return
        state = self._writer.resource() if self._is_changed else None
        self._is_changed = False
        try:
            is_kept = await self._store.grow(
                self._id,
                self._next,
                batch,
                resource=orjson.dumps(state) if state is not None else None,
                status=str(state["status"]) if state is not None else None,
            )
        except StorageError:
            self._is_changed = self._is_changed or state is not None
            raise
        if not is_kept:
            self._lose()
            return
        del self._coming[: len(batch)]
        self._next += len(batch)
        self._show(batch)
