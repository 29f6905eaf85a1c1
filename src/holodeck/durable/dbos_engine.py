"""`WorkEngine` on DBOS, embedded on a SQLite file or shared by several processes on one PostgreSQL server.

Decisions about DBOS, all of which are in this file:

- Values are stored as JSON, never as pickles, and rows in any other format are refused.
- Each process is an executor with a name of its own. DBOS does not take over the work of a dead executor by itself;
  the gateways do, with `take_over`.
- The version of the work is a constant of ours, not a hash of the source code.
- DBOS has one instance per process, so there is one open engine per process.
- Work runs on the event loop that called `open`. A step whose result cannot be stored ends the work in this process,
  and a task of the engine resumes it from the last stored step until that succeeds.
- The log of DBOS goes to ours, without lines that describe normal operation.
- A SQLite database is created completely or not at all: DBOS cannot continue a schema that is incomplete.
- Whatever DBOS raises where the engine is asked becomes a `StorageError` (`_raise_storage_errors`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

import orjson
import sqlalchemy
from dbos import DBOS, DBOSConfig, Serializer, SetEnqueueOptions, SetWorkflowID, _serialization
from dbos import error as errors
from dbos._core import ActiveWorkflowById
from dbos._dbos import _get_dbos_instance
from dbos._schemas.system_database import SystemSchema
from dbos._utils import INTERNAL_QUEUE_NAME

from holodeck.durable.base import DamagedWorkError, JSONObject, Stage, Work, WorkStatus, WorkTakenOverError
from holodeck.durable.dbos_database import SCHEMA, first_line, install_clock, prepare_database
from holodeck.lib import log
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.limits import DELETE_BATCH, STORE_RETRY_PAUSE
from holodeck.lib.tasks import TaskSet

# Connections of the pool of DBOS. A step uses one for a millisecond, so a few are enough for many runs.
DURABLE_CONNECTIONS = 8
# Seconds that a count of queued work may take: the other metrics must not wait for a database that hangs.
DURABLE_COUNT_WAIT = 2.0
# Seconds that closing the engine may take: its threads may wait for a database that does not answer.
DURABLE_CLOSE_WAIT = 5.0
# Seconds between two polls of the queue.
DURABLE_POLL = 0.5
# Deaths of a process with the same work running, after which the work counts as their cause and is not retried.
MAX_DURABLE_ATTEMPTS = 100

WORK_VERSION = "holodeck-1"
"""Changed only when the order of the steps of a run changes: executors do not run work of another version."""
_APPLICATION = "holodeck"
_QUEUE = "holodeck"
# A connection to PostgreSQL without an answer counts as lost after some seconds, as those of the store do: a step whose
# acknowledgement is lost on the network would otherwise wait for hours.
_CONNECT_ARGS = {
    "application_name": "holodeck",
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    # Milliseconds.
    "tcp_user_timeout": 10_000,
}
_ERROR_KEY = "$error"
# In the place of an executor: the work has stopped, and is nobody's.
_NO_EXECUTOR = "released"
# The largest priority of DBOS. Queue positions reach it only after years in which the queue is never empty.
_MAX_PRIORITY = 2**31 - 1
_EXPECTED_LOG_LINE = re.compile(
    r"Asyncio task cancelled|.* is no longer owned by this execution|.*: DBOS Error \d+: .* was cancelled"
    r"|Could not connect to postgres database to verify existence of "
)
"""Lines in the log of DBOS that describe normal operation: a run that was cancelled, deleted or taken over; and a
database named `postgres` to which our user has no access, and which is not needed."""
_INSUFFICIENT_PRIVILEGE = "42501"
STAGES: dict[str, Stage] = {"ENQUEUED": "waiting", "DELAYED": "waiting", "PENDING": "running"}


class StepFailedError(ExecutionError):
    """A step failed in an earlier execution of the work. The failure is its stored result, so it is not repeated."""


def application_version(group: str) -> str:
    """Return the version of the work of a group: DBOS shares work between all executors of the same version."""
    return f"{WORK_VERSION} {group}".rstrip(" ")


# At most one: DBOS has one instance per process. `_run_work` is a module function, and finds its engine here.
_open_engines: list[DBOSEngine] = []


class DBOSEngine:
    """One executor, from `open` to `close`."""

    def __init__(self, url: str, *, executor: str, max_running: int, group: str = "") -> None:
        """`url` is a SQLAlchemy URL of a SQLite file, or a PostgreSQL URL.

        `group`: executors share work within one group only. The group without a name has a queue, and runs at most
        `max_running` works at once; in any other group all work starts at once.
        """
        self._url = url
        self._group = group
        self._executor = executor
        self._max_running = max_running
        self._work: Work | None = None
        self._running_here: set[str] = set()
        """Work that runs in this process, or is about to start."""
        self._slots: AbstractAsyncContextManager[None] = nullcontext() if group else asyncio.Semaphore(max_running)
        self._tasks = TaskSet()
        self._count_task: asyncio.Task[int] | None = None
        self._default_executor: ThreadPoolExecutor | None = None
        """The executor of the event loop before DBOS replaced it by its own."""

    @property
    def _application_name(self) -> str:
        return f"{_APPLICATION}-{self._group}".rstrip("-")

    async def open(self, work: Work) -> None:
        """Create or migrate the database, and start to run work. Raises `StorageError`."""
        if _open_engines:
            raise StorageError("A process can have one engine for durable runs, and this process has one already.")
        self._work = work
        redirect_dbos_log()
        install_clock()
        refuse_other_serializers()
        await asyncio.to_thread(prepare_database, self._url)
        config: DBOSConfig = {
            "db_engine_kwargs": {"connect_args": {} if self._url.startswith("sqlite") else _CONNECT_ARGS},
            "name": self._application_name,
            "system_database_url": self._url,
            "dbos_system_schema": SCHEMA,
            "sys_db_pool_size": DURABLE_CONNECTIONS,
            "application_version": application_version(self._group),
            "executor_id": self._executor,
            "serializer": JSONSerializer(),
            # At INFO, DBOS logs an advertisement.
            "log_level": "WARNING",
            "enable_otlp": False,
            # No messages of DBOS are used here, and listening for them needs a connection.
            "use_listen_notify": False,
        }
        _open_engines.append(self)
        # There is no public way to read it. A loop of another kind gets a new one at the end.
        self._default_executor = getattr(asyncio.get_running_loop(), "_default_executor", None)
        try:
            launched = DBOS(config=config)
            if not self._group:
                _limit_all_queues(launched, self._max_running)
            # Not in a thread: DBOS runs work on the event loop that launches it.
            DBOS.launch()
            if not self._group:
                await DBOS.register_queue_async(
                    _QUEUE,
                    worker_concurrency=self._max_running,
                    polling_interval_sec=DURABLE_POLL,
                    on_conflict="always_update",
                )
        except Exception as error:
            await self.close()
            raise StorageError(f"Durable runs cannot be kept: {_open_failure(error)}") from error

    async def submit(self, work_id: str, work_input: JSONObject, *, queue_position: int = 1, owner: str = "") -> bool:
        is_here = len(self._running_here) < self._max_running or bool(self._group)
        if is_here:
            self._running_here.add(work_id)
        try:
            if is_here and not self._group and await asyncio.to_thread(_has_enqueued_work):
                self._running_here.discard(work_id)
                is_here = False
            with SetWorkflowID(work_id):
                DBOS.set_authentication(owner or None, None)
                if is_here:
                    await DBOS.start_workflow_async(_run_work, work_id, dict(work_input))
                else:
                    with SetEnqueueOptions(priority=min(queue_position, _MAX_PRIORITY)):
                        await DBOS.enqueue_workflow_async(_QUEUE, _run_work, work_id, dict(work_input))
        except BaseException as error:
            self._running_here.discard(work_id)
            if not isinstance(error, Exception):
                raise
            raise StorageError(f"The run cannot be kept: {first_line(error)}") from error
        return is_here

    async def read_statuses(self, work_ids: Collection[str]) -> dict[str, WorkStatus]:
        found = {work_id: WorkStatus(stage="unknown") for work_id in work_ids}
        if not work_ids:
            return found
        with _raise_storage_errors():
            listed = await DBOS.list_workflows_async(workflow_ids=list(work_ids), load_input=False, load_output=False)
        for each in listed:
            stage = STAGES.get(each.status, "ended")
            found[each.workflow_id] = WorkStatus(
                stage=stage,
                executor=each.executor_id or "",
                is_other_version=each.app_version != WORK_VERSION,
                is_damaged=each.status == "ERROR" or self._is_unreadable(each.workflow_id, stage, each.executor_id),
            )
        return found

    def _is_unreadable(self, work_id: str, stage: Stage, executor: str | None) -> bool:
        """Return whether this executor has the work and does not run it: DBOS could neither read nor end it."""
        return stage == "running" and executor == self._executor and work_id not in self._running_here

    async def has_steps(self, work_id: str) -> bool:
        with _raise_storage_errors():
            return await asyncio.to_thread(_has_steps, work_id)

    async def list_started(self) -> list[str]:
        with _raise_storage_errors():
            started = await DBOS.list_workflows_async(status="PENDING", load_input=False, load_output=False)
        return [each.workflow_id for each in started]

    async def take_over(self, executor: str) -> int:
        with _raise_storage_errors():
            return len(await asyncio.to_thread(DBOS._recover_pending_workflows, [executor]))

    async def adopt(self, work_id: str, executor: str) -> bool:
        # DBOS starts what is in its internal queue. It has no call for one work of another version or application.
        with _raise_storage_errors():
            return await asyncio.to_thread(
                _reassign,
                work_id,
                executor,
                status="ENQUEUED",
                owner_xid=None,
                started_at_epoch_ms=None,
                queue_name=INTERNAL_QUEUE_NAME,
                executor_id=self._executor,
                application_version=application_version(self._group),
                application_name=self._application_name,
            )

    async def resume(self, work_id: str) -> None:
        with _raise_storage_errors():
            await DBOS.resume_workflow_async(work_id)

    async def release(self, work_id: str) -> None:
        try:
            await asyncio.to_thread(_reassign, work_id, self._executor, executor_id=_NO_EXECUTOR)
        except Exception as error:
            # It is available anyway when this process has ended.
            log.warning("durable.not_released", work=work_id, error=first_line(error))

    async def cancel(self, work_id: str) -> None:
        with _raise_storage_errors():
            await DBOS.cancel_workflow_async(work_id)

    async def delete_older_than(self, before: float) -> int:
        total, until = 0, datetime.fromtimestamp(before, UTC).isoformat()
        while True:
            with _raise_storage_errors():
                old = await DBOS.list_workflows_async(
                    completed_before=until, limit=DELETE_BATCH, load_input=False, load_output=False
                )
                if not old:
                    return total
                await DBOS.delete_workflows_async([each.workflow_id for each in old])
            total += len(old)

    async def delete_owned(self, owner: str) -> None:
        while True:
            with _raise_storage_errors():
                owned = await DBOS.list_workflows_async(
                    user=owner, limit=DELETE_BATCH, load_input=False, load_output=False
                )
                if not owned:
                    return
                ids = [each.workflow_id for each in owned]
                await DBOS.cancel_workflows_async(ids)
                await DBOS.delete_workflows_async(ids)

    async def count_queued(self) -> int:
        """Count. Raises `StorageError` after `DURABLE_COUNT_WAIT` seconds without an answer: DBOS would retry for ever.

        A count that is late is not started again: later calls wait for the same one.
        """
        if self._count_task is None or self._count_task.done():
            self._count_task = self._tasks.start(_count_queued(), name="count queued work")
        counting = self._count_task
        await asyncio.wait({counting}, timeout=DURABLE_COUNT_WAIT)
        if not counting.done() or counting.cancelled():
            raise StorageError("Queued runs cannot be counted: the database does not answer.")
        return counting.result()

    async def close(self) -> None:
        """Stop DBOS and the tasks of the engine, within `DURABLE_CLOSE_WAIT` seconds for each of the two."""
        if self not in _open_engines:
            return
        _open_engines.remove(self)
        await self._tasks.close(DURABLE_CLOSE_WAIT)
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        # Before DBOS shuts its own one down: other code of this process uses threads as well.
        loop.set_default_executor(self._default_executor or ThreadPoolExecutor(thread_name_prefix="holodeck"))

        def destroy() -> None:
            DBOS.destroy()
            # The loop is closed by now if it did not wait for this.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        # Not in the default executor of the loop: DBOS has replaced it by one of its own, and shuts that down.
        threading.Thread(target=destroy, name="durable end", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(DURABLE_CLOSE_WAIT):
                await done.wait()

    async def run_work(self, work_id: str, work_input: JSONObject) -> JSONObject | None:
        """Run one work to its end. A cancellation ends it here, and another executor continues it."""
        assert self._work is not None  # noqa: S101 - no work starts before `open`
        checkpoints = _Checkpoints()
        self._running_here.add(work_id)
        try:
            # The two queues are polled independently, and may together start more than `max_running`.
            async with self._slots:
                return await self._work(work_id, work_input, checkpoints)
        finally:
            self._running_here.discard(work_id)
            # Work of a group is resumed by what started it.
            if checkpoints.is_broken and self in _open_engines and not self._group:
                # An empty context: in that of the work, DBOS would treat the resumption as a step of the work.
                self._tasks.start(self._resume_later(work_id), name=f"again {work_id}", context=contextvars.Context())

    async def _resume_later(self, work_id: str) -> None:
        """Resume work of which a step could not be stored, and retry until that succeeds or the engine closes."""
        while self in _open_engines:
            await asyncio.sleep(STORE_RETRY_PAUSE)
            try:
                await self.resume(work_id)
            except StorageError as error:
                log.debug("durable.not_resumed", work=work_id, error=error)
            else:
                return


@contextmanager
def _raise_storage_errors() -> Iterator[None]:
    """Raise a `StorageError` for whatever DBOS, its database layer or its drivers raise in the `with` block."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"The engine of durable runs cannot use its database: {first_line(error)}") from error


@DBOS.workflow(name="holodeck.work", max_recovery_attempts=MAX_DURABLE_ATTEMPTS)
async def _run_work(work_id: str, work_input: dict[str, Any]) -> JSONObject | None:
    return await _open_engines[-1].run_work(work_id, work_input)


class _AllActiveWork(ActiveWorkflowById):
    """Counts all work that runs in this process for every queue. The base class counts each queue separately."""

    def count_for_queue(self, queue_name: str) -> int:
        with self._lock:
            return sum(len(buckets) for buckets in self._m.values())


def _limit_all_queues(dbos: DBOS, max_running: int) -> None:
    """Dequeue work only while fewer than `max_running` works run here, so that the rest goes to other executors.

    There are two queues: ours, and the internal queue of DBOS, which has the work of dead executors.
    """
    dbos._active_workflows_set = _AllActiveWork()
    dbos._registry.get_internal_queue()._worker_concurrency = max_running


class _Checkpoints:
    def __init__(self) -> None:
        self.is_broken = False
        """True when the result of a step could not be stored. The work is resumed later, and repeats that step."""

    async def step(self, name: str, work: Callable[[], Awaitable[JSONObject]]) -> JSONObject:
        work_errors: list[Exception] = []
        is_replayed = True

        async def run() -> JSONObject:
            nonlocal is_replayed
            is_replayed = False
            try:
                return await work()
            except Exception as error:
                work_errors.append(error)
                raise

        try:
            return await DBOS.run_step_async({"name": name}, run)
        except (errors.DBOSWorkflowConflictIDError, errors.DBOSWorkflowCancelledError) as error:
            raise WorkTakenOverError(str(error)) from error
        except StepFailedError:
            raise
        except Exception as error:
            if work_errors:
                raise work_errors[0] from None
            # DBOS raises these for a stored value that cannot be read; a lost database raises other errors.
            if is_replayed and isinstance(error, TypeError | ValueError):
                log.error("durable.damaged", step=name, error=first_line(error))
                raise DamagedWorkError(
                    f"What is kept of this run is damaged: its step '{name}' cannot be read."
                ) from error
            log.warning("durable.not_kept", step=name, error=first_line(error))
            self.is_broken = True
            raise WorkTakenOverError(first_line(error)) from error

    async def store_note(self, name: str, value: JSONObject) -> None:
        try:
            # During a step this is one write of its own, which takes no position among the steps.
            await DBOS.set_event_async(name, dict(value))
        except (errors.DBOSWorkflowConflictIDError, errors.DBOSWorkflowCancelledError) as error:
            raise WorkTakenOverError(str(error)) from error
        except Exception as error:
            log.warning("durable.note_not_kept", note=name, error=first_line(error))

    async def find_note(self, name: str) -> JSONObject | None:
        assert DBOS.workflow_id is not None  # noqa: S101 - it is called during a step
        try:
            value = await DBOS.get_event_async(DBOS.workflow_id, name, timeout_seconds=0)
        except (TypeError, ValueError) as error:
            log.error("durable.damaged", note=name, error=first_line(error))
            return None
        except Exception as error:
            # As a step that cannot be stored: what was to be found may be there.
            self.is_broken = True
            raise WorkTakenOverError(first_line(error)) from error
        return value if isinstance(value, dict) else None


def _reassign(work_id: str, executor: str, **values: Any) -> bool:
    """Change the row of unfinished work, if it belongs to this executor, and return whether it did."""
    work = SystemSchema.workflow_status
    change = (
        sqlalchemy.update(work)
        .where(work.c.workflow_uuid == work_id)
        .where(work.c.status.in_(STAGES))
        .where(sqlalchemy.func.coalesce(work.c.executor_id, "") == executor)
        .values(**values)
    )
    with _get_dbos_instance()._sys_db.engine.begin() as connection:
        return connection.execute(change).rowcount > 0


def _has_steps(work_id: str) -> bool:
    steps = SystemSchema.operation_outputs
    query = sqlalchemy.select(sqlalchemy.literal(1)).select_from(steps).where(steps.c.workflow_uuid == work_id)
    with _get_dbos_instance()._sys_db.engine.connect() as connection:
        return connection.execute(query.limit(1)).first() is not None


async def _count_queued() -> int:
    try:
        return await asyncio.to_thread(_count_enqueued)
    except Exception as error:
        raise StorageError(f"Queued runs cannot be counted: {first_line(error)}") from error


def _count_enqueued() -> int:
    """Count queued work in the database. The API of DBOS can only list it, and it may be very much."""
    work = SystemSchema.workflow_status
    query = sqlalchemy.select(sqlalchemy.func.count()).select_from(work).where(work.c.status == "ENQUEUED")
    with _get_dbos_instance()._sys_db.engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def _has_enqueued_work() -> bool:
    """Return whether there is queued work of this version."""
    work = SystemSchema.workflow_status
    query = (
        sqlalchemy.select(sqlalchemy.literal(1))
        .select_from(work)
        .where(work.c.queue_name == _QUEUE, work.c.status == "ENQUEUED", work.c.application_version == WORK_VERSION)
    )
    with _get_dbos_instance()._sys_db.engine.connect() as connection:
        return connection.execute(query.limit(1)).first() is not None


class JSONSerializer(Serializer):
    """Serializes values as JSON. An exception is stored as the first line of its text."""

    def serialize(self, data: Any) -> str:
        plain = {_ERROR_KEY: first_line(data)} if isinstance(data, BaseException) else data
        return orjson.dumps(plain, default=str, option=orjson.OPT_NON_STR_KEYS).decode()

    def deserialize(cls, serialized_data: str) -> Any:  # noqa: N805 - the name in the base class
        value = orjson.loads(serialized_data)
        return StepFailedError(value[_ERROR_KEY]) if isinstance(value, dict) and _ERROR_KEY in value else value

    def name(self) -> str:
        return "holodeck_json"


class _RefusedSerializer(JSONSerializer):
    """Takes the place of a serializer of DBOS. It reads no value, and raises `ValueError` instead.

    It writes JSON, so that DBOS can store the failure of work whose row has the refused format.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def deserialize(cls, serialized_data: str) -> Any:  # noqa: N805 - the name in the base class
        raise ValueError(f"the row is in the form '{cls.name()}', which HoloDeck neither writes nor reads")

    def name(self) -> str:
        return self._name


def refuse_other_serializers() -> None:
    """Make DBOS refuse rows in any format but ours, for the rest of the process.

    Each row names its own format, and for `py_pickle` DBOS executes the code in the row, whichever serializer is
    configured. It has no setting against that, so its serializers are replaced.
    """
    for form in ("DBOSDefaultSerializer", "DBOSPortableJSON"):
        refused = _RefusedSerializer(getattr(_serialization, form).name())
        setattr(_serialization, form, refused)


class _DBOSLogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # The first line only: the lines after it are SQL statements with prompts in them.
        message = (record.getMessage().splitlines() or [""])[0]
        message += f": {first_line(record.exc_info[1])}" if record.exc_info and record.exc_info[1] else ""
        if _EXPECTED_LOG_LINE.match(message) is None:
            (log.error if record.levelno >= logging.ERROR else log.warning)("durable.engine", message=message)


def redirect_dbos_log() -> None:
    """Send the log of DBOS to ours. Without a handler of its logger, DBOS writes to the terminal."""
    logger = logging.getLogger("dbos")
    logger.propagate = False
    if not any(isinstance(handler, _DBOSLogHandler) for handler in logger.handlers):
        logger.addHandler(_DBOSLogHandler())


def _open_failure(error: Exception) -> str:
    """Return why the engine did not open, with a fix where one is known."""
    if getattr(getattr(error, "orig", None), "sqlstate", None) == _INSUFFICIENT_PRIVILEGE:
        return (
            "the user of the database lacks a privilege. "
            f"Grant it CREATE on the database, or make the schema '{SCHEMA}' for it."
        )
    return first_line(error)
