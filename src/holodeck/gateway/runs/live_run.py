"""One run with its wire events: executed once, read by any number of clients, stored at its end.

`LiveRun.stream` (or `run_to_end`) executes the engine loop, and has the writer turn each engine event into wire events.
Closing the iterator of `stream` cancels the run. Other readers use `follow`. The owner of a run calls `close` in any
case (or uses it as an async context manager), so that one which never starts releases what it has claimed.

Order at the end: the run is stored first, then its last events are published. If storing fails, an error event
replaces them (`failure`), and `retry_store` may store the original end later. A run whose reader left is stored as far
as it came.

A durable run (`make_durable`) checkpoints its steps, and publishes events only after they are stored. It can be left to
another process: `hand_over` stops it at a safe point, `abandon` says that another process has it already. Neither
stores nor publishes an end.

`RunState` says where a run is, and `_NEXT_STATES` where it can go from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Generic, Protocol, Self, TypeVar

from holodeck.engine.checkpointed_steps import CheckpointedSteps
from holodeck.engine.event_log import EventLog
from holodeck.engine.loop import RunRequest, run
from holodeck.gateway.configuration import UseCount
from holodeck.gateway.http.errors import NotStoredError, error_events
from holodeck.gateway.runs.run_trace import RunTrace
from holodeck.gateway.runs.stream_writer import StreamWriter
from holodeck.gateway.runs.wire_events import WireEvents
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.models.events import Event, RunFinished, RunResult, TextAdded, ToolFinished
from holodeck.providers.base import ModelProvider
from holodeck.providers.wrappers.long_retry import LongRetrying
from holodeck.providers.wrappers.retry import listen_to_retries
from holodeck.tools.toolbox import Toolbox

_OBSERVED_EVENTS = (ToolFinished, RunFinished)


class Writer(Protocol):
    """Turns the engine events of one run into wire events of one API."""

    @property
    def is_silent(self) -> bool:
        """True when wire events are not needed, only the resource at the end."""
        ...

    def feed(self, *events: Event) -> list[bytes]: ...


W = TypeVar("W", bound=Writer)


class RunState(Enum):
    """Where a run is in this process."""

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
    """What is done at the end of a run. This one stores nothing, and holds nothing."""

    needs_reservation = False
    """Whether `reserve` is to be called before a tool acts."""

    async def reserve(self, live: LiveRun[W]) -> None:
        """Store the run as one that goes on, once. Raises `StorageError`: it could not be stored at its end either."""

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


class LiveRun(Generic[W]):
    """One run: see the module's description."""

    def __init__(
        self,
        request: RunRequest,
        model: ModelProvider,
        toolbox: Toolbox,
        writer: W,
        *,
        caller_id: str,
        finisher: RunFinisher[W] | None = None,
        wire_events: Sequence[bytes] = (),
        uses: UseCount | None = None,
        trace: RunTrace | None = None,
    ) -> None:
        """`wire_events`: the events that an earlier process published of it.

        `uses`: of the configuration that it was built with. It is counted there until `close`.
        `trace`: records it; with the price of its model, if that has one.
        """
        self.id = request.run_id
        self._state = RunState.NEW
        self.model = request.agent or model.name
        self.caller_id = caller_id
        self.writer = writer
        self.wire_events = WireEvents(wire_events)
        self.trace = RunTrace() if trace is None else trace
        self.result: RunResult | None = None
        self.started = asyncio.Event()
        """Set when a durable run starts."""
        self.finished = asyncio.Event()
        self.on_start: Callable[[LiveRun[W]], None] = _ignore
        self.on_event: Callable[[LiveRun[W], ToolFinished | RunFinished], None] = _ignore
        """Called when a tool call of the run has finished, and the run itself."""
        self.on_end: Callable[[LiveRun[W]], None] = _ignore
        """Called once if the run was started: when it has finished, or another process has it."""
        self.has_request_log = True
        """The outcome is added to the log line of the current request, instead of a line of its own."""
        self.idempotency_key: str | None = None
        """The key by which its client can request it again."""
        self.log_context = log.current_fields()
        """The log fields of its request, which may have ended before the run starts."""
        self._request = request
        self._model = model
        self.toolbox = toolbox
        self._finisher: RunFinisher[W] = RunFinisher() if finisher is None else finisher
        self._task: asyncio.Task[Any] | None = None
        self._wakeup: asyncio.Event | None = None
        """Set with the next wire events; exists only while a reader waits for it."""
        self._unstored_events: list[bytes] = []
        """The last events of a run that could not be stored; an error event stands for them."""
        self._replacement_count = 0
        """How many events stand for them."""
        self._failure: NotStoredError | None = None
        self._steps: CheckpointedSteps | None = None
        self._stream_writer: StreamWriter | None = None
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
            if self.state is RunState.NEW:
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

    def make_durable(self, steps: CheckpointedSteps, build_stream_writer: Callable[[LiveRun[W]], StreamWriter]) -> None:
        """Store every step and the stream, so that another process can continue the run. Call it before the start."""
        self._steps = steps
        self._stream_writer = build_stream_writer(self)
        self.started.set()

    def retry_model_for(self, seconds: float, *, can_restart: bool) -> None:
        """Retry a failing model for so long, as no request waits for this run. Call it before the run starts.

        `can_restart`: also one that breaks off in the middle of an answer, and wait as long for MCP servers. The run
        must be durable: only then nothing of an answer is finished before all of it is there.
        """
        self._model = LongRetrying(self._model, seconds=seconds, can_restart=can_restart)
        if can_restart:
            self._request = replace(self._request, server_wait=seconds)

    @property
    def is_durable(self) -> bool:
        return self._steps is not None

    @property
    def failure(self) -> NotStoredError | None:
        """Why the run is not stored, while it has ended and storage failed."""
        return self._failure if self.state is RunState.FAILED_TO_STORE else None

    @property
    def _is_given_up(self) -> bool:
        """True when this process starts no further step: another one is to run the rest."""
        return self._steps is not None and self._steps.is_handed_over

    def publish(self, wire_events: list[bytes]) -> None:
        """Make events readable: they are stored."""
        self.wire_events.extend(wire_events)
        self._wake_readers()

    async def hand_over(self) -> None:
        """Stop, for another process to run the rest, as soon as no call is under way that cannot be repeated.

        A run that is being stored is handed over only if that fails.
        """
        if self._steps is not None:
            await self._steps.hand_over()
        if self.state in (RunState.NEW, RunState.FAILED_TO_STORE):
            self._enter(RunState.HANDED_OVER)
        self.cancel()

    def abandon(self) -> None:
        """Stop at once: another process has this run already."""
        if self._steps is not None:
            self._steps.abandon()
        self.cancel()

    async def run_to_end(self) -> None:
        """Run to the end without reading events. Cancelling it cancels the run, which is stored as far as it came."""
        if self.writer.is_silent and not self.is_durable:
            await self._run_in_current_task()
            return
        async with aclosing(self.stream()) as batches:
            async for _ in batches:
                pass

    async def _run_in_current_task(self) -> None:
        """Run in the current task, which is cheaper than a task of its own with a reader."""
        self._enter(RunState.RUNNING)
        self.on_start(self)
        events = _CallbackEventLog(self.trace, self._feed_event)
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        cancels = task.cancelling()
        try:
            try:
                await self._execute(events)
            except asyncio.CancelledError:
                if not self._is_cancelled or task.uncancel() > cancels:
                    raise
            except Exception as bug:
                # The loop has reported it as a failed run before it raised.
                log.error("gateway.run_crashed", response=self.id, error=repr(bug))
            # `cancel` must not interrupt the storing.
            self._task = None
            await self._store_end(self._feed_last_event(events), [])
        except asyncio.CancelledError:
            # The request was cancelled, and the run with it.
            await self._store_without_reader([events.last] if self.result is None and events.last is not None else [])
            raise
        finally:
            self._task = None
            self.finished.set()
            self.on_end(self)

    async def _execute(self, events: EventLog) -> RunResult:
        listen_to_retries(self.trace.record_retry)
        reserve = self.reserve if self._finisher.needs_reservation else None
        return await run(self._request, self._model, self.toolbox, events, self._steps, before_calls=reserve)

    async def reserve(self) -> None:
        """Store the run as one that goes on, if it will be stored and is not yet. Raises `StorageError`."""
        await self._finisher.reserve(self)

    def _feed_event(self, event: Event) -> None:
        if isinstance(event, _OBSERVED_EVENTS):
            self.on_event(self, event)
        self.writer.feed(event)

    def _feed_last_event(self, events: EventLog) -> RunResult:
        end = events.last
        assert isinstance(end, RunFinished)  # noqa: S101 - every run ends so
        self._feed_event(end)
        return end.result

    async def stream(self) -> AsyncGenerator[list[bytes], None]:
        """Run to the end, yielding wire events. Closing it cancels the run, which is stored as far as it came."""
        self._enter(RunState.RUNNING)
        self.on_start(self)
        events = _TracedEventLog(self.trace)
        # Owned by this generator, which cancels and awaits it in its `finally`.
        self._task = asyncio.create_task(self._execute(events), name=self.id)
        if self._is_cancelled:
            self.cancel()
        if self._stream_writer is not None:
            self._stream_writer.start()
        seen = 0
        try:
            while batch := await events.wait_events(seen):
                seen += len(batch)
                events.discard(seen)
                if self._is_given_up and isinstance(batch[-1], RunFinished):
                    return
                for event in batch:
                    if isinstance(event, _OBSERVED_EVENTS):
                        self.on_event(self, event)
                payloads = self.writer.feed(*batch)
                if self._stream_writer is not None and not isinstance(batch[-1], RunFinished):
                    self._stream_writer.append(payloads)
                    continue
                payloads = [*(await self._stream_writer.stop() if self._stream_writer is not None else ()), *payloads]
                self.wire_events.extend(payloads)
                if isinstance(batch[-1], RunFinished):
                    payloads = await self._store_end(batch[-1].result, payloads)
                if payloads:
                    self._wake_readers()
                    yield payloads
        finally:
            try:
                await self._stop(self._task)
                await self._store_without_reader(await events.wait_events(seen) if events.is_finished else [])
            finally:
                if self._is_given_up and self.state is RunState.RUNNING:
                    self._enter(RunState.HANDED_OVER)
                self.finished.set()
                self.on_end(self)
                self._wake_readers()

    def cancel(self) -> None:
        """Stop the model and the tools. The run then ends as cancelled, and is stored as such."""
        self._is_cancelled = True
        if self._task is not None:
            # Not before its first step: a task that is cancelled before it never runs, and emits no final event.
            asyncio.get_running_loop().call_soon(self._task.cancel)

    async def follow(self, starting_after: int = -1) -> AsyncGenerator[list[bytes], None]:
        """Yield every wire event after a sequence number, until the run has finished."""
        position = starting_after + 1
        while True:
            if position < len(self.wire_events):
                batch = self.wire_events.read(position)
                position += len(batch)
                yield batch
                continue
            if self.finished.is_set():
                return
            self._wakeup = self._wakeup or asyncio.Event()
            await self._wakeup.wait()

    async def _store_end(self, result: RunResult, wire_events: list[bytes]) -> list[bytes]:
        """Store a run that has ended. Returns the events to publish in place of `wire_events`, its last ones."""
        self.result = result
        try:
            await self._store_result()
        except StorageError as error:
            return self._report_not_stored(error, wire_events)
        if self.state is RunState.HANDED_OVER:
            # The process that has it now publishes the end.
            self.wire_events.remove_last(len(wire_events))
            return []
        return wire_events

    async def _store_result(self) -> None:
        """Store the outcome. Raises `StorageError` when that failed, unless another process is to store it."""
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

    def _report_not_stored(self, error: StorageError, wire_events: list[bytes]) -> list[bytes]:
        """Replace the last events by an error: a client must not see an end that cannot be read later."""
        log.error("gateway.not_kept", response=self.id, error=error)
        has_acted = self.result is not None and self.result.tool_calls > 0
        self._failure = NotStoredError(str(error), has_run_tools=has_acted)
        if wire_events:
            self._unstored_events = wire_events
            self.wire_events.remove_last(len(wire_events))
            wire_events = error_events(self._failure, len(self.wire_events), wire_events[-1])
            self._replacement_count = len(wire_events)
            self.wire_events.extend(wire_events)
        return wire_events

    async def retry_store(self) -> None:
        """Try once more to store a run with its original end. Does nothing unless its state is `FAILED_TO_STORE`."""
        if self.state is not RunState.FAILED_TO_STORE:
            return
        published = self.wire_events
        if self._unstored_events:
            self.wire_events = published.copy()
            self.wire_events.remove_last(self._replacement_count)
            self.wire_events.extend(self._unstored_events)
        try:
            await self._store_result()
        except StorageError as error:
            self.wire_events = published
            log.warning("gateway.not_kept", response=self.id, error=error)

    def _wake_readers(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()
            self._wakeup = None

    async def _stop(self, task: asyncio.Task[RunResult]) -> None:
        """End the run's task and its stream writer, and wait for both."""
        if self._stream_writer is not None:
            await self._stream_writer.stop()
        if not task.done():
            # As in `cancel`: not before its first step.
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.wait({task})
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("gateway.run_crashed", response=self.id, error=repr(bug))

    async def _store_without_reader(self, unread_events: list[Event]) -> None:
        """Store a run whose reader left before it was stored. `unread_events`: engine events not written yet."""
        if self.state not in (RunState.RUNNING, RunState.STORING):
            return
        if self._is_given_up:
            self._enter(RunState.HANDED_OVER)
            return
        if self.result is None and not unread_events:
            return
        for event in unread_events:
            if isinstance(event, _OBSERVED_EVENTS):
                self.on_event(self, event)
            self.wire_events.extend(self.writer.feed(event))
            if isinstance(event, RunFinished):
                self.result = event.result
        try:
            await asyncio.shield(self._store_result())
        except StorageError as error:
            self._report_not_stored(error, [])


LiveResponse = LiveRun[ResponseWriter]
"""The run of a response, as opposed to that of a chat completion."""


class _TracedEventLog(EventLog):
    """An event log whose events are recorded when they happen, however slow its reader is."""

    def __init__(self, trace: RunTrace) -> None:
        super().__init__()
        self._trace = trace

    def append(self, event: Event) -> int:
        # A stream consists of pieces of text, of which the trace wants only the first one of a turn.
        if self._trace.awaits_token or not isinstance(event, TextAdded):
            self._trace.record(event)
        return EventLog.append(self, event)


class _CallbackEventLog(_TracedEventLog):
    """An event log without readers. It passes each event but the last to a callback at once, and has only the last."""

    def __init__(self, trace: RunTrace, on_event: Callable[[Event], None]) -> None:
        super().__init__(trace)
        self._on_event = on_event

    def append(self, event: Event) -> int:
        if isinstance(event, RunFinished):
            return _TracedEventLog.append(self, event)
        self._on_event(event)
        if self._trace.awaits_token or not isinstance(event, TextAdded):
            self._trace.record(event)
        return 0


def _ignore(*_: object) -> None:
    """Default for the callbacks of a `LiveRun`."""
