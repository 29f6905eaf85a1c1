"""One run with its wire events: executed once, read by any number of clients, stored at its end.

`LiveRun.run_to_end` executes the engine's `Run` in the current task; the writer turns each event into wire events when
it happens. `stream` does so in a task of its own, and yields what is published; closing its iterator cancels the run.
Other readers use `follow`. The owner of a run calls `close` in any case (or uses it as an async context manager), so
that one which never starts releases what it has claimed.

Order at the end: the run is stored first, then its last events are published. If storing fails, an error event
replaces them (`failure`), and `retry_store` may store the original end later. A run that is cancelled is stored as far
as it came.

A durable run (`make_durable`) checkpoints its steps, and publishes events only after they are stored. It can be left to
another process: `hand_over` stops it at a safe point, `abandon` says that another process has it already. Neither
stores nor publishes an end.

`RunState` says where a run is, and `_NEXT_STATES` where it can go from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

from holodeck.durable.base import WorkTakenOverError
from holodeck.engine.checkpointed_steps import CheckpointedSteps
from holodeck.engine.loop import Run
from holodeck.gateway.configuration import UseCount
from holodeck.gateway.http.errors import NotStoredError, error_events
from holodeck.gateway.runs.run_trace import RECORDERS, RunTrace
from holodeck.gateway.runs.stream_writer import StreamWriter, WireEvents
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.models.events import Event, RunFinished, RunResult, TextAdded, ToolFinished, TurnCut, TurnFinished
from holodeck.providers.wrappers.retry import listen_to_retries
from holodeck.storage.store import ResponseStore


class Writer(Protocol):
    """Turns the engine events of one run into wire events of one API."""

    @property
    def is_silent(self) -> bool:
        """True when wire events are not needed, only the resource at the end."""
        ...

    def feed(self, *events: Event) -> list[bytes]: ...


W = TypeVar("W", bound=Writer)


class RunState(Enum):
    """The place of a run in its life, in this process."""

    NEW = auto()
    """Built. None of its steps has started."""
    DISCARDED = auto()
    """Closed before it started. What it had claimed is released."""
    RUNNING = auto()
    STORING = auto()
    """The engine loop has ended, and its outcome is being stored."""
    FAILED_TO_STORE = auto()
    """Storage failed. `LiveRun.retry_store` may try again."""
    FINISHED = auto()
    """Stored."""
    HANDED_OVER = auto()
    """Another process runs the rest. It also stores the end."""


_NEXT_STATES: Mapping[RunState, frozenset[RunState]] = {
    RunState.NEW: frozenset({RunState.RUNNING, RunState.DISCARDED, RunState.HANDED_OVER}),
    RunState.RUNNING: frozenset({RunState.STORING, RunState.HANDED_OVER}),
    # Once more: a store that was interrupted by a cancellation is repeated.
    RunState.STORING: frozenset({RunState.STORING, RunState.FINISHED, RunState.FAILED_TO_STORE, RunState.HANDED_OVER}),
    RunState.FAILED_TO_STORE: frozenset({RunState.STORING, RunState.HANDED_OVER}),
    RunState.DISCARDED: frozenset(),
    RunState.FINISHED: frozenset(),
    RunState.HANDED_OVER: frozenset(),
}


class RunFinisher(Generic[W]):
    """The work at the end of a run. This one stores nothing, and holds nothing."""

    needs_reservation = False
    """Whether `reserve` is to be called before a tool acts."""

    async def reserve(self, live: LiveRun[W], *, has_calls: bool = False) -> None:
        """Store the run as one that goes on, once. Raises `StorageError`: it could not be stored at its end either.

        `has_calls`: tools may act from now on, so that its claim has to outlive this process.
        """

    async def finish(self, live: LiveRun[W]) -> bool:
        """Store a run that has ended. Raises `StorageError`, and may then be called again.

        Returns False when another process has finished the run or taken it over.
        """
        return True

    async def release(self, live: LiveRun[W]) -> None:
        """Release all that a run has claimed and leased, since it will not start.

        Raises `StorageError`, and may then be called again.
        """

    def close(self, live: LiveRun[W]) -> None:
        """Drop what this process remembers of the run, which is over here."""


class RunListener(Protocol):
    """Is told of the runs of one gateway. It serves all of them, and refers to none that has ended."""

    def add(self, live: LiveRun[Any]) -> None:
        """Take note of a run that starts."""
        ...

    def observe_call(self, live: LiveRun[Any], event: ToolFinished) -> None:
        """Take note that a tool call of a run has finished."""
        ...

    def observe_end(self, live: LiveRun[Any], result: RunResult) -> None:
        """Take note that a run has ended, which is not stored yet."""
        ...

    def remove(self, live: LiveRun[Any]) -> None:
        """Take note that a run that was started has finished, or that another process has it."""
        ...


class LiveRun(Generic[W]):
    """One run: see the module's description."""

    def __init__(
        self,
        run: Run,
        writer: W,
        *,
        caller_id: str,
        finisher: RunFinisher[W] | None = None,
        listener: RunListener | None = None,
        wire_events: Sequence[bytes] = (),
        uses: UseCount | None = None,
        trace: RunTrace | None = None,
    ) -> None:
        """`wire_events`: the events that an earlier process published of it.

        `uses`: of the configuration that it was built with. It is counted there until `close`.
        `trace`: records it; with the price of its model, if that has one.
        """
        self.id = run.request.run_id
        self._state = RunState.NEW
        self.model = run.request.agent or run.model.name
        self.caller_id = caller_id
        self.writer = writer
        self.wire_events = WireEvents(wire_events)
        self._readable = len(wire_events)
        """How many of them readers may see: not the end of a run before it is stored."""
        self.trace = RunTrace() if trace is None else trace
        self._outcome: RunFinished | None = None
        """The last event of the run, once it has happened."""
        self.result: RunResult | None = None
        self.started = asyncio.Event()
        """Set when a durable run starts."""
        self.finished = asyncio.Event()
        self.has_request_log = True
        """The outcome is added to the log line of the current request, instead of a line of its own."""
        self.idempotency_key: str | None = None
        """The key by which its client can request it again."""
        self.log_context = log.current_fields()
        """The log fields of its request, which may have ended before the run starts."""
        self.run = run
        self.toolbox = run.toolbox
        self.listener = listener
        self._finisher: RunFinisher[W] = RunFinisher() if finisher is None else finisher
        self._task: asyncio.Task[Any] | None = None
        """The task that executes the run; None before and after that."""
        self._cancels = 0
        """How often `cancel` has cancelled the task: at most once."""
        self._waiters: list[asyncio.Future[None]] = []
        """Readers that wait for the next wire events."""
        self._last_events: list[bytes] = []
        """The events of its end, which are published once it is stored."""
        self._replacement_count = 0
        """How many error events stand for them, if it could not be stored."""
        self._failure: NotStoredError | None = None
        self._steps: CheckpointedSteps | None = None
        self.stream_writer: StreamWriter | None = None
        """Stores and publishes the events of a durable run."""
        self._is_cancelled = False
        self._uses = uses
        if uses is not None:
            uses.acquire()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def state(self) -> RunState:
        return self._state

    def _enter(self, state: RunState) -> None:
        """Change the state, which happens here only."""
        if state not in _NEXT_STATES[self._state]:
            raise RuntimeError(f"The run {self.id} cannot go from {self._state.name} to {state.name}.")
        self._state = state

    async def close(self) -> None:
        """End the part of this process in the run. One that never started is discarded.

        The owner of a run calls it once nothing drives the run any more. If a discarded run cannot release what it has
        claimed, that is logged: no client is left to report it to.
        """
        try:
            if self._state is RunState.NEW:
                await asyncio.shield(self.discard())
        except StorageError as error:
            log.warning("gateway.storage_failed", response=self.id, error=error)
        finally:
            self._finisher.close(self)
            if self._uses is not None:
                self._uses.release()
                self._uses = None

    async def discard(self) -> None:
        """Release what a run has claimed that will not start. Raises `StorageError`, and may then be called again."""
        await self._finisher.release(self)
        self._enter(RunState.DISCARDED)

    def make_durable(self: LiveResponse, steps: CheckpointedSteps, store: ResponseStore) -> None:
        """Store every step and the stream, so that another process can continue the run. Call it before the start."""
        self._steps = self.run.steps = steps
        self.stream_writer = StreamWriter(
            store,
            self.id,
            self.writer,
            first_sequence=len(self.wire_events),
            publish=self.publish,
            abandon=self.abandon,
            encode_trace=self.trace.encode,
        )
        self.started.set()

    @property
    def is_durable(self) -> bool:
        return self._steps is not None

    @property
    def failure(self) -> NotStoredError | None:
        """Why the run is not stored, while it has ended and storage failed."""
        return self._failure if self._state is RunState.FAILED_TO_STORE else None

    @property
    def _is_given_up(self) -> bool:
        """True when this process starts no further step: another one is to run the rest."""
        return self._steps is not None and self._steps.is_handed_over

    def publish(self, wire_events: list[bytes]) -> None:
        """Add events, and make them readable. Those of a durable run are stored before."""
        self.wire_events.extend(wire_events)
        self._readable += len(wire_events)
        if self._waiters:
            self._wake_readers()

    async def hand_over(self) -> None:
        """Stop, for another process to run the rest, as soon as no call is under way that cannot be repeated.

        A run that is being stored is handed over only if that fails.
        """
        if self._steps is not None:
            await self._steps.hand_over()
        if self._state in (RunState.NEW, RunState.FAILED_TO_STORE):
            self._enter(RunState.HANDED_OVER)
        self.cancel()

    def abandon(self) -> None:
        """Stop at once: another process has this run already."""
        if self._steps is not None:
            self._steps.abandon()
        self.cancel()

    async def run_to_end(self) -> None:
        """Run in the current task, and store the end. Cancelling it cancels the run, which is stored as far as it came.

        Every run goes from its start to its end here.
        """
        if self._task is None:
            self._start()
            self._task = asyncio.current_task()
        task = self._task
        assert task is not None  # noqa: S101 - a coroutine runs in one
        cancelling = task.cancelling()
        if self._is_cancelled:
            self.cancel()
        if self.stream_writer is not None:
            self.stream_writer.start()
        try:
            try:
                listen_to_retries(self.trace.record_retry)
                finisher = self._finisher
                reserve = partial(finisher.reserve, self, has_calls=True) if finisher.needs_reservation else None
                await self.run.execute(self, before_calls=reserve)
            except asyncio.CancelledError as error:
                # Cancelled by `cancel`, or given up by a step. All else is a cancellation of the task itself.
                if task.cancelling() > cancelling + self._cancels or not (
                    self._cancels or isinstance(error, WorkTakenOverError)
                ):
                    raise
            except Exception as bug:
                # The loop has reported it as a failed run before it raised.
                log.error("gateway.run_crashed", response=self.id, error=repr(bug))
            self._take_back_cancel(task)
            await self._end()
        except asyncio.CancelledError:
            # The request was cancelled, and the run with it.
            self._take_back_cancel(task)
            await asyncio.shield(self._end())
            raise
        finally:
            self._task = None
            self.finished.set()
            if self.listener is not None:
                self.listener.remove(self)
            if self._waiters:
                self._wake_readers()

    async def stream(self) -> AsyncGenerator[list[bytes], None]:
        """Run to the end, yielding wire events. Closing it cancels the run, which is stored as far as it came."""
        self._start()
        position = self._readable
        # Owned by this generator, which cancels the run and awaits the task in its `finally`.
        self._task = task = asyncio.create_task(self.run_to_end(), name=self.id)
        try:
            while batch := await self._read(position):
                position += len(batch)
                yield batch
        finally:
            if not task.done():
                self.cancel()
                await asyncio.wait({task})
            if not task.cancelled():
                task.result()

    def _start(self) -> None:
        self._enter(RunState.RUNNING)
        if self.listener is not None:
            self.listener.add(self)

    def _take_back_cancel(self, task: asyncio.Task[Any]) -> None:
        """Let nothing interrupt what follows but a cancellation of the task itself."""
        self._task = None
        if self._cancels:
            self._cancels = 0
            task.uncancel()

    async def reserve(self, *, has_calls: bool = False) -> None:
        """Store the run as one that goes on, if it will be stored and is not yet. See `RunFinisher.reserve`."""
        await self._finisher.reserve(self, has_calls=has_calls)

    def append(self, *events: Event) -> None:
        """Write events of the run when they happen, and record them. The last one is written at the end."""
        first = events[0]
        record = RECORDERS.get(type(first))
        if isinstance(first, RunFinished):
            self.trace.record(first)
            self._outcome = first
            return
        if isinstance(first, TurnFinished | TurnCut) and record is not None:
            # No API has an event for it.
            record(self.trace, first)
            return
        if isinstance(first, ToolFinished) and self.listener is not None:
            self.listener.observe_call(self, first)
        payloads = self.writer.feed(*events)
        if payloads and self.stream_writer is not None:
            self.stream_writer.append(payloads)
        elif payloads:
            self.publish(payloads)
        # Several at once are pieces of a text, of which the trace wants only the first one of a turn.
        if record is not None and (self.trace.awaits_token or not isinstance(first, TextAdded)):
            record(self.trace, first)

    async def _end(self) -> None:
        """Write and store the end of the run, then publish it. Once more, if that was interrupted by a cancellation."""
        unstored = [] if self.stream_writer is None else await self.stream_writer.stop()
        if self._steps is not None and self._state is RunState.RUNNING and self._is_given_up:
            self._enter(RunState.HANDED_OVER)
        if self._state not in (RunState.RUNNING, RunState.STORING) or self._outcome is None:
            return
        if self.result is None:
            self.result = self._outcome.result
            if self.listener is not None:
                self.listener.observe_end(self, self.result)
            self._last_events = [*unstored, *self.writer.feed(self._outcome)]
            if self._last_events:
                self.wire_events.extend(self._last_events)
        try:
            if not await self._store_result():
                # The process that has it now publishes the end.
                self.wire_events.remove_last(len(self._last_events))
        except StorageError as error:
            self._report_not_stored(error)
        self._readable = len(self.wire_events)

    def cancel(self) -> None:
        """Stop the model and the tools. The run then ends as cancelled, and is stored as such."""
        self._is_cancelled = True
        if self._task is not None:
            # Not before its first step: a task that is cancelled before it never runs, and emits no final event.
            asyncio.get_running_loop().call_soon(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None and not self._cancels:
            self._cancels = 1
            self._task.cancel()

    async def follow(self, starting_after: int = -1) -> AsyncGenerator[list[bytes], None]:
        """Yield every wire event after a sequence number, until the run has finished."""
        position = starting_after + 1
        while batch := await self._read(position):
            position += len(batch)
            yield batch

    async def _read(self, position: int) -> list[bytes]:
        """Wait for wire events from a position on. An empty list: the run has finished, and there are none."""
        while position >= self._readable:
            if self.finished.is_set():
                return []
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self.wire_events.read(position)[: self._readable - position]

    async def _store_result(self) -> bool:
        """Store the outcome. False: another process stores it. Raises `StorageError` when that failed."""
        self._enter(RunState.STORING)
        try:
            is_stored = await self._finisher.finish(self)
        except StorageError as error:
            if not self._is_given_up:
                self._enter(RunState.FAILED_TO_STORE)
                raise
            log.warning("gateway.not_kept", response=self.id, error=error)
            is_stored = False
        self._enter(RunState.FINISHED if is_stored else RunState.HANDED_OVER)
        return is_stored

    def _report_not_stored(self, error: StorageError) -> None:
        """Replace the last events by an error: a client must not see an end that cannot be read later."""
        log.error("gateway.not_kept", response=self.id, error=error)
        has_acted = self.result is not None and self.result.tool_calls > 0
        self._failure = NotStoredError(str(error), has_run_tools=has_acted)
        if self._last_events:
            self.wire_events.remove_last(len(self._last_events))
            replaced = error_events(self._failure, len(self.wire_events), self._last_events[-1])
            self._replacement_count = len(replaced)
            self.wire_events.extend(replaced)

    async def retry_store(self) -> None:
        """Try once more to store a run with its original end. Does nothing unless its state is `FAILED_TO_STORE`."""
        if self._state is not RunState.FAILED_TO_STORE:
            return
        published = self.wire_events
        if self._last_events:
            self.wire_events = published.copy()
            self.wire_events.remove_last(self._replacement_count)
            self.wire_events.extend(self._last_events)
        try:
            await self._store_result()
        except StorageError as error:
            self.wire_events = published
            log.warning("gateway.not_kept", response=self.id, error=error)

    def _wake_readers(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


LiveResponse = LiveRun[ResponseWriter]
"""The run of a response, as opposed to that of a chat completion."""
