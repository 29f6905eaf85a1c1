"""All runs of a gateway that are going on: found by their ids, counted, and ended in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.metrics import Metrics
from holodeck.gateway.runs.live_run import LiveRun
from holodeck.gateway.runs.run_log import build_run_observer
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.limits import STORE_RETRY_PAUSE

# Seconds for runs that were stopped to be stored and told; no reader is waited for longer.
STOP_WAIT = 2.0


class ActiveRuns:
    """All runs of this gateway that have not ended."""

    def __init__(self, metrics: Metrics, caller_limits: CallerLimits) -> None:
        """`caller_limits` hears how many tokens a caller's run has used, and of runs that go on after their request."""
        self._metrics = metrics
        self._caller_limits = caller_limits
        self._live: dict[str, LiveRun[Any]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self.background_count = 0
        """How many of them nobody waits for."""

    def __len__(self) -> int:
        return len(self._live)

    def find(self, run_id: str, caller_id: str) -> LiveRun[ResponseWriter] | None:
        """A response in the making that is this owner's."""
        live = self._live.get(run_id)
        return (
            live
            if live is not None and live.caller_id == caller_id and isinstance(live.writer, ResponseWriter)
            else None
        )

    def has(self, run_id: str) -> bool:
        return run_id in self._live

    def cancel(self, run_id: str) -> None:
        """Stop a run, if it is here."""
        if run_id in self._live:
            self._live[run_id].cancel()

    async def stream(self, live: LiveRun[Any], *, has_request_log: bool = True) -> AsyncGenerator[list[bytes], None]:
        """Run one to its end, findable by others in the meantime. `has_request_log`:
        as the answer to the current request.
        """
        with self._register(live, has_request_log=has_request_log):
            async with aclosing(live.stream()) as batches:
                async for batch in batches:
                    yield batch

    async def run_to_end(self, live: LiveRun[Any], *, has_request_log: bool = True) -> None:
        """The same, all at once; `live.failure` says whether it was kept."""
        with self._register(live, has_request_log=has_request_log):
            await live.run_to_end()

    @contextmanager
    def _register(self, live: LiveRun[Any], *, has_request_log: bool) -> Iterator[None]:
        self._live[live.id] = live
        log.add_fields(response=live.id)
        live.on_event = build_run_observer(
            live.id, live.caller_id, live.model, live.toolbox, self._metrics, has_request_log=has_request_log
        )
        try:
            yield
        finally:
            self._live.pop(live.id, None)
            live.toolbox.close()
            if live.result is not None:
                self._caller_limits.add_tokens(live.caller_id, live.result.usage.total_tokens)

    def start_background(self, live: LiveRun[Any]) -> None:
        """Run one without anybody waiting for it."""
        log.add_fields(response=live.id)
        self._live[live.id] = live
        self._caller_limits.acquire(live.caller_id)
        task = asyncio.create_task(self.run_until_stored(live), name=f"background {live.id}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda _: self._caller_limits.release(live.caller_id))

    async def run_until_stored(self, live: LiveRun[Any]) -> None:
        """Run one to its end. Nobody was told that it is not stored, so it is tried until it is."""
        self.background_count += 1
        try:
            with log.scope(**live.log_context | {"response": live.id}):
                await self.run_to_end(live, has_request_log=False)
            while live.failure is not None:
                await asyncio.sleep(STORE_RETRY_PAUSE)
                await live.retry_store()
        finally:
            self.background_count -= 1

    async def close(self) -> None:
        """Stop everything, also what still waits for storage."""
        await self.drain(0)
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def drain(self, seconds: float) -> None:
        """Leave durable runs to others, let the rest go on for a while, then stop what is left."""
        deadline = asyncio.get_running_loop().time() + seconds
        leaving = [asyncio.create_task(live.hand_over()) for live in self._live.values() if live.is_durable]
        while self._live:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            waits = [asyncio.create_task(live.finished.wait()) for live in self._live.values()]
            await asyncio.wait(waits, timeout=left)
            for wait in waits:
                wait.cancel()
        for task in leaving:
            task.cancel()
        for live in list(self._live.values()):
            if live.is_durable:
                live.abandon()
            live.cancel()
        waits = [asyncio.create_task(live.finished.wait()) for live in self._live.values()]
        if waits:
            await asyncio.wait(waits, timeout=STOP_WAIT)
        for wait in waits:
            wait.cancel()
