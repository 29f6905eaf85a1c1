"""A durable run in this process: started or resumed, streamed as events, and handed over when it is interrupted.

`DurableRun` uses the durable engine of this process (`open_process_engine`) and yields the events of the run. The
engine executes the run as work whose steps are stored (`CheckpointedSteps`); `_run_work` is that work. It runs with the
context variables of the caller, so that a trace goes on in it.

There can be one engine in a process, and it belongs to one event loop and one folder. The first run opens it, under the
liveness lock of this process, and the last one closes it. A run in another event loop or folder is refused while it
is open.

When the caller closes the iterator, the run is handed over: no new step starts, calls in progress have
`INTERRUPT_GRACE` seconds to end, then the run is cancelled in this process and stays resumable. The outcome of a call
that did not end is unknown to the resumed run. The last event is yielded after the end of the run is stored. All tasks
are cancelled and awaited before the engine is left.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial

from holodeck.durable.base import Checkpoints, JSONObject, Work, WorkEngine, WorkTakenOverError, executor_name
from holodeck.durable_runs.records import LocalState, RunInput, is_executor_alive, outcome_to_json, resume_hint
from holodeck.engine.checkpointed_steps import CheckpointedSteps
from holodeck.engine.steps import Steps
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.limits import CANCEL_POLL, INTERRUPT_GRACE
from holodeck.lib.record import record
from holodeck.lib.tasks import TaskSet
from holodeck.models.events import Event, RunFinished, RunResult
from holodeck.storage.liveness import FileLiveness

# Seconds between two polls of the database for a claim, or for the stored end: a user waits for both.
CLAIM_POLL = 0.05
# Seconds to wait until the end of a run is stored, which is one row.
RUN_STORE_TIMEOUT = 10.0


class DurableRun:
    """One run in one process, for one use of `start` or `resume`. Closing the iterator interrupts the run."""

    def __init__(
        self,
        state: LocalState,
        run_id: str,
        run_input: RunInput,
        open_stream: Callable[[Steps], AsyncGenerator[Event, None]],
        *,
        on_started: Callable[[], None] = lambda: None,
        on_hand_over: Callable[[], None] = lambda: None,
    ) -> None:
        """`open_stream` starts the run of an agent with the question and history of the input and these steps.

        `on_started` is called when the run is stored and runs in this process.

        `on_hand_over` is called when an interrupted run waits for calls in progress.
        """
        self.id = run_id
        self._state = state
        self._input = run_input
        self._open_stream = open_stream
        self._on_started = on_started
        self._on_hand_over = on_hand_over
        self._events: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self._started = asyncio.Event()
        self._steps: CheckpointedSteps | None = None
        self._tasks = TaskSet()
        self._run_task: asyncio.Task[RunResult | None] | None = None
        self._context = contextvars.copy_context()

    async def start(self) -> AsyncGenerator[Event, None]:
        """Start a new run, and yield its events to its end. Raises `StorageError`, and the errors of the run.

        Raises `ExecutionError` when there is a run of this id.
        """
        async with self._open_engine() as (engine, _):
            if (await engine.read_statuses([self.id]))[self.id].stage != "unknown":
                raise ExecutionError(f"There is a run '{self.id}' already. Give another id, or none.")
            # An empty context: a tool of another durable run may have started this one, which is no part of that.
            submit = engine.submit(self.id, self._input.to_json())
            await self._tasks.start(submit, name=f"submit {self.id}", context=contextvars.Context())
            async with aclosing(self._follow_events(engine)) as events:
                async for event in events:
                    yield event

    async def resume(self) -> AsyncGenerator[Event, None]:
        """Resume an interrupted run, and yield its events from the start: those of finished steps are replayed.

        Raises `ExecutionError` when the run has ended or runs in another process.
        """
        async with self._open_engine() as (engine, liveness):
            await self._claim(engine, liveness)
            async with aclosing(self._follow_events(engine)) as events:
                async for event in events:
                    yield event

    @asynccontextmanager
    async def _open_engine(self) -> AsyncIterator[tuple[WorkEngine, FileLiveness]]:
        async with open_process_engine(self._state, self.id, self._run_work) as opened:
            try:
                yield opened.engine, opened.liveness
            finally:
                await self._hand_over()
                await self._tasks.close(RUN_STORE_TIMEOUT)
                # Without effect on a run that has ended.
                await opened.engine.release(self.id)

    async def _claim(self, engine: WorkEngine, liveness: FileLiveness) -> None:
        """Wait until the run has started in this process, and take it over from a dead one."""
        own_name = executor_name(liveness.number)
        while not self._started.is_set():
            status = (await engine.read_statuses([self.id]))[self.id]
            if status.stage in {"ended", "unknown"}:
                raise ExecutionError(f"{self.id} has ended. See: holodeck runs show {self.id}")
            if status.executor != own_name:
                if is_executor_alive(status.executor, liveness):
                    raise ExecutionError(f"{self.id} is running in another process; nothing was done here.")
                await engine.adopt(self.id, status.executor)
            with suppress(TimeoutError):
                async with asyncio.timeout(CLAIM_POLL):
                    await self._started.wait()

    async def _follow_events(self, engine: WorkEngine) -> AsyncGenerator[Event, None]:
        self._on_started()
        watch, is_finished = self._tasks.supervise(partial(self._watch_cancel, engine), name=f"watch {self.id}"), False
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
                raise StorageError(f"A step could not be kept. Go on later with: {resume_hint(self.id, self._input)}")
        finally:
            watch.cancel()

    async def _watch_cancel(self, engine: WorkEngine) -> None:
        """Stop the run here when it was cancelled by another process. Polls every `CANCEL_POLL` seconds."""
        while True:
            await asyncio.sleep(CANCEL_POLL)
            if await self._check_ended(engine):
                self._stop()
                return

    async def _check_ended(self, engine: WorkEngine) -> bool:
        return (await engine.read_statuses([self.id]))[self.id].stage in {"ended", "unknown"}

    async def _wait_stored(self, engine: WorkEngine) -> None:
        """Wait until the end of the run is stored, at most `RUN_STORE_TIMEOUT` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RUN_STORE_TIMEOUT):
                while not await self._check_ended(engine):  # noqa: ASYNC110 - the state is in a database
                    await asyncio.sleep(CLAIM_POLL)

    async def _hand_over(self) -> None:
        """Stop the run in this process, after calls in progress had `INTERRUPT_GRACE` seconds to end.

        A cancellation of this method ends the wait for calls. In any case the run has stopped when it returns, so that
        the caller may close the MCP servers.
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
        run = self._run_agent(self._steps)
        self._run_task = self._tasks.start(run, name=f"run {self.id}", context=self._build_context())
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

    def _build_context(self) -> contextvars.Context:
        """Return the variables of the engine, which its steps need, and those of the caller."""
        context = contextvars.copy_context()
        for variable, value in self._context.items():
            if variable not in context:
                context.run(variable.set, value)
        return context

    async def _run_agent(self, steps: CheckpointedSteps) -> RunResult | None:
        """Run the agent, and queue its events. Returns None when the run was stopped before its end."""
        async with aclosing(self._open_stream(steps)) as events:
            async for event in events:
                if isinstance(event, RunFinished):
                    if event.result.status == "cancelled":
                        return None
                    self._events.put_nowait(event)
                    return event.result
                self._events.put_nowait(event)
        return None


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
