"""A durable run in this process: begun or gone on with, followed as it happens, and left so that it can go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from holodeck.agent import Agent
from holodeck.durable.engine import Checkpoints, Plain, WorkEngine, WorkTakenError
from holodeck.engine.kept_steps import KeptSteps
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.limits import CANCEL_POLL, CLAIM_POLL, KEPT_WAIT, LEAVE_GRACE
from holodeck.models.events import Event, RunFinished, RunResult
from holodeck.runs.home import Home, executor_name, is_alive
from holodeck.runs.kept_run import Task, outcome_of
from holodeck.storage.presence_files import FilePresence


class DurableRun:
    """One run of one process. Every finished step is kept; leaving the iteration leaves the rest for another time."""

    def __init__(
        self,
        home: Home,
        agent: Agent,
        run_id: str,
        task: Task,
        *,
        on_begun: Callable[[], None],
        on_leaving: Callable[[], None],
    ) -> None:
        """`on_begun` is told when the run is kept, and in this process; `on_leaving`, when calls are waited for."""
        self.id = run_id
        self._home = home
        self._agent = agent
        self._task = task
        self._on_begun = on_begun
        self._on_leaving = on_leaving
        self._events: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self._begun = asyncio.Event()
        self._steps: KeptSteps | None = None
        self._inner: asyncio.Task[RunResult | None] | None = None

    async def begin(self) -> AsyncGenerator[Event, None]:
        """A new run, to its end."""
        async with self._engine() as (engine, _):
            await engine.submit(self.id, self._task.plain())
            async with aclosing(self._follow(engine)) as events:
                async for event in events:
                    yield event

    async def resume(self) -> AsyncGenerator[Event, None]:
        """A run that was interrupted, from its beginning: what is done is told again, the rest happens.

        Raises `ExecutionError` when another process has it.
        """
        async with self._engine() as (engine, presence):
            await self._claim(engine, presence)
            async with aclosing(self._follow(engine)) as events:
                async for event in events:
                    yield event

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[tuple[WorkEngine, FilePresence]]:
        presence = self._home.presence()
        engine = self._home.engine(self.id, presence)
        with self._home.door():
            try:
                presence.begin()
            except OSError as error:
                raise StorageError(f"Durable runs cannot be kept: {error.strerror}.") from None
            try:
                await engine.open(self._work)
            except BaseException:
                presence.end()
                raise
        try:
            yield engine, presence
        finally:
            try:
                await self._leave()
            finally:
                await engine.close()
                presence.end()

    async def _claim(self, engine: WorkEngine, presence: FilePresence) -> None:
        """Become the one process that goes on with the run."""
        own = executor_name(presence)
        while not self._begun.is_set():
            where = (await engine.whereabouts([self.id]))[self.id]
            if where.stage in {"ended", "unknown"}:
                raise ExecutionError(f"{self.id} has ended. See: holodeck runs show {self.id}")
            if where.stage == "running" and where.executor != own:
                if is_alive(where.executor, presence):
                    raise ExecutionError(f"{self.id} is running in another process; nothing was done here.")
                await engine.take_over(where.executor)
            with suppress(TimeoutError):
                async with asyncio.timeout(CLAIM_POLL):
                    await self._begun.wait()

    async def _follow(self, engine: WorkEngine) -> AsyncGenerator[Event, None]:
        self._on_begun()
        watch, is_finished = asyncio.create_task(self._watch(engine)), False
        try:
            while (event := await self._events.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, RunFinished):
                    is_finished = True
                    watch.cancel()
                    await self._written(engine)
                yield event
            if not is_finished and not await self._is_over(engine):
                raise StorageError(f"A step could not be kept. Go on later with: holodeck runs resume {self.id}")
        finally:
            watch.cancel()

    async def _watch(self, engine: WorkEngine) -> None:
        """Stop when somebody has cancelled the run."""
        while True:
            await asyncio.sleep(CANCEL_POLL)
            if await self._is_over(engine):
                self._stop()
                return

    async def _is_over(self, engine: WorkEngine) -> bool:
        return (await engine.whereabouts([self.id]))[self.id].stage in {"ended", "unknown"}

    async def _written(self, engine: WorkEngine) -> None:
        """The end is told only when it is kept."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KEPT_WAIT):
                while not await self._is_over(engine):  # noqa: ASYNC110 - it is in a database
                    await asyncio.sleep(CLAIM_POLL)

    async def _leave(self) -> None:
        """Begin nothing more. Calls under way have a moment to end; those that do not have an unknown outcome.

        Whoever does not wait for that moment cuts it short; the run has stopped all the same before its servers go.
        """
        if self._steps is None or self._inner is None or self._inner.done():
            return
        if self._steps.under_way:
            self._on_leaving()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_GRACE):
                    await self._steps.leave()
        finally:
            self._steps.give_up()
            self._stop()
            await asyncio.wait([self._inner])

    def _stop(self) -> None:
        if self._inner is not None:
            self._inner.cancel()

    async def _work(self, run_id: str, given: Plain, checkpoints: Checkpoints) -> Plain | None:
        self._steps = KeptSteps(checkpoints)
        self._inner = asyncio.create_task(self._pump(self._steps))
        self._begun.set()
        try:
            result = await self._inner
        except Exception as error:
            self._events.put_nowait(error)
            raise
        finally:
            self._inner.cancel()
            self._events.put_nowait(None)
        if result is None:
            raise WorkTakenError
        return outcome_of(result)

    async def _pump(self, steps: KeptSteps) -> RunResult | None:
        """Run, and tell. None: the rest is left."""
        task = self._task
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
