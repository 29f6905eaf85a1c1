"""Storage of the event stream of a durable response while it runs.

Events are published to readers only after they are stored. So a reader that continues after a crash, at this gateway or
another, finds every sequence number that was ever sent. One task writes all events that have come since the last write,
at most every `STREAM_STORE_INTERVAL`. A write that fails is repeated, with what has come since: storage recognises the
part that it has. A write that storage rejects means that another process has written the stream, and abandons the run;
if the response still belongs to this gateway, `Background.watch_gateways` resumes it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

import orjson

from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.tasks import TaskSet
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore

# Seconds between two writes of a stream: often enough that a followed stream looks live, with few transactions.
STREAM_STORE_INTERVAL = 0.2

# Begins the events after which the stored resource is written again.
_ITEM_DONE = b'{"type":"response.output_item.done"'


class StreamWriter:
    """Stores the stream of one response. Owns its writing task from `start` to `stop`."""

    def __init__(
        self,
        store: ResponseStore,
        response_id: str,
        writer: ResponseWriter,
        *,
        first_sequence: int,
        publish: Callable[[list[bytes]], None],
        abandon: Callable[[], None],
        encode_trace: Callable[[], bytes],
    ) -> None:
        """`first_sequence`: the sequence number of the next event. `encode_trace`: the trace of the run so far.

        `publish` is called with events that have been stored. `abandon` is called when another process writes this
        stream.
        """
        self._store = store
        self._id = response_id
        self._writer = writer
        self._next_sequence = first_sequence
        self._publish = publish
        self._abandon = abandon
        self._encode_trace = encode_trace
        self._pending: list[bytes] = []
        self._wakeup = asyncio.Event()
        self._is_resource_changed = True
        self._tasks = TaskSet()
        self._task: asyncio.Task[None] | None = None
        self._write_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._tasks.supervise(self._write_all, name=f"store stream of {self._id}")

    def append(self, wire_events: Sequence[bytes]) -> None:
        """Add events to the next write. Does not wait."""
        self._pending += wire_events
        self._is_resource_changed = self._is_resource_changed or any(
            payload.startswith(_ITEM_DONE) for payload in wire_events
        )
        self._wakeup.set()

    async def stop(self) -> list[bytes]:
        """Stop writing, and return the events that are not stored. A write under way is waited for."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._write_task is not None:
            # Not cancelled: whether a cancelled write took effect is not known.
            await asyncio.wait([self._write_task])
            self._write_task.exception()
        rest, self._pending = self._pending, []
        return rest

    async def _write_all(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            self._write_task = self._tasks.start(self._write_batch())
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
        resource = self._writer.build_resource() if self._is_resource_changed else None
        if resource is not None and resource["status"] not in UNFINISHED_STATUSES:
            # The end is stored by the finisher, together with the items from which another response continues.
            resource = None
        self._is_resource_changed = False
        try:
            is_accepted = await self._store.append_events(
                self._id,
                self._next_sequence,
                batch,
                resource=orjson.dumps(resource) if resource is not None else None,
                status=str(resource["status"]) if resource is not None else None,
                trace=self._encode_trace() if resource is not None else None,
            )
        except StorageError:
            self._is_resource_changed = self._is_resource_changed or resource is not None
            raise
        if not is_accepted:
            log.warning("gateway.stream_refused", response=self._id, first=self._next_sequence)
            self._abandon()
            return
        del self._pending[: len(batch)]
        self._next_sequence += len(batch)
        self._publish(batch)


# Events of a pack: about 30 kB, which take a fraction of a millisecond.
PACK_EVENTS = 128
# Of zlib, the fastest: a pack shrinks to less than a tenth at any level.
_LEVEL = 1


class WireEvents:
    """The wire events of one run in memory, for readers that come later and for storage. The last can be taken back.

    An answer of a megabyte in small pieces is a stream of 14 MB, of which nearly all is repetition. So the older events
    are compressed in packs; what readers are about to read is not. An event contains no line break.
    """

    __slots__ = ("_packs", "_recent")

    def __init__(self, events: Sequence[bytes] = ()) -> None:
        self._packs: list[bytes] = []
        self._recent: list[bytes] = []
        if events:
            self.extend(events)

    def __len__(self) -> int:
        return len(self._packs) * PACK_EVENTS + len(self._recent)

    def __iter__(self) -> Iterator[bytes]:
        return chain(chain.from_iterable(map(_unpack, self._packs)), self._recent)

    def extend(self, events: Iterable[bytes]) -> None:
        """Append events. A pack is made of the oldest ones once as many newer ones are there."""
        self._recent += events
        while len(self._recent) >= 2 * PACK_EVENTS:
            self._packs.append(zlib.compress(b"\n".join(self._recent[:PACK_EVENTS]), _LEVEL))
            del self._recent[:PACK_EVENTS]

    def read(self, position: int) -> list[bytes]:
        """Return the events from `position` on; where they are many, only the first of them."""
        pack, offset = divmod(position, PACK_EVENTS)
        if pack < len(self._packs):
            return _unpack(self._packs[pack])[offset:]
        return self._recent[position - len(self._packs) * PACK_EVENTS :]

    def remove_last(self, count: int) -> None:
        """Take back the last `count` events."""
        while count > len(self._recent) and self._packs:
            self._recent[:0] = _unpack(self._packs.pop())
        del self._recent[len(self._recent) - count :]

    def copy(self) -> WireEvents:
        copied = WireEvents()
        copied._packs, copied._recent = list(self._packs), list(self._recent)
        return copied

    def join(self) -> bytes:
        """Return all events, one per line."""
        recent = (b"\n".join(self._recent),) if self._recent else ()
        return b"\n".join((*map(zlib.decompress, self._packs), *recent))


def _unpack(pack: bytes) -> list[bytes]:
    return zlib.decompress(pack).split(b"\n")
