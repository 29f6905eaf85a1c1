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

from holodeck.durable.base import Checkpoints, JSONObject, LazyEngine, WorkEngine, WorkTakenOverError
from holodeck.engine.checkpointed_steps import CheckpointedSteps
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.live_run import LiveRun
from holodeck.gateway.runs.stream_writer import StreamWriter
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.gateway.wire.response.resource import usage_to_json
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log, tracing
from holodeck.lib.errors import HoloDeckError, StorageError
from holodeck.lib.limits import CANCEL_POLL, STORE_RETRY_PAUSE
from holodeck.lib.system.files import FILE_REPLACED
from holodeck.models.items import Usage
from holodeck.storage.base import ResponseStore, StoredResponse

# Seconds before storage that was away at the start is asked again.
STORAGE_RETRY = 5.0
# Seconds that a reader waits for its run to begin here, before it reads what is stored.
RUN_START_TIMEOUT = 1.0
# Seconds between two looks for gateways that are gone.
TAKE_OVER_INTERVAL = 1.0
# Of those looks, between two for work whose response has ended: it is in nobody's way.
CLEANUP_LOOKS = 30
# Times as many looks, before work that only another version can do is given up.
OTHER_VERSION_LOOKS = 5
# In a row at which work was taken and is not done, before it counts as damaged: it may just begin.
DAMAGED_LOOKS = 3


STOPPED_TEXT = "The gateway stopped while this response was being made."
OTHER_VERSION_TEXT = (
    "The gateway stopped while this response was being made, and this version of HoloDeck cannot go on with what "
    "another one began."
)
DAMAGED_TEXT = "What the gateway kept of this response is damaged, and it cannot be gone on with."
RECOVERED_METRIC = "holodeck_background_recovered_total"
TAKEN_OVER_METRIC = "holodeck_background_taken_over_total"
_EXECUTOR_PREFIX = "holodeck-"

LiveResponse = LiveRun[ResponseWriter]
Rebuild = Callable[[str, JSONObject], Awaitable[LiveResponse | None]]
"""Makes a run again from what was kept of it. None: there is nothing left to do."""


def executor_name(gateway_id: int) -> str:
    """What the engine calls the gateway that storage knows by a number."""
    return f"{_EXECUTOR_PREFIX}{gateway_id}"


def _open_resume_span(response_id: str, rebuild_input: JSONObject) -> AbstractContextManager[tracing.Span]:
    """A part of a background response that is made by another process than the one that was asked for it."""
    about = {"holodeck.response.id": response_id}
    return tracing.span("resume_response", about, parent=rebuild_input.get("trace"))


def _ignore_count(name: str, times: int) -> None:
    """Nobody counts."""


class Background:
    """Runs responses without anybody waiting for them."""

    def __init__(
        self,
        store: ResponseStore,
        runs: ActiveRuns,
        engine: LazyEngine | None = None,
        *,
        checks_before_takeover: int = 1,
        model_wait: float = 0.0,
        count: Callable[[str, int], None] = _ignore_count,
    ) -> None:
        """`checks_before_takeover`: how many times in a row a gateway must be missing before its work is another's.

        `model_wait`: seconds for which a model that fails is asked again; see `LongRetrying`.
        `count` hears of responses that went on here, and of those of others that were given to who is there.
        """
        self._store = store
        self._runs = runs
        self._lazy_engine = engine
        self._engine: WorkEngine | None = None
        self._checks_before_takeover = checks_before_takeover
        self._model_wait = model_wait
        self._count = count
        for name in (RECOVERED_METRIC, TAKEN_OVER_METRIC):
            count(name, 0)
        self._rebuild: Rebuild | None = None
        self._submitted_runs: dict[str, LiveResponse] = {}
        self._missing_checks: Counter[int | None] = Counter()
        self._damaged_checks: Counter[str] = Counter()
        """At how many looks in a row work was here and was not done."""
        self._stale_runs: set[str] = set()
        """The ids of work that had not ended at the last look, although its response had."""
        self._opening: asyncio.Task[WorkEngine] | None = None
        self._rollback_tasks: set[asyncio.Task[None]] = set()
        self.is_draining = False
        """True once nothing more is begun here."""

    @property
    def is_durable(self) -> bool:
        return self._lazy_engine is not None

    async def open(self, rebuild: Rebuild) -> None:
        """Begin to take work, now or as soon as there is storage."""
        self._rebuild = rebuild
        try:
            await self._open_engine_if_needed()
            await self.take_over_orphans()
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)

    async def _open_engine_if_needed(self) -> None:
        if self._lazy_engine is not None and (self._engine is not None or self._lazy_engine.has_stored_work()):
            await self._get_engine(self._lazy_engine)

    async def _get_engine(self, lazy_engine: LazyEngine) -> WorkEngine:
        """The engine, made by the first who needs it, but not as a part of their request, nor only for as long."""
        if self._engine is not None:
            if lazy_engine.check_file_replaced():
                raise StorageError(FILE_REPLACED)
            return self._engine
        if self._opening is None or self._opening.done():
            nobodys = contextvars.Context()
            self._opening = asyncio.create_task(self._open_engine(lazy_engine), name="open the engine", context=nobodys)
            self._opening.add_done_callback(lambda opening: opening.cancelled() or opening.exception())
        await asyncio.wait({self._opening})
        return self._opening.result()

    async def _open_engine(self, lazy_engine: LazyEngine) -> WorkEngine:
        await self._store.check_health()  # the engine asks in a way for which everybody would have to wait
        engine = await asyncio.to_thread(lazy_engine.create)
        await engine.open(self._run_response)
        lazy_engine.check_file_replaced()  # from now on
        self._engine = engine
        return engine

    async def check_storage(self) -> bool:
        """Whether what is begun here is kept as promised; storage may have come, or its rights, since the start."""
        try:
            await self._open_engine_if_needed()
        except StorageError as error:
            log.debug("gateway.storage_failed", error=error)
            return False
        return True

    async def close(self) -> None:
        for task in self._rollback_tasks:
            task.cancel()
        if self._opening is not None:
            await asyncio.wait({self._opening})
        if self._engine is not None:
            await self._engine.close()

    async def submit(self, live: LiveResponse, rebuild_input: JSONObject | None, queue_position: int) -> None:
        """Start a response that is stored. `rebuild_input` is all that it takes to make its run again, if that is
        possible.

        `queue_position`: where it stands among those that wait for room.
        """
        live.retry_model_for(self._model_wait)
        if self._lazy_engine is None or rebuild_input is None:
            self._runs.start_background(live)
            return
        engine = await self._get_engine(self._lazy_engine)
        self._submitted_runs[live.id] = live
        try:
            is_here = await engine.submit(live.id, rebuild_input, queue_position=queue_position)
        except StorageError:
            self._submitted_runs.pop(live.id, None)
            raise
        if not is_here:
            self._submitted_runs.pop(live.id, None)

    async def rollback(self, live: LiveResponse, record: StoredResponse) -> None:
        """A response is not begun: nothing of it is kept, and what waited for it is there for another.

        Storage that does not do that now is asked again. Until then nobody goes on with what waited: `live` has it.
        """
        try:
            await self._delete_and_release(record)
        except StorageError as error:
            log.warning("gateway.storage_failed", response=live.id, error=error)
            task = asyncio.create_task(self._retry_rollback(live, record), name=f"take back {live.id}")
            self._rollback_tasks.add(task)
            task.add_done_callback(self._rollback_tasks.discard)

    async def _retry_rollback(self, live: LiveResponse, record: StoredResponse) -> None:
        while True:
            await asyncio.sleep(STORE_RETRY_PAUSE)
            try:
                await self._delete_and_release(record)
            except StorageError as error:
                log.debug("gateway.storage_failed", response=live.id, error=error)
            else:
                return

    async def _delete_and_release(self, record: StoredResponse) -> None:
        await self._store.delete(record.id, record.owner)
        await self._release_claims(record)

    async def _release_claims(self, record: StoredResponse) -> None:
        """What waited for a response, none of which was run, is there for another."""
        await self._store.release_calls(record.owner, record.id)
        if record.conversation_id is not None:
            await self._store.release_conversation(record.conversation_id, record.owner, record.id)

    async def wait_started(self, live: LiveResponse) -> None:
        """Wait a moment for a run that was given to this gateway to be on its way: its reader need not look for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RUN_START_TIMEOUT):
                if live.id in self._submitted_runs:
                    await live.started.wait()

    async def delete_run(self, response_id: str) -> None:
        """A response was deleted: nobody needs to make it."""
        if self._engine is not None:
            await self._engine.cancel(response_id)

    async def cancel_queued(self, record: StoredResponse) -> bool:
        """Cancel a response that nobody has begun. False: somebody has, or will know what to do with it."""
        if self._engine is None:
            return False
        if (await self._engine.read_statuses([record.id]))[record.id].stage != "waiting":
            return False
        await self._engine.cancel(record.id)
        await self._release_claims(record)  # first: what a response has that has ended may have been run
        await self._end_response(record, "cancelled")
        return True

    @property
    def running_count(self) -> int:
        """How many responses that nobody waits for are being made here."""
        return self._runs.background_count

    async def count_queued(self) -> int:
        """How many responses nobody has begun."""
        return await self._engine.count_queued() if self._engine is not None else 0

    async def delete_older_than(self, before: float) -> None:
        if self._engine is not None:
            await self._engine.delete_older_than(before)

    async def _run_response(self, response_id: str, rebuild_input: JSONObject, checkpoints: Checkpoints) -> None:
        if self.is_draining:
            raise WorkTakenOverError
        try:
            fresh = self._submitted_runs.pop(response_id, None)
            # What another process began goes on in the trace of the request that asked for it.
            with _open_resume_span(response_id, rebuild_input) if fresh is None else tracing.NOOP_SPAN:
                live = fresh or await self._rebuild_run(response_id, rebuild_input)
                if live is None:
                    return
                if fresh is None:
                    live.retry_model_for(self._model_wait)
                live.make_durable(CheckpointedSteps(checkpoints), self._build_stream_writer)
                await self._runs.run_until_stored(live)
        except Exception as error:  # the outer boundary: nobody else would say that it has come to nothing
            log.error("gateway.background_failed", response=response_id, error=f"{type(error).__name__}: {error}")
            await self._fail_response(
                response_id, str(rebuild_input["owner"]), "An error in the gateway ended this response."
            )
            return
        if live.is_handed_over:
            raise WorkTakenOverError

    async def _rebuild_run(self, response_id: str, rebuild_input: JSONObject) -> LiveResponse | None:
        """A run as it was left. None: there is nothing to go on with."""
        assert self._rebuild is not None  # noqa: S101 - no work comes before `open`
        while True:
            try:
                await self._store.assign_gateway(response_id)
                live = await self._rebuild(response_id, rebuild_input)
            except StorageError as error:
                log.warning("gateway.storage_failed", response=response_id, error=error)
                await asyncio.sleep(STORE_RETRY_PAUSE)
                continue
            except HoloDeckError as error:
                await self._fail_response(
                    response_id, str(rebuild_input["owner"]), f"The response could not be gone on with: {error}"
                )
                return None
            if live is not None:
                self._count(RECOVERED_METRIC, 1)
                log.info("gateway.recovered", response=response_id)
            return live

    def _build_stream_writer(self, live: LiveResponse) -> StreamWriter:
        first = len(live.wire_events)
        return StreamWriter(
            self._store, live.id, live.writer, first_sequence=first, publish=live.publish, abandon=live.abandon
        )

    async def watch_cancel_requests(self) -> None:
        """Stop what somebody asked another gateway to stop. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(CANCEL_POLL)
            if not len(self._runs):
                continue
            try:
                for response_id in await self._store.read_cancel_requests():
                    self._runs.cancel(response_id)
            except StorageError as error:
                log.debug("gateway.storage_failed", error=error)
                await asyncio.sleep(STORAGE_RETRY)

    async def watch_gateways(self) -> None:
        """Take care of what gateways that are gone have left. Runs until it is cancelled."""
        looks = 0
        while not self.is_draining:
            try:
                await self._open_engine_if_needed()
                await self.take_over_orphans()
                if self._stale_runs or looks % CLEANUP_LOOKS == 0:
                    await self._end_stale_runs()
                looks += 1
            except StorageError as error:
                log.warning("gateway.storage_failed", error=error)
                await asyncio.sleep(STORAGE_RETRY)
            await asyncio.sleep(TAKE_OVER_INTERVAL)

    async def take_over_orphans(self) -> None:
        """One look for gateways that are gone."""
        orphans = await self._store.find_orphans()
        missing = set(orphans.values())
        self._missing_checks = Counter({keeper: self._missing_checks[keeper] + 1 for keeper in missing})
        gone = {
            each: keeper
            for each, keeper in orphans.items()
            if self._missing_checks[keeper] >= self._checks_before_takeover
        }
        gone = {each: keeper for each, keeper in gone.items() if not self._runs.has(each)}
        if not gone:
            return
        reasons = dict.fromkeys(gone, STOPPED_TEXT)
        if self._engine is not None:
            reasons = await self._take_over_runs(self._engine, gone)
        for record in await self._store.read_orphans() if reasons else ():
            if record.id in reasons:
                await self._end_response(record, "failed", reasons[record.id])

    async def _end_stale_runs(self) -> None:
        """End the work of responses that have ended: a gateway that dies between the two leaves it for ever.

        Nothing would go on with it, and nothing would forget what is kept of it. A gateway that lives ends it in a
        moment, so it is ended here at the second look.
        """
        if self._engine is None:
            return
        begun = {each for each in await self._engine.list_started() if not self._runs.has(each)}
        over = begun - await self._store.find_unfinished(begun) if begun else set()
        for work_id in over & self._stale_runs:
            await self._engine.cancel(work_id)
            log.info("gateway.cleared_away", response=work_id)
        self._stale_runs = over - self._stale_runs

    async def _take_over_runs(self, engine: WorkEngine, orphans: Mapping[str, int | None]) -> dict[str, str]:
        """Have the engine go on with all that it knows. What nobody can go on with is given back, with the reason."""
        left: dict[str, str] = {}
        executors: set[str] = set()
        unread: Counter[str] = Counter()
        for response_id, where in (await engine.read_statuses(orphans)).items():
            if where.is_other_version and where.stage in {"running", "waiting"}:
                # One of its own version may be there, and is given the time to see to it.
                if self._missing_checks[orphans[response_id]] >= self._checks_before_takeover * OTHER_VERSION_LOOKS:
                    await engine.cancel(response_id)
                    left[response_id] = OTHER_VERSION_TEXT
            elif where.stage == "running" and where.is_damaged:
                unread[response_id] = self._damaged_checks[response_id] + 1
                if unread[response_id] >= DAMAGED_LOOKS:
                    await engine.cancel(response_id)
                    left[response_id] = DAMAGED_TEXT
            elif where.stage == "running" and where.executor == executor_name(orphans[response_id] or 0):
                executors.add(where.executor)
            elif where.stage == "running":  # somebody began with it and died before saying so
                number = where.executor.removeprefix(_EXECUTOR_PREFIX)
                if number.isdecimal():
                    await self._store.assign_gateway(response_id, int(number))
            elif where.stage != "waiting":
                left[response_id] = DAMAGED_TEXT if where.is_damaged else STOPPED_TEXT
        self._damaged_checks = unread
        for executor in executors:
            count = await engine.take_over(executor)
            self._count(TAKEN_OVER_METRIC, count)
            log.info("gateway.took_over", executor=executor, responses=count)
        return left

    async def _fail_response(self, response_id: str, caller_id: str, reason: str) -> None:
        record = await self._store.get(response_id, caller_id)
        if record is not None:
            log.error("gateway.not_recovered", response=response_id, reason=reason)
            await self._end_response(record, "failed", reason)

    async def _end_response(
        self, record: StoredResponse, status: Literal["failed", "cancelled"], reason: str = ""
    ) -> None:
        """End a response that nobody makes, with what was told of it before."""
        told = await self._store.read_events(record.id, record.owner) or []
        resource = orjson.loads(record.resource) | {"status": status}
        resource["usage"] = resource["usage"] or usage_to_json(Usage())  # what it cost went with who made it
        if status == "failed":
            resource["error"] = {"code": "server_error", "message": reason}
        else:
            resource["incomplete_details"] = {"reason": "cancelled"}
        events = b"\n".join([*told, *replay_events(resource, sent_events=SentEvents(told))]) if told else b""
        await self._store.save(replace(record, status=status, resource=orjson.dumps(resource), events=events))
