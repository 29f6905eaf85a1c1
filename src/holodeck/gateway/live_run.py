"""One response in the making: pumped once, from engine events to wire events, and read by any number of clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from holodeck.engine.eventlog import EventLog
from holodeck.engine.kept_steps import KeptSteps
from holodeck.engine.loop import RunRequest, run
from holodeck.gateway.keeping import StreamKeeper
from holodeck.gateway.problems import NotKeptError, error_events
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.models.events import Event, RunFinished, RunResult
from holodeck.providers.patient_model import PatientModel
from holodeck.providers.provider import ModelProvider
from holodeck.tools.registry import Toolbox


class Writer(Protocol):
    """Makes wire events of engine events, for one way in."""

    @property
    def is_silent(self) -> bool:
        """True when nobody reads events: only what comes of them all matters."""
        ...

    def feed(self, event: Event) -> list[bytes]: ...


W = TypeVar("W", bound=Writer)


class LiveRun(Generic[W]):
    """One response in the making."""

    def __init__(
        self,
        request: RunRequest,
        model: ModelProvider,
        toolbox: Toolbox,
        writer: W,
        *,
        owner: str,
        keep: Callable[[LiveRun[W]], Awaitable[None]] | None = None,
        payloads: Sequence[bytes] = (),
    ) -> None:
        """`keep` stores a run that has ended; the client hears of its end only afterwards.

        `payloads` is what was told of it by a process that died.
        """
        self.id = request.run_id
        self.model = request.agent or model.name
        self.owner = owner
        self.writer = writer
        self.payloads = list(payloads)
        self.result: RunResult | None = None
        self.failure: NotKeptError | None = None
        """Why the run has ended and could not be stored."""
        self.is_begun = asyncio.Event()
        """Set when the steps of a run that survives begin."""
        self.is_done = asyncio.Event()
        self.observe: Callable[[Event], None] = _unobserved
        """Hears every event of the run."""
        self.about = log.known()
        """The request that asked for it, which may be over before the run begins."""
        self._request = request
        self._model = model
        self.toolbox = toolbox
        self._keep = keep
        self._task: asyncio.Task[Any] | None = None
        self._news: asyncio.Event | None = None
        """Set with the next payloads; there is one only while somebody waits for it."""
        self._unkept: list[bytes] = []
        self._instead = 0
        """How many payloads were told instead of them."""
        self._steps: KeptSteps | None = None
        self._keeper: StreamKeeper | None = None
        self._is_lost = False
        self._is_cancelled = False
        self._is_kept = False

    def survive(self, steps: KeptSteps, keeper: Callable[[LiveRun[W]], StreamKeeper]) -> None:
        """Keep every step and the stream, so that another process can go on with this run."""
        self._steps = steps
        self._keeper = keeper(self)
        self.is_begun.set()

    def wait_for_model(self, seconds: float) -> None:
        """Ask a model that fails again for so long: this run answers no open request."""
        self._model = PatientModel(self._model, seconds=seconds)

    @property
    def is_durable(self) -> bool:
        return self._steps is not None

    @property
    def is_left(self) -> bool:
        """True when the rest of the run is another process's."""
        return self._steps is not None and self._steps.is_leaving and not self._is_kept

    def show(self, payloads: list[bytes]) -> None:
        """These may be read now."""
        self.payloads += payloads
        self._tell()

    async def leave(self) -> None:
        """Leave the rest to another process, as soon as nothing is under way that cannot be repeated."""
        if self._steps is not None:
            await self._steps.leave()
        self.cancel()

    def lose(self) -> None:
        """Another process has this run already."""
        self._is_lost = True
        if self._steps is not None:
            self._steps.give_up()
        self.cancel()

    async def finish(self) -> None:
        """Run to the end, whatever is told on the way. Leaving it cancels the run; what there is of it is kept."""
        if self.writer.is_silent and not self.is_durable:
            await self._finish_at_once()
            return
        async with aclosing(self.advance()) as batches:
            async for _ in batches:
                pass

    async def _finish_at_once(self) -> None:
        """In the task that we are in, which is cheaper than one of its own that is listened to."""
        events = _Heard(self._hear)
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        cancels = task.cancelling()
        try:
            try:
                await run(self._request, self._model, self.toolbox, events)
            except asyncio.CancelledError:
                if not self._is_cancelled or task.uncancel() > cancels:
                    raise
            except Exception as bug:  # it has been told as a failed run
                log.error("gateway.run_crashed", response=self.id, error=repr(bug))
            self._task = None  # what is left to do is not stopped by `cancel`
            await self._ended(self._hear_the_end(events), [])
        except asyncio.CancelledError:  # nobody waits for it any more
            await self._finish_unfollowed([events.last] if self.result is None and events.last is not None else [])
            raise
        finally:
            self._task = None
            self.is_done.set()

    def _hear(self, event: Event) -> None:
        self.observe(event)
        self.writer.feed(event)

    def _hear_the_end(self, events: EventLog) -> RunResult:
        end = events.last
        assert isinstance(end, RunFinished)  # noqa: S101 - every run ends so
        self._hear(end)
        return end.result

    async def advance(self) -> AsyncGenerator[list[bytes], None]:
        """Run to the end, wire events as they come. Leaving it cancels the run; what there is of it is kept."""
        events = EventLog()
        running = run(self._request, self._model, self.toolbox, events, self._steps)
        self._task = asyncio.create_task(running, name=self.id)
        if self._is_cancelled:
            self.cancel()
        if self._keeper is not None:
            self._keeper.begin()
        seen = 0
        try:
            while batch := await events.since(seen):
                seen += len(batch)
                if self.is_left and isinstance(batch[-1], RunFinished):
                    return
                payloads: list[bytes] = []
                for event in batch:
                    self.observe(event)
                    payloads += self.writer.feed(event)
                if self._keeper is not None and not isinstance(batch[-1], RunFinished):
                    self._keeper.add(payloads)
                    continue
                payloads = [*(await self._keeper.end() if self._keeper is not None else ()), *payloads]
                self.payloads += payloads
                if isinstance(batch[-1], RunFinished):
                    payloads = await self._ended(batch[-1].result, payloads)
                if payloads:
                    self._tell()
                    yield payloads
        finally:
            try:
                await self._stopped(self._task)
                await self._finish_unfollowed(await events.since(seen) if events.is_finished else [])
            finally:
                self.is_done.set()
                self._tell()

    def cancel(self) -> None:
        """Stop the model and the tools. The run then ends as cancelled, and is kept as such."""
        self._is_cancelled = True
        if self._task is not None:
            # Not before its first step: a task that never began tells nobody of its end.
            asyncio.get_running_loop().call_soon(self._task.cancel)

    async def follow(self, starting_after: int = -1) -> AsyncGenerator[list[bytes], None]:
        """Every wire event after a number, those to come included."""
        position = starting_after + 1
        while True:
            if position < len(self.payloads):
                batch = self.payloads[position:]
                position += len(batch)
                yield batch
                continue
            if self.is_done.is_set():
                return
            self._news = self._news or asyncio.Event()
            await self._news.wait()

    async def _ended(self, result: RunResult, payloads: list[bytes]) -> list[bytes]:
        """What the last events are, once the run is stored."""
        self.result = result
        try:
            await self._kept()
        except StorageError as error:
            return self._not_kept(error, payloads)
        if self.is_left:  # its end is told by whoever has it now
            del self.payloads[len(self.payloads) - len(payloads) :]
            return []
        return payloads

    async def _kept(self) -> None:
        if self._keep is not None:
            await self._keep(self)
        self._is_kept = not self._is_lost

    def _not_kept(self, error: StorageError, payloads: list[bytes]) -> list[bytes]:
        """What the last events become: a client must not hear of an end that nobody can look up later."""
        log.error("gateway.not_kept", response=self.id, error=error)
        has_acted = self.result is not None and self.result.tool_calls > 0
        self.failure = NotKeptError(str(error), has_acted=has_acted)
        if payloads:
            self._unkept = payloads
            del self.payloads[-len(payloads) :]
            payloads = error_events(self.failure, len(self.payloads), payloads[-1])
            self._instead = len(payloads)
            self.payloads += payloads
        return payloads

    async def keep_again(self) -> None:
        """Try once more to store a run that has ended, as it was. `failure` is gone when that worked."""
        told = self.payloads
        self.payloads = [*told[: -self._instead], *self._unkept] if self._unkept else told
        try:
            await self._kept()
        except StorageError as error:
            self.payloads = told
            log.warning("gateway.not_kept", response=self.id, error=error)
        else:
            self.failure = None

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    async def _stopped(self, task: asyncio.Task[RunResult]) -> None:
        """Nothing of the run is under way any more."""
        if self._keeper is not None:
            await self._keeper.end()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("gateway.run_crashed", response=self.id, error=repr(bug))

    async def _finish_unfollowed(self, rest: list[Event]) -> None:
        """Keep a run whose reader left before its end, or before that was stored. `rest`: what nobody has heard."""
        is_over = self._is_kept or self.failure is not None or self.is_left
        if is_over or (self.result is None and not rest):
            return
        for event in rest:
            self.observe(event)
            self.payloads += self.writer.feed(event)
            if isinstance(event, RunFinished):
                self.result = event.result
        try:
            await asyncio.shield(self._kept())
        except StorageError as error:
            self._not_kept(error, [])


class _Heard(EventLog):
    """A log with one reader, who hears everything but the end at once."""

    def __init__(self, hear: Callable[[Event], None]) -> None:
        super().__init__()
        self._hear = hear

    def append(self, event: Event) -> int:
        if not isinstance(event, RunFinished):
            self._hear(event)
        return super().append(event)


def _unobserved(event: Event) -> None:
    """Nobody counts."""
