"""The durable engine of this process, which all durable runs of the process share.

There can be one engine in a process, and it belongs to one event loop and one folder. The first run opens it, under the
liveness lock of this process, and the last one closes it. A run in another event loop or folder is refused while it
is open.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holodeck.durable.base import Checkpoints, JSONObject, Work, WorkEngine, WorkTakenOverError
from holodeck.durable_runs.local_state import LocalState
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.record import record
from holodeck.storage.liveness import FileLiveness

_guard = threading.Lock()
_current: list[_SharedEngine] = []
"""At most one, which runs use or wait for."""


@record
class OpenEngine:
    """The engine, and the liveness lock under which it is open."""

    engine: WorkEngine
    liveness: FileLiveness


@asynccontextmanager
async def open_process_engine(state: LocalState, run_id: str, work: Work) -> AsyncIterator[OpenEngine]:
    """Yield the engine of this process, which executes `work` for the run of this id inside the block.

    Raises `StorageError`, and `ExecutionError` if the engine is open in another event loop or folder, or if the run
    is in this process already.
    """
    shared = _join(state)
    try:
        async with shared.add_work(run_id, work) as opened:
            yield opened
    finally:
        await shared.leave()


def _join(state: LocalState) -> _SharedEngine:
    """Return the shared engine with this user counted, and make one if there is none."""
    loop = asyncio.get_running_loop()
    with _guard:
        if not _current:
            _current.append(_SharedEngine(state, loop))
        (shared,) = _current
        if shared.loop is not loop:
            raise ExecutionError(
                "Durable runs of this process go on in another event loop, and there can be one. Run all of them in "
                "one loop: with 'await', or with 'run_sync'."
            )
        if shared.state.folder != state.folder:
            raise ExecutionError(
                f"Durable runs of this process go on in {shared.state.folder}, and not in two folders."
            )
        shared.users += 1
        return shared


class _SharedEngine:
    """Opened by its first user and closed by its last one."""

    def __init__(self, state: LocalState, loop: asyncio.AbstractEventLoop) -> None:
        self.state = state
        self.loop = loop
        self.users = 0
        """Runs that use it, or wait until it is open or closed."""
        self._opened: OpenEngine | None = None
        self._works: dict[str, Work] = {}
        self._lock = asyncio.Lock()
        """Held while it opens or closes."""

    @asynccontextmanager
    async def add_work(self, run_id: str, work: Work) -> AsyncIterator[OpenEngine]:
        async with self._lock:
            self._opened = self._opened or await self._open()
        if run_id in self._works:
            raise ExecutionError(f"{run_id} is running in this process already; nothing was done.")
        self._works[run_id] = work
        try:
            yield self._opened
        finally:
            del self._works[run_id]

    async def leave(self) -> None:
        """Count a user less, and close the engine after the last one."""
        async with self._lock:
            with _guard:
                self.users -= 1
                is_last = not self.users
            opened = self._opened
            if is_last and opened is not None:
                self._opened = None
                try:
                    await opened.engine.close()
                finally:
                    opened.liveness.stop()
        with _guard:
            # Another run may have come while it closed: it opens the engine again.
            if not self.users and self in _current:
                _current.remove(self)

    async def _open(self) -> OpenEngine:
        liveness = self.state.create_liveness()
        # In a thread: the first import takes a second.
        engine = await asyncio.to_thread(self.state.create_engine, liveness)
        with self.state.lock():
            try:
                liveness.start()
            except OSError as error:
                raise StorageError(f"Durable runs cannot be kept: {error.strerror}.") from None
            try:
                await engine.open(self._run_work)
            except BaseException:
                liveness.stop()
                raise
        return OpenEngine(engine=engine, liveness=liveness)

    async def _run_work(self, work_id: str, work_input: JSONObject, checkpoints: Checkpoints) -> JSONObject | None:
        work = self._works.get(work_id)
        if work is None:
            # Its run has left: it stays stored, and can be resumed.
            raise WorkTakenOverError
        return await work(work_id, work_input, checkpoints)
