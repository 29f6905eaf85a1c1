"""Background responses: they run without a request that waits, and finish although their gateway may die.

With an engine they are durable: each step and the stream are stored, and `Background` does the work that the engine
assigns to this gateway, its own and that of gateways that died. A run of this process is used as it was built
(`_submitted_runs`); one of another process is rebuilt from its stored input. Without an engine, or for a request with
secrets, which are not stored, the run is a task of this process.

Two loops, which the service starts, watch shared storage. `watch_cancel_requests` cancels runs on request of another
gateway. `watch_gateways` looks for orphans, the unfinished responses of gateways that are gone: the engine takes over
those that it can continue, the others are marked as failed with the reason. It also ends engine work whose response has
finished, and resumes runs of this gateway that have stopped without an end, for whatever reason.

Storage errors are logged and retried, except where a request waits for the outcome (`submit`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

from holodeck.durable.base import (
    Checkpoints,
    JSONObject,
    LazyEngine,
    Stage,
    WorkEngine,
    WorkStatus,
    WorkTakenOverError,
    executor_name,
    executor_number,
)
from holodeck.engine.checkpointed_steps import CheckpointedSteps
from holodeck.gateway.auth.callers import RevokedCallers
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.finisher import (
    DAMAGED_TEXT,
    ENDED_TEXT,
    OTHER_VERSION_TEXT,
    STOPPED_TEXT,
    end_response,
    fail_unstored_response,
)
from holodeck.gateway.runs.live_run import LiveResponse, RunState
from holodeck.lib import log, tracing
from holodeck.lib.errors import HoloDeckError, StorageError
from holodeck.lib.limits import CANCEL_POLL, STORE_RETRY_PAUSE
from holodeck.lib.system.files import FILE_REPLACED
from holodeck.lib.tasks import TaskSet
from holodeck.storage.responses import StoredResponse
from holodeck.storage.store import ResponseStore

# Seconds between attempts of a watching loop while storage fails: rarer than its normal pause, to spare the storage.
STORAGE_RETRY = 5.0
# Seconds that the reader of a new stream waits for its run to start in this gateway, before it follows the stored one.
RUN_START_TIMEOUT = 1.0
# Seconds between two checks for orphans: bounds how long a response stands still after its gateway died.
TAKE_OVER_INTERVAL = 1.0
# Orphan checks between two checks for stale engine work, which only takes storage.
CLEANUP_LOOKS = 30
# Orphan checks between two checks for own runs that have stopped. Two of them in a row must find the same run.
STOPPED_LOOKS = 5
# Factor on `checks_before_takeover` for work of another version: a gateway of that version may take it first.
OTHER_VERSION_LOOKS = 5
# Checks in a row that find running work unreadable, before it counts as damaged: work that just starts looks the same.
DAMAGED_LOOKS = 3
# Seconds for the requests of a revoked caller to end: one of them may be storing a response at this moment.
REVOKED_REQUESTS_TIMEOUT = 10.0

Rebuild = Callable[[str, JSONObject], Awaitable[LiveResponse | None]]
"""Rebuilds a run from its stored input. None: the response has finished or is deleted."""


def _open_resume_span(response_id: str, rebuild_input: JSONObject) -> AbstractContextManager[tracing.Span]:
    """Open a span for the part of a response that runs in another process than its request, as the request's child."""
    attributes = {"holodeck.response.id": response_id}
    return tracing.span("resume_response", attributes, parent=rebuild_input.get("trace"))


class Background:
    """Runs background responses, and takes over those of gateways that are gone."""

    def __init__(
        self,
        store: ResponseStore,
        runs: ActiveRuns,
        engine: LazyEngine | None = None,
        *,
        checks_before_takeover: int = 1,
        model_wait: float = 0.0,
        metrics: Metrics | None = None,
    ) -> None:
        """`checks_before_takeover`: checks in a row that a gateway must be missing at before its work is taken over.

        `model_wait`: seconds for which a failing model is retried; see `LongRetrying`.
        `metrics` counts the responses that were continued here, and those that were taken over.
        """
        self._store = store
        self._runs = runs
        self._lazy_engine = engine
        self._engine: WorkEngine | None = None
        self._checks_before_takeover = checks_before_takeover
        self._model_wait = model_wait
        self._metrics = metrics or Metrics()
        self._rebuild: Rebuild | None = None
        self._submitted_runs: dict[str, LiveResponse] = {}
        self._missing_checks: Counter[int | None] = Counter()
        self._damaged_checks: Counter[str] = Counter()
        """At how many checks in a row running work was unreadable, by response id."""
        self._unreadable: set[str] = set()
        """The ids of orphans whose stored state cannot be read."""
        self._starting: set[str] = set()
        """The ids of responses that requests are about to store and submit."""
        self._stopped_checks: Counter[str] = Counter()
        """At how many checks in a row a run of this gateway was found stopped, by response id."""
        self._stale_runs: set[str] = set()
        """The ids of engine work that had not ended at the last check, although its response had."""
        self._opening_tasks = TaskSet()
        self._opening: asyncio.Task[WorkEngine] | None = None
        self._rollback_tasks = TaskSet()
        self.is_draining = False
        """True once this gateway starts no more work."""

    @property
    def is_durable(self) -> bool:
        return self._lazy_engine is not None

    async def open(self, rebuild: Rebuild) -> None:
        """Start to take work. If storage fails now, `watch_gateways` tries again."""
        self._rebuild = rebuild
        try:
            await self._open_engine_if_needed()
            await self.take_over_orphans()
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)
        except Exception as error:
            # Whatever one stored response is like, the gateway starts. `watch_gateways` meets it again, supervised.
            log.error("gateway.storage_failed", error=repr(error))

    async def _open_engine_if_needed(self) -> None:
        if self._lazy_engine is not None and (self._engine is not None or self._lazy_engine.has_stored_work()):
            await self._get_engine(self._lazy_engine)

    async def _get_engine(self, lazy_engine: LazyEngine) -> WorkEngine:
        """Return the engine, created at its first use. Raises `StorageError`.

        It is opened by a task with an empty context: opening outlives a request that is cancelled, and is no part of
        its log or trace.
        """
        if self._engine is not None:
            if lazy_engine.check_file_replaced():
                raise StorageError(FILE_REPLACED)
            return self._engine
        if self._opening is None or self._opening.done():
            self._opening = self._opening_tasks.start(
                self._open_engine(lazy_engine), name="open the engine", context=contextvars.Context()
            )
            # Every waiting request may be cancelled, and then the exception is not looked at.
            self._opening.add_done_callback(lambda opening: opening.cancelled() or opening.exception())
        await asyncio.wait({self._opening})
        return self._opening.result()

    async def _open_engine(self, lazy_engine: LazyEngine) -> WorkEngine:
        # Checked first, because the engine connects in a way that blocks the process while storage does not answer.
        await self._store.check_health()
        engine = await asyncio.to_thread(lazy_engine.create)
        await engine.open(self._run_response)
        # The first check remembers which file it is.
        lazy_engine.check_file_replaced()
        self._engine = engine
        return engine

    async def check_storage(self) -> bool:
        """Return whether durable work can be stored. Opens the engine if storage was not usable at the start."""
        try:
            await self._open_engine_if_needed()
        except StorageError as error:
            log.debug("gateway.storage_failed", error=error)
            return False
        return True

    async def close(self) -> None:
        """Cancel rollbacks, wait until an opening has ended, and close the engine."""
        self._rollback_tasks.cancel()
        if self._opening is not None:
            await asyncio.wait({self._opening})
        if self._engine is not None:
            await self._engine.close()

    @contextmanager
    def note_start(self, response_id: str) -> Iterator[None]:
        """Remember for the `with` block that a request stores and submits this response, which does not run yet."""
        self._starting.add(response_id)
        try:
            yield
        finally:
            self._starting.discard(response_id)

    async def submit(self, live: LiveResponse, rebuild_input: JSONObject | None, queue_position: int) -> None:
        """Start a response whose record is stored, and own its run. If this raises, the caller calls `rollback`.

        `rebuild_input`: all that `rebuild` needs. None: it cannot be rebuilt, and runs in this process.
        `queue_position`: its position among the queued responses.
        """
        is_durable = self._lazy_engine is not None and rebuild_input is not None
        live.run.retry_model_for(self._model_wait, can_restart=is_durable)
        if self._lazy_engine is None or rebuild_input is None:
            self._runs.start_background(live)
            return
        engine = await self._get_engine(self._lazy_engine)
        # From now on any gateway may run it.
        await live.reserve(has_calls=True)
        self._submitted_runs[live.id] = live
        try:
            is_here = await engine.submit(live.id, rebuild_input, queue_position=queue_position, owner=live.caller_id)
        except BaseException:
            self._submitted_runs.pop(live.id, None)
            raise
        if not is_here:
            self._submitted_runs.pop(live.id, None)
            async with live:
                await live.hand_over()

    async def rollback(self, live: LiveResponse, record: StoredResponse) -> None:
        """Delete a response that is not started, and discard its run.

        Retried in the background if storage fails. Until then the run has its claims and its lease: no other response
        continues the pending calls.
        """
        try:
            await self._delete_and_discard(live, record)
        except StorageError as error:
            log.warning("gateway.storage_failed", response=live.id, error=error)
            self._rollback_tasks.supervise(partial(self._retry_rollback, live, record), name=f"roll back {live.id}")

    def fail_later(self, response_id: str, caller_id: str) -> None:
        """Store a response as failed whose end could not be stored. Retried in the background while storage fails."""
        fail = partial(fail_unstored_response, self._store, response_id, caller_id)
        self._rollback_tasks.supervise(fail, name=f"fail {response_id}")

    async def _retry_rollback(self, live: LiveResponse, record: StoredResponse) -> None:
        while True:
            await asyncio.sleep(STORE_RETRY_PAUSE)
            try:
                await self._delete_and_discard(live, record)
            except StorageError as error:
                log.debug("gateway.storage_failed", response=live.id, error=error)
            else:
                return

    async def _delete_and_discard(self, live: LiveResponse, record: StoredResponse) -> None:
        await self._store.delete(record.id, record.caller_id)
        await live.discard()
        await live.close()

    async def _release_unstarted(self, record: StoredResponse, stage: Stage) -> None:
        """Release the claims and the lease of a response that will not run any further, if it has run no pending call.

        A call is sent after its first step is stored, so that work without a step has sent none. Comes before the end
        of the response is stored: calls that a finished response has claimed count as possibly run.
        """
        if self._engine is None or stage == "unknown" or await self._engine.has_steps(record.id):
            return
        await self._store.release_calls(record.caller_id, record.id)
        if record.conversation_id is not None:
            await self._store.release_conversation(record.conversation_id, record.caller_id, record.id)

    async def wait_started(self, live: LiveResponse) -> None:
        """Wait until a run that was submitted to this gateway has started, at most `RUN_START_TIMEOUT`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RUN_START_TIMEOUT):
                if live.id in self._submitted_runs:
                    await live.started.wait()

    async def delete_run(self, response_id: str) -> None:
        """Cancel the work of a response that was deleted."""
        if self._engine is not None:
            await self._engine.cancel(response_id)

    async def cancel_queued(self, record: StoredResponse) -> bool:
        """Cancel a queued response. Returns False if it is not queued: the gateway that runs it must cancel it."""
        if self._engine is None:
            return False
        stage = await self._read_stage(record.id)
        if stage != "waiting":
            return False
        await self._engine.cancel(record.id)
        if (live := self._submitted_runs.pop(record.id, None)) is not None:
            await live.close()
        await self._release_unstarted(record, stage)
        await end_response(self._store, record, "cancelled")
        return True

    async def cancel_callers(
        self, revoked: RevokedCallers, revoked_at: float, requests: Collection[asyncio.Task[object]]
    ) -> None:
        """Cancel all responses that these callers began before `revoked_at`, wherever they are queued or running.

        `requests`: the cancelled requests of these callers, which are waited for. Retried while storage fails; runs of
        this gateway that could be reached without storage are cancelled by then.
        """
        if requests:
            await asyncio.wait(requests, timeout=REVOKED_REQUESTS_TIMEOUT)
        while True:
            try:
                found = await self._store.find_unfinished_before(revoked_at)
                for response_id in [each for each, caller_id in found.items() if caller_id in revoked]:
                    await self.cancel(response_id, found[response_id])
            except StorageError as error:
                log.warning("gateway.storage_failed", error=error)
                await asyncio.sleep(STORAGE_RETRY)
            else:
                return

    async def erase_caller(self, caller_id: str) -> None:
        """Delete the work of a caller, which has ended. Raises `StorageError`."""
        await self._open_engine_if_needed()
        if self._engine is not None:
            await self._engine.delete_owned(caller_id)

    async def cancel(self, response_id: str, caller_id: str) -> None:
        """Cancel a response that is queued or running, here or at another gateway. Raises `StorageError`."""
        # Stored for the gateway that runs it, or takes it over.
        if not await self._store.request_cancel(response_id, caller_id):
            return
        if self._runs.has(response_id):
            self._runs.cancel(response_id)
        elif (record := await self._store.get(response_id, caller_id)) is not None:
            await self.cancel_queued(record)

    @property
    def running_count(self) -> int:
        """How many background responses run in this gateway."""
        return self._runs.background_count

    async def count_queued(self) -> int:
        """Return how many responses are queued, at all gateways."""
        return await self._engine.count_queued() if self._engine is not None else 0

    async def delete_older_than(self, before: float) -> None:
        if self._engine is not None:
            await self._engine.delete_older_than(before)

    async def _run_response(self, response_id: str, rebuild_input: JSONObject, checkpoints: Checkpoints) -> None:
        """Do the work of the engine. Raises `WorkTakenOverError` if another gateway is to do the rest."""
        if self.is_draining:
            raise WorkTakenOverError
        try:
            fresh = self._submitted_runs.pop(response_id, None)
            # What another process started continues in the trace of its request.
            with _open_resume_span(response_id, rebuild_input) if fresh is None else tracing.NOOP_SPAN:
                live = fresh or await self._rebuild_run(response_id, rebuild_input)
                if live is None:
                    return
                if fresh is None:
                    live.run.retry_model_for(self._model_wait, can_restart=True)
                live.make_durable(CheckpointedSteps(checkpoints), self._store)
                await self._runs.run_until_stored(live)
        except Exception as error:
            # The outer boundary: without it the response would stay unfinished.
            log.error("gateway.background_failed", response=response_id, error=f"{type(error).__name__}: {error}")
            await self._fail_response(response_id, str(rebuild_input["caller_id"]), ENDED_TEXT)
            return
        if live.state is RunState.HANDED_OVER:
            raise WorkTakenOverError

    async def _rebuild_run(self, response_id: str, rebuild_input: JSONObject) -> LiveResponse | None:
        """Rebuild a run of another process. None: it has finished, is deleted, or failed just now."""
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
                    response_id, str(rebuild_input["caller_id"]), f"The response could not be gone on with: {error}"
                )
                return None
            if live is not None:
                self._metrics.recovered.values[()] += 1
                log.info("gateway.recovered", response=response_id)
            return live

    async def watch_cancel_requests(self) -> None:
        """Cancel runs of this gateway that another one was asked to cancel. Runs until it is cancelled."""
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
        """Take over orphans and end stale work, again and again. Runs until draining, or until it is cancelled."""
        looks = 0
        while not self.is_draining:
            try:
                await self._open_engine_if_needed()
                await self.take_over_orphans()
                if looks % STOPPED_LOOKS == 0:
                    await self._resume_stopped_runs()
                if self._stale_runs or looks % CLEANUP_LOOKS == 0:
                    await self._end_stale_runs()
                looks += 1
            except StorageError as error:
                log.warning("gateway.storage_failed", error=error)
                await asyncio.sleep(STORAGE_RETRY)
            await asyncio.sleep(TAKE_OVER_INTERVAL)

    async def take_over_orphans(self) -> None:
        """Check once for orphans, and continue or fail those whose gateway has been missing long enough."""
        orphans = await self._store.find_orphans()
        missing = set(orphans.values())
        self._missing_checks = Counter({gateway_id: self._missing_checks[gateway_id] + 1 for gateway_id in missing})
        due = {
            response_id: gateway_id
            for response_id, gateway_id in orphans.items()
            if self._missing_checks[gateway_id] >= self._checks_before_takeover
            and not self._runs.has(response_id)
            and response_id not in self._unreadable
        }
        if not due:
            return
        reasons = dict.fromkeys(due, STOPPED_TEXT)
        if self._engine is not None:
            reasons = await self._take_over_runs(self._engine, due)
        for record in await self._store.read_orphans() if reasons else ():
            if record.id in reasons:
                await self._fail_orphan(record, reasons[record.id])

    async def _fail_orphan(self, record: StoredResponse, reason: str) -> None:
        try:
            await self._release_unstarted(record, await self._read_stage(record.id))
            await end_response(self._store, record, "failed", reason)
        except StorageError:
            raise
        except Exception as error:
            # What is stored of it cannot be read. It stays as it is, and does not keep others from being taken over.
            self._unreadable.add(record.id)
            log.error("gateway.not_recovered", response=record.id, reason=repr(error))

    async def _resume_stopped_runs(self) -> None:
        """Continue unfinished responses of this gateway that nothing here works on, if two checks in a row find them.

        This gateway is alive, so they are no orphans, and no other gateway looks after them.
        """
        busy = self._starting | self._submitted_runs.keys() | self._unreadable
        stopped = {
            response_id: caller_id
            for response_id, caller_id in (await self._store.find_assigned()).items()
            if response_id not in busy and not self._runs.is_working_on(response_id)
        }
        self._stopped_checks = Counter({each: self._stopped_checks[each] + 1 for each in stopped})
        due = [each for each, checks in self._stopped_checks.items() if checks > 1]
        statuses = {} if self._engine is None or not due else await self._engine.read_statuses(due)
        for response_id in due:
            work = statuses.get(response_id, WorkStatus(stage="unknown"))
            await self._resume_stopped(response_id, stopped[response_id], work)

    async def _resume_stopped(self, response_id: str, caller_id: str, work: WorkStatus) -> None:
        """Continue one response that two checks have found stopped. `work`: what the engine has of it."""
        if self._engine is None or work.stage in {"ended", "unknown"}:
            await self._fail_response(response_id, caller_id, ENDED_TEXT, work.stage)
        elif work.stage == "running" and work.executor != executor_name(self._store.gateway_id):
            # Its executor took it from the queue, and has not assigned it to itself. Perhaps it is dead.
            gateway_id = executor_number(work.executor)
            if gateway_id is not None:
                await self._store.assign_gateway(response_id, gateway_id)
        elif work.stage == "running" and work.is_damaged:
            if self._stopped_checks[response_id] > DAMAGED_LOOKS:
                await self._engine.cancel(response_id)
                await self._fail_response(response_id, caller_id, DAMAGED_TEXT)
            else:
                log.error("gateway.run_stopped", response=response_id)
                await self._engine.resume(response_id)

    async def _end_stale_runs(self) -> None:
        """Cancel engine work whose response has finished.

        A gateway that dies between the two leaves such work, which would never end and never be deleted. A gateway
        that is alive ends it in a moment, so it is cancelled only if two checks in a row find it.
        """
        if self._engine is None:
            return
        started = {work_id for work_id in await self._engine.list_started() if not self._runs.has(work_id)}
        stale = started - await self._store.find_unfinished(started) if started else set()
        for work_id in stale & self._stale_runs:
            await self._engine.cancel(work_id)
            log.info("gateway.cleared_away", response=work_id)
        self._stale_runs = stale - self._stale_runs

    async def _take_over_runs(self, engine: WorkEngine, orphans: Mapping[str, int | None]) -> dict[str, str]:
        """Have the engine continue the work of orphans. Returns those that cannot be continued, with the reason."""
        failed: dict[str, str] = {}
        executors: set[str] = set()
        damaged: Counter[str] = Counter()
        for response_id, work in (await engine.read_statuses(orphans)).items():
            if work.is_other_version and work.stage in {"running", "waiting"}:
                # A gateway of that version may be alive, and has the time to take it first.
                if self._missing_checks[orphans[response_id]] >= self._checks_before_takeover * OTHER_VERSION_LOOKS:
                    await engine.cancel(response_id)
                    failed[response_id] = OTHER_VERSION_TEXT
            elif work.stage == "running" and work.is_damaged:
                damaged[response_id] = self._damaged_checks[response_id] + 1
                if damaged[response_id] >= DAMAGED_LOOKS:
                    await engine.cancel(response_id)
                    failed[response_id] = DAMAGED_TEXT
            elif work.stage == "running" and work.executor == executor_name(orphans[response_id] or 0):
                executors.add(work.executor)
            elif work.stage == "running":
                # Its executor started the work and died before it could assign the response to itself.
                gateway_id = executor_number(work.executor)
                if gateway_id is not None:
                    await self._store.assign_gateway(response_id, gateway_id)
            elif work.stage != "waiting":
                failed[response_id] = DAMAGED_TEXT if work.is_damaged else STOPPED_TEXT
        self._damaged_checks = damaged
        for executor in executors:
            count = await engine.take_over(executor)
            self._metrics.taken_over.values[()] += count
            log.info("gateway.took_over", executor=executor, responses=count)
        return failed

    async def _fail_response(self, response_id: str, caller_id: str, reason: str, stage: Stage = "running") -> None:
        """Fail a response. `stage`: of its work; not read here, where DBOS may take that for a step of the work."""
        record = await self._store.get(response_id, caller_id)
        if record is not None:
            await self._release_unstarted(record, stage)
            await end_response(self._store, record, "failed", reason)
            log.error("gateway.not_recovered", response=response_id, reason=reason)

    async def _read_stage(self, response_id: str) -> Stage:
        if self._engine is None:
            return "unknown"
        return (await self._engine.read_statuses([response_id]))[response_id].stage
