"""Background responses: a promise that is kept although the process that gave it may die.

With an engine every step is kept, and the work of a gateway that is gone goes on at another. Without one, responses
live in this process, and those of a process that is gone are marked as failed, with the reason.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Literal

import orjson

from holodeck.durable.engine import Checkpoints, EngineToCome, Plain, WorkEngine, WorkTakenError
from holodeck.engine.kept_steps import KeptSteps
from holodeck.gateway.keeping import StreamKeeper
from holodeck.gateway.live_run import LiveRun
from holodeck.gateway.runs import Runs
from holodeck.gateway.wire.past import Past
from holodeck.gateway.wire.replay import replay
from holodeck.gateway.wire.resource import show_usage
from holodeck.gateway.wire.writer import ResponseWriter
from holodeck.lib import log, trace
from holodeck.lib.errors import HoloDeckError, StorageError
from holodeck.lib.limits import (
    BEGIN_WAIT,
    CANCEL_POLL,
    CLEAR_LOOKS,
    DAMAGED_LOOKS,
    KEEP_RETRY,
    OTHER_VERSION_LOOKS,
    STORAGE_RETRY,
    TAKE_OVER_INTERVAL,
)
from holodeck.models.items import Usage
from holodeck.storage.same_file import LOST
from holodeck.storage.store import ResponseStore, StoredResponse

STOPPED = "The gateway stopped while this response was being made."
OTHER_VERSION = (
    "The gateway stopped while this response was being made, and this version of HoloDeck cannot go on with what "
    "another one began."
)
DAMAGED = "What the gateway kept of this response is damaged, and it cannot be gone on with."
RECOVERED = "holodeck_background_recovered_total"
TAKEN_OVER = "holodeck_background_taken_over_total"
_EXECUTOR = "holodeck-"

Live = LiveRun[ResponseWriter]
Revive = Callable[[str, Plain], Awaitable[Live | None]]
"""Makes a run again from what was kept of it. None: there is nothing left to do."""


def executor_name(keeper: int) -> str:
    """What the engine calls the gateway that storage knows by a number."""
    return f"{_EXECUTOR}{keeper}"


def _resumed(response_id: str, given: Plain) -> AbstractContextManager[trace.Span]:
    """A part of a background response that is made by another process than the one that was asked for it."""
    about = {"holodeck.response.id": response_id}
    return trace.span("resume_response", about, parent=given.get("trace"))


def _uncounted(name: str, times: int) -> None:
    """Nobody counts."""


class Background:
    """Runs responses without anybody waiting for them."""

    def __init__(
        self,
        store: ResponseStore,
        runs: Runs,
        engine: EngineToCome | None = None,
        *,
        looks: int = 1,
        model_wait: float = 0.0,
        count: Callable[[str, int], None] = _uncounted,
    ) -> None:
        """`looks`: how many times in a row a gateway must be missing before its work is another's.

        `model_wait`: seconds for which a model that fails is asked again; see `PatientModel`.
        `count` hears of responses that went on here, and of those of others that were given to who is there.
        """
        self._store = store
        self._runs = runs
        self._to_come = engine
        self._engine: WorkEngine | None = None
        self._looks = looks
        self._model_wait = model_wait
        self._count = count
        for name in (RECOVERED, TAKEN_OVER):
            count(name, 0)
        self._revive: Revive | None = None
        self._ready: dict[str, Live] = {}
        self._missing: Counter[int | None] = Counter()
        self._unread: Counter[str] = Counter()
        """At how many looks in a row work was here and was not done."""
        self._over: set[str] = set()
        """The ids of work that had not ended at the last look, although its response had."""
        self._opening: asyncio.Task[WorkEngine] | None = None
        self._taking_back: set[asyncio.Task[None]] = set()
        self.is_leaving = False
        """True once nothing more is begun here."""

    @property
    def is_durable(self) -> bool:
        return self._to_come is not None

    async def open(self, revive: Revive) -> None:
        """Begin to take work, now or as soon as there is storage."""
        self._revive = revive
        try:
            await self._open_if_missed()
            await self.look_after()
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)

    async def _open_if_missed(self) -> None:
        if self._to_come is not None and (self._engine is not None or self._to_come.is_missed()):
            await self._opened(self._to_come)

    async def _opened(self, to_come: EngineToCome) -> WorkEngine:
        """The engine, made by the first who needs it, but not as a part of their request, nor only for as long."""
        if self._engine is not None:
            if to_come.is_lost():
                raise StorageError(LOST)
            return self._engine
        if self._opening is None or self._opening.done():
            nobodys = contextvars.Context()
            self._opening = asyncio.create_task(self._open(to_come), name="open the engine", context=nobodys)
            self._opening.add_done_callback(lambda opening: opening.cancelled() or opening.exception())
        await asyncio.wait({self._opening})
        return self._opening.result()

    async def _open(self, to_come: EngineToCome) -> WorkEngine:
        await self._store.is_healthy()  # the engine asks in a way for which everybody would have to wait
        engine = await asyncio.to_thread(to_come.make)
        await engine.open(self._work)
        to_come.is_lost()  # from now on
        self._engine = engine
        return engine

    async def is_able(self) -> bool:
        """Whether what is begun here is kept as promised; storage may have come, or its rights, since the start."""
        try:
            await self._open_if_missed()
        except StorageError as error:
            log.debug("gateway.storage_failed", error=error)
            return False
        return True

    async def close(self) -> None:
        for task in self._taking_back:
            task.cancel()
        if self._opening is not None:
            await asyncio.wait({self._opening})
        if self._engine is not None:
            await self._engine.close()

    async def begin(self, live: Live, given: Plain | None, turn: int) -> None:
        """Start a response that is stored. `given` is all that it takes to make its run again, if that is possible.

        `turn`: where it stands among those that wait for room.
        """
        live.wait_for_model(self._model_wait)
        if self._to_come is None or given is None:
            self._runs.start(live)
            return
        engine = await self._opened(self._to_come)
        self._ready[live.id] = live
        try:
            is_here = await engine.submit(live.id, given, turn=turn)
        except StorageError:
            self._ready.pop(live.id, None)
            raise
        if not is_here:
            self._ready.pop(live.id, None)

    async def take_back(self, live: Live, record: StoredResponse) -> None:
        """A response is not begun: nothing of it is kept, and what waited for it is there for another.

        Storage that does not do that now is asked again. Until then nobody goes on with what waited: `live` has it.
        """
        try:
            await self._take_back(record)
        except StorageError as error:
            log.warning("gateway.storage_failed", response=live.id, error=error)
            task = asyncio.create_task(self._take_back_later(live, record), name=f"take back {live.id}")
            self._taking_back.add(task)
            task.add_done_callback(self._taking_back.discard)

    async def _take_back_later(self, live: Live, record: StoredResponse) -> None:
        while True:
            await asyncio.sleep(KEEP_RETRY)
            try:
                await self._take_back(record)
            except StorageError as error:
                log.debug("gateway.storage_failed", response=live.id, error=error)
            else:
                return

    async def _take_back(self, record: StoredResponse) -> None:
        await self._store.delete(record.id, record.owner)
        await self._let_go(record)

    async def _let_go(self, record: StoredResponse) -> None:
        """What waited for a response, none of which was run, is there for another."""
        await self._store.return_calls(record.owner, record.id)
        if record.conversation_id is not None:
            await self._store.give_back(record.conversation_id, record.owner, record.id)

    async def begun(self, live: Live) -> None:
        """Wait a moment for a run that was given to this gateway to be on its way: its reader need not look for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_WAIT):
                if live.id in self._ready:
                    await live.is_begun.wait()

    async def drop(self, response_id: str) -> None:
        """A response was deleted: nobody needs to make it."""
        if self._engine is not None:
            await self._engine.drop(response_id)

    async def withdraw(self, record: StoredResponse) -> bool:
        """Cancel a response that nobody has begun. False: somebody has, or will know what to do with it."""
        if self._engine is None:
            return False
        if (await self._engine.whereabouts([record.id]))[record.id].stage != "waiting":
            return False
        await self._engine.drop(record.id)
        await self._let_go(record)  # first: what a response has that has ended may have been run
        await self._end(record, "cancelled")
        return True

    @property
    def running(self) -> int:
        """How many responses that nobody waits for are being made here."""
        return self._runs.in_background

    async def waiting(self) -> int:
        """How many responses nobody has begun."""
        return await self._engine.waiting() if self._engine is not None else 0

    async def forget(self, before: float) -> None:
        if self._engine is not None:
            await self._engine.forget(before)

    async def _work(self, response_id: str, given: Plain, checkpoints: Checkpoints) -> None:
        if self.is_leaving:
            raise WorkTakenError
        try:
            fresh = self._ready.pop(response_id, None)
            # What another process began goes on in the trace of the request that asked for it.
            with _resumed(response_id, given) if fresh is None else trace.SILENT:
                live = fresh or await self._revived(response_id, given)
                if live is None:
                    return
                if fresh is None:
                    live.wait_for_model(self._model_wait)
                live.survive(KeptSteps(checkpoints), self._keeper)
                await self._runs.finish_patiently(live)
        except Exception as error:  # the outer boundary: nobody else would say that it has come to nothing
            log.error("gateway.background_failed", response=response_id, error=f"{type(error).__name__}: {error}")
            await self._fail(response_id, str(given["owner"]), "An error in the gateway ended this response.")
            return
        if live.is_left:
            raise WorkTakenError

    async def _revived(self, response_id: str, given: Plain) -> Live | None:
        """A run as it was left. None: there is nothing to go on with."""
        assert self._revive is not None  # noqa: S101 - no work comes before `open`
        while True:
            try:
                await self._store.adopt(response_id)
                live = await self._revive(response_id, given)
            except StorageError as error:
                log.warning("gateway.storage_failed", response=response_id, error=error)
                await asyncio.sleep(KEEP_RETRY)
                continue
            except HoloDeckError as error:
                await self._fail(response_id, str(given["owner"]), f"The response could not be gone on with: {error}")
                return None
            if live is not None:
                self._count(RECOVERED, 1)
                log.info("gateway.recovered", response=response_id)
            return live

    def _keeper(self, live: Live) -> StreamKeeper:
        first = len(live.payloads)
        return StreamKeeper(self._store, live.id, live.writer, first=first, show=live.show, lose=live.lose)

    async def watch_cancels(self) -> None:
        """Stop what somebody asked another gateway to stop. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(CANCEL_POLL)
            if not len(self._runs):
                continue
            try:
                for response_id in await self._store.cancels():
                    self._runs.cancel(response_id)
            except StorageError as error:
                log.debug("gateway.storage_failed", error=error)
                await asyncio.sleep(STORAGE_RETRY)

    async def watch_keepers(self) -> None:
        """Take care of what gateways that are gone have left. Runs until it is cancelled."""
        looks = 0
        while not self.is_leaving:
            try:
                await self._open_if_missed()
                await self.look_after()
                if self._over or looks % CLEAR_LOOKS == 0:
                    await self._clear_away()
                looks += 1
            except StorageError as error:
                log.warning("gateway.storage_failed", error=error)
                await asyncio.sleep(STORAGE_RETRY)
            await asyncio.sleep(TAKE_OVER_INTERVAL)

    async def look_after(self) -> None:
        """One look for gateways that are gone."""
        orphans = await self._store.orphans()
        missing = set(orphans.values())
        self._missing = Counter({keeper: self._missing[keeper] + 1 for keeper in missing})
        gone = {each: keeper for each, keeper in orphans.items() if self._missing[keeper] >= self._looks}
        gone = {each: keeper for each, keeper in gone.items() if not self._runs.has(each)}
        if not gone:
            return
        reasons = dict.fromkeys(gone, STOPPED)
        if self._engine is not None:
            reasons = await self._taken_over(self._engine, gone)
        for record in await self._store.unfinished() if reasons else ():
            if record.id in reasons:
                await self._end(record, "failed", reasons[record.id])

    async def _clear_away(self) -> None:
        """End the work of responses that have ended: a gateway that dies between the two leaves it for ever.

        Nothing would go on with it, and nothing would forget what is kept of it. A gateway that lives ends it in a
        moment, so it is ended here at the second look.
        """
        if self._engine is None:
            return
        begun = {each for each in await self._engine.under_way() if not self._runs.has(each)}
        over = begun - await self._store.in_the_making(begun) if begun else set()
        for work_id in over & self._over:
            await self._engine.drop(work_id)
            log.info("gateway.cleared_away", response=work_id)
        self._over = over - self._over

    async def _taken_over(self, engine: WorkEngine, gone: Mapping[str, int | None]) -> dict[str, str]:
        """Have the engine go on with all that it knows. What nobody can go on with is given back, with the reason."""
        left: dict[str, str] = {}
        executors: set[str] = set()
        unread: Counter[str] = Counter()
        for response_id, where in (await engine.whereabouts(gone)).items():
            if where.is_foreign and where.stage in {"running", "waiting"}:
                # One of its own version may be there, and is given the time to see to it.
                if self._missing[gone[response_id]] >= self._looks * OTHER_VERSION_LOOKS:
                    await engine.drop(response_id)
                    left[response_id] = OTHER_VERSION
            elif where.stage == "running" and where.is_damaged:
                unread[response_id] = self._unread[response_id] + 1
                if unread[response_id] >= DAMAGED_LOOKS:
                    await engine.drop(response_id)
                    left[response_id] = DAMAGED
            elif where.stage == "running" and where.executor == executor_name(gone[response_id] or 0):
                executors.add(where.executor)
            elif where.stage == "running":  # somebody began with it and died before saying so
                number = where.executor.removeprefix(_EXECUTOR)
                if number.isdecimal():
                    await self._store.adopt(response_id, int(number))
            elif where.stage != "waiting":
                left[response_id] = DAMAGED if where.is_damaged else STOPPED
        self._unread = unread
        for executor in executors:
            count = await engine.take_over(executor)
            self._count(TAKEN_OVER, count)
            log.info("gateway.took_over", executor=executor, responses=count)
        return left

    async def _fail(self, response_id: str, owner: str, reason: str) -> None:
        record = await self._store.get(response_id, owner)
        if record is not None:
            log.error("gateway.not_recovered", response=response_id, reason=reason)
            await self._end(record, "failed", reason)

    async def _end(self, record: StoredResponse, status: Literal["failed", "cancelled"], reason: str = "") -> None:
        """End a response that nobody makes, with what was told of it before."""
        told = await self._store.grown(record.id, record.owner) or []
        resource = orjson.loads(record.resource) | {"status": status}
        resource["usage"] = resource["usage"] or show_usage(Usage())  # what it cost went with who made it
        if status == "failed":
            resource["error"] = {"code": "server_error", "message": reason}
        else:
            resource["incomplete_details"] = {"reason": "cancelled"}
        events = b"\n".join([*told, *replay(resource, past=Past(told))]) if told else b""
        await self._store.save(replace(record, status=status, resource=orjson.dumps(resource), events=events))
