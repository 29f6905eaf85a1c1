"""A durable run in this process: begun or gone on with, followed as it happens, and left so that it can go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from holodeck.agent import Agent
from holodeck.durable.base import Checkpoints, JSONObject, WorkEngine, WorkTakenOverError
from holodeck.durable_runs.local_state import LocalState, executor_name, is_executor_alive
from holodeck.durable_runs.records import RunInput, outcome_to_json
from holodeck.engine.checkpointed_steps import CheckpointedSteps
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.limits import CANCEL_POLL, INTERRUPT_GRACE
from holodeck.models.events import Event, RunFinished, RunResult
from holodeck.storage.liveness import FileLiveness

# Seconds between two looks whether a run is ours by now: a person waits.
CLAIM_POLL = 0.05
# Seconds for the end of a run to be written: one row.
RUN_STORE_TIMEOUT = 10.0


class DurableRun:
    """One run of one process. Every finished step is kept; leaving the iteration leaves the rest for another time."""

    def __init__(
        self,
        state: LocalState,
        agent: Agent,
        run_id: str,
        run_input: RunInput,
        *,
        on_started: Callable[[], None],
        on_hand_over: Callable[[], None],
    ) -> None:
        """`on_started` is told when the run is kept, and in this process; `on_hand_over`, when calls are waited for."""
        self.id = run_id
        self._state = state
        self._agent = agent
        self._input = run_input
        self._on_started = on_started
        self._on_hand_over = on_hand_over
        self._events: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self._started = asyncio.Event()
        self._steps: CheckpointedSteps | None = None
        self._run_task: asyncio.Task[RunResult | None] | None = None

    async def start(self) -> AsyncGenerator[Event, None]:
        """A new run, to its end."""
        async with self._open_engine() as (engine, _):
            await engine.submit(self.id, self._input.to_json())
            async with aclosing(self._follow_events(engine)) as events:
                async for event in events:
                    yield event

    async def resume(self) -> AsyncGenerator[Event, None]:
        """A run that was interrupted, from its beginning: what is done is told again, the rest happens.

        Raises `ExecutionError` when another process has it.
        """
        async with self._open_engine() as (engine, presence):
            await self._claim(engine, presence)
            async with aclosing(self._follow_events(engine)) as events:
                async for event in events:
                    yield event

    @asynccontextmanager
    async def _open_engine(self) -> AsyncIterator[tuple[WorkEngine, FileLiveness]]:
        presence = self._state.create_liveness()
        engine = self._state.create_engine(self.id, presence)
        with self._state.lock():
            try:
                presence.start()
            except OSError as error:
                raise StorageError(f"Durable runs cannot be kept: {error.strerror}.") from None
            try:
                await engine.open(self._run_work)
            except BaseException:
                presence.stop()
                raise
        try:
            yield engine, presence
        finally:
            try:
                await self._hand_over()
            finally:
                await engine.close()
                presence.stop()

    async def _claim(self, engine: WorkEngine, liveness: FileLiveness) -> None:
        """Become the one process that goes on with the run."""
        own = executor_name(liveness)
        while not self._started.is_set():
            where = (await engine.read_statuses([self.id]))[self.id]
            if where.stage in {"ended", "unknown"}:
                raise ExecutionError(f"{self.id} has ended. See: holodeck runs show {self.id}")
            if where.stage == "running" and where.executor != own:
                if is_executor_alive(where.executor, liveness):
                    raise ExecutionError(f"{self.id} is running in another process; nothing was done here.")
                await engine.take_over(where.executor)
            with suppress(TimeoutError):
                async with asyncio.timeout(CLAIM_POLL):
                    await self._started.wait()

    async def _follow_events(self, engine: WorkEngine) -> AsyncGenerator[Event, None]:
        self._on_started()
        watch, is_finished = asyncio.create_task(self._watch_cancel(engine)), False
        try:
            while (event := await self._events.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, RunFinished):
                    is_finished = True
                    watch.cancel()
                    await self._wait_stored(engine)
                yield event
            if not is_finished and not await self._check_ended(engine):
                raise StorageError(f"A step could not be kept. Go on later with: holodeck runs resume {self.id}")
        finally:
            watch.cancel()

    async def _watch_cancel(self, engine: WorkEngine) -> None:
        """Stop when somebody has cancelled the run."""
        while True:
            await asyncio.sleep(CANCEL_POLL)
            if await self._check_ended(engine):
                self._stop()
                return

    async def _check_ended(self, engine: WorkEngine) -> bool:
        return (await engine.read_statuses([self.id]))[self.id].stage in {"ended", "unknown"}

    async def _wait_stored(self, engine: WorkEngine) -> None:
        """The end is told only when it is kept."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RUN_STORE_TIMEOUT):
                while not await self._check_ended(engine):  # noqa: ASYNC110 - it is in a database
                    await asyncio.sleep(CLAIM_POLL)

    async def _hand_over(self) -> None:
        """Begin nothing more. Calls under way have a moment to end; those that do not have an unknown outcome.

        Whoever does not wait for that moment cuts it short; the run has stopped all the same before its servers go.
        """
        if self._steps is None or self._run_task is None or self._run_task.done():
            return
        if self._steps.running_calls:
            self._on_hand_over()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERRUPT_GRACE):
                    await self._steps.hand_over()
        finally:
            self._steps.abandon()
            self._stop()
            await asyncio.wait([self._run_task])

    def _stop(self) -> None:
        if self._run_task is not None:
            self._run_task.cancel()

    async def _run_work(self, run_id: str, work_input: JSONObject, checkpoints: Checkpoints) -> JSONObject | None:
        self._steps = CheckpointedSteps(checkpoints)
        self._run_task = asyncio.create_task(self._run_agent(self._steps))
        self._started.set()
        try:
            result = await self._run_task
        except Exception as error:
            self._events.put_nowait(error)
            raise
        finally:
            self._run_task.cancel()
            self._events.put_nowait(None)
        if result is None:
            raise WorkTakenOverError
        return outcome_to_json(result)

    async def _run_agent(self, steps: CheckpointedSteps) -> RunResult | None:
        """Run, and tell. None: the rest is left."""
        task = self._input
        stream = self._agent.stream([task.question], max_turns=task.max_turns, run_id=self.id, steps=steps)
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, RunFinished):
                    if event.result.status == "cancelled":
                        return None
                    self._events.put_nowait(event)
                    return event.result
                self._events.put_nowait(event)
        return None
