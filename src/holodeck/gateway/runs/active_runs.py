"""Registry of the runs of one gateway that have not finished.

A request that waits for its run registers it (`register`), and then runs it itself; `start_background` and
`run_until_stored` do both for a background response. Registered runs are found by id, so that other requests can follow
or cancel them. At the end of a run its toolbox is closed and its tokens are added to the caller's account.

`drain` ends them in order when the gateway stops: durable runs are handed over to other gateways, the others may finish
until the deadline, and the rest is cancelled. `close` also ends background runs that still wait for storage.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holodeck.gateway.auth.callers import RevokedCallers
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.runs.live_run import LiveRun, RunState
from holodeck.gateway.runs.run_observer import RunObserver
from holodeck.gateway.usage.meter import UsageMeter
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.limits import STORE_RETRY_PAUSE
from holodeck.lib.tasks import TaskSet

# Seconds for cancelled runs to be stored and their ends to be sent. Longer would delay the exit for a reader that reads
# nothing.
STOP_WAIT = 2.0


class ActiveRuns:
    """The runs of this gateway that have not finished."""

    def __init__(self, metrics: Metrics, caller_limits: CallerLimits, meter: UsageMeter | None = None) -> None:
        """`caller_limits` counts the tokens of each caller's runs, and its background runs.

        `meter` counts their usage. None: it is not counted.
        """
        self._observer = RunObserver(metrics, meter)
        self._caller_limits = caller_limits
        self._live: dict[str, LiveRun[Any]] = {}
        self._background = TaskSet()
        self._background_ids: set[str] = set()
        """The runs that are background responses."""

    def __len__(self) -> int:
        return len(self._live)

    @property
    def background_count(self) -> int:
        """How many of the runs are background responses."""
        return len(self._background_ids)

    def find(self, run_id: str, caller_id: str) -> LiveRun[ResponseWriter] | None:
        """The unfinished response of a caller. None if it is another caller's, no response, or not here."""
        live = self._live.get(run_id)
        return (
            live
            if live is not None and live.caller_id == caller_id and isinstance(live.writer, ResponseWriter)
            else None
        )

    def find_stored(self, run_id: str) -> LiveRun[ResponseWriter] | None:
        """The unfinished response of any caller, if it will be stored. None: it is not here."""
        live = self._live.get(run_id)
        return live if live is not None and isinstance(live.writer, ResponseWriter) and live.writer.is_stored else None

    def list_stored(self) -> list[LiveRun[ResponseWriter]]:
        """The unfinished responses of all callers that will be stored, or are already."""
        return [
            live for live in self._live.values() if isinstance(live.writer, ResponseWriter) and live.writer.is_stored
        ]

    def has(self, run_id: str) -> bool:
        return run_id in self._live

    def is_working_on(self, run_id: str) -> bool:
        """Whether a run is here, or waits here to be stored."""
        return run_id in self._live or run_id in self._background_ids

    def cancel(self, run_id: str) -> None:
        """Cancel a run. Does nothing if it is not here."""
        if run_id in self._live:
            self._live[run_id].cancel()

    def cancel_background(self, revoked: RevokedCallers) -> None:
        """Cancel the background responses of these callers. Other runs end with their requests."""
        for run_id in self._background_ids & self._live.keys():
            if self._live[run_id].caller_id in revoked:
                self._live[run_id].cancel()

    def register(self, live: LiveRun[Any], *, has_request_log: bool = True) -> None:
        """Register a run for the time from its start to its end, which it reports itself.

        `has_request_log`: see `LiveRun`.
        """
        log.add_fields(response=live.id)
        live.on_start, live.on_end = self._add, self._remove
        live.on_event, live.has_request_log = self._observer.observe, has_request_log

    def _add(self, live: LiveRun[Any]) -> None:
        self._live[live.id] = live

    def _remove(self, live: LiveRun[Any]) -> None:
        self._live.pop(live.id, None)
        live.toolbox.close()
        if live.result is not None:
            self._caller_limits.add_tokens(live.caller_id, live.result.usage.total_tokens)

    def start_background(self, live: LiveRun[Any]) -> None:
        """Start a run as a task of this gateway, which outlives the request."""
        log.add_fields(response=live.id)
        self._live[live.id] = live
        self._background_ids.add(live.id)
        self._caller_limits.acquire(live.caller_id)
        task = self._background.start(self.run_until_stored(live), name=f"background {live.id}")
        task.add_done_callback(lambda _: self._caller_limits.release(live.caller_id))

    async def run_until_stored(self, live: LiveRun[Any]) -> None:
        """Run to the end, and retry to store it until that succeeds: no request is there to report a failure to.

        Closes the run.
        """
        self._background_ids.add(live.id)
        try:
            async with live:
                with log.scope(**live.log_context | {"response": live.id}):
                    self.register(live, has_request_log=False)
                    await live.run_to_end()
                while live.state is RunState.FAILED_TO_STORE:
                    await asyncio.sleep(STORE_RETRY_PAUSE)
                    await live.retry_store()
        finally:
            self._background_ids.discard(live.id)

    async def close(self) -> None:
        """Cancel all runs, and all retries to store one. Waits as long as storage takes, which has its own timeouts."""
        await self.drain(0)
        self._background.cancel()
        await self._background.wait()

    async def drain(self, seconds: float) -> None:
        """Hand over durable runs, let the others run for `seconds`, then cancel the rest.

        Takes at most `seconds` and `STOP_WAIT`.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        handovers = TaskSet()
        for live in self._live.values():
            if live.is_durable:
                handovers.start(live.hand_over())
        while self._live:
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                break
            await self._wait_finished(remaining)
        handovers.cancel()
        for live in list(self._live.values()):
            if live.is_durable:
                live.abandon()
            live.cancel()
        await self._wait_finished(STOP_WAIT)

    async def _wait_finished(self, seconds: float) -> None:
        """Wait until the runs of now have finished, at most `seconds`."""
        waits = TaskSet()
        for live in self._live.values():
            waits.start(live.finished.wait())
        await waits.wait(seconds)
        waits.cancel()
