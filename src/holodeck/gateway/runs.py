"""All runs of a gateway that are going on: found by their ids, counted, and ended in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from holodeck.gateway.live_run import LiveRun
from holodeck.gateway.metrics import Metrics
from holodeck.gateway.rates import Rates
from holodeck.gateway.run_log import run_log
from holodeck.gateway.wire.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.limits import KEEP_RETRY, STOP_WAIT


class Runs:
    """All runs of this gateway that have not ended."""

    def __init__(self, metrics: Metrics, rates: Rates) -> None:
        """`rates` hears how many tokens a caller's run has used, and of runs that go on after their request."""
        self._metrics = metrics
        self._rates = rates
        self._live: dict[str, LiveRun[Any]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self.in_background = 0
        """How many of them nobody waits for."""

    def __len__(self) -> int:
        return len(self._live)

    def get(self, run_id: str, owner: str) -> LiveRun[ResponseWriter] | None:
        """A response in the making that is this owner's."""
        live = self._live.get(run_id)
        return live if live is not None and live.owner == owner and isinstance(live.writer, ResponseWriter) else None

    def has(self, run_id: str) -> bool:
        return run_id in self._live

    def cancel(self, run_id: str) -> None:
        """Stop a run, if it is here."""
        if run_id in self._live:
            self._live[run_id].cancel()

    async def advance(self, live: LiveRun[Any], *, is_asked: bool = True) -> AsyncGenerator[list[bytes], None]:
        """Run one to its end, findable by others in the meantime. `is_asked`: as the answer to the current request."""
        with self._known(live, is_asked=is_asked):
            async with aclosing(live.advance()) as batches:
                async for batch in batches:
                    yield batch

    async def finish(self, live: LiveRun[Any], *, is_asked: bool = True) -> None:
        """The same, all at once; `live.failure` says whether it was kept."""
        with self._known(live, is_asked=is_asked):
            await live.finish()

    @contextmanager
    def _known(self, live: LiveRun[Any], *, is_asked: bool) -> Iterator[None]:
        self._live[live.id] = live
        log.note(response=live.id)
        live.observe = run_log(live.id, live.owner, live.model, live.toolbox, self._metrics, is_asked=is_asked)
        try:
            yield
        finally:
            self._live.pop(live.id, None)
            live.toolbox.close()
            if live.result is not None:
                self._rates.spent(live.owner, live.result.usage.total_tokens)

    def start(self, live: LiveRun[Any]) -> None:
        """Run one without anybody waiting for it."""
        log.note(response=live.id)
        self._live[live.id] = live
        self._rates.hold(live.owner)
        task = asyncio.create_task(self.finish_patiently(live), name=f"background {live.id}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda _: self._rates.release(live.owner))

    async def finish_patiently(self, live: LiveRun[Any]) -> None:
        """Run one to its end. Nobody was told that it is not stored, so it is tried until it is."""
        self.in_background += 1
        try:
            with log.about(**live.about | {"response": live.id}):
                await self.finish(live, is_asked=False)
            while live.failure is not None:
                await asyncio.sleep(KEEP_RETRY)
                await live.keep_again()
        finally:
            self.in_background -= 1

    async def close(self) -> None:
        """Stop everything, also what still waits for storage."""
        await self.drain(0)
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def drain(self, seconds: float) -> None:
        """Leave durable runs to others, let the rest go on for a while, then stop what is left."""
        deadline = asyncio.get_running_loop().time() + seconds
        leaving = [asyncio.create_task(live.leave()) for live in self._live.values() if live.is_durable]
        while self._live:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            waits = [asyncio.create_task(live.is_done.wait()) for live in self._live.values()]
            await asyncio.wait(waits, timeout=left)
            for wait in waits:
                wait.cancel()
        for task in leaving:
            task.cancel()
        for live in list(self._live.values()):
            if live.is_durable:
                live.lose()
            live.cancel()
        waits = [asyncio.create_task(live.is_done.wait()) for live in self._live.values()]
        if waits:
            await asyncio.wait(waits, timeout=STOP_WAIT)
        for wait in waits:
            wait.cancel()
