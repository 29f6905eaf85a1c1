"""Work that survives, kept by DBOS: embedded on SQLite, or shared by many processes on one PostgreSQL.

Everything that is peculiar to DBOS is in this file: values are JSON, never pickles; every process is an executor of
its own; the version of the work is ours to change; and nobody but us takes over what a dead executor held.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy
from dbos import DBOS, DBOSConfig, Serializer, SetEnqueueOptions, SetWorkflowID, _serialization
from dbos import error as errors
from dbos._core import ActiveWorkflowById
from dbos._dbos import _get_dbos_instance
from dbos._schemas.system_database import SystemSchema

from holodeck.durable.base import DamagedWorkError, JSONObject, Stage, Work, WorkStatus, WorkTakenOverError
from holodeck.durable.dbos_sqlite_compat import install_clock
from holodeck.lib import log
from holodeck.lib.errors import ExecutionError, StorageError
from holodeck.lib.limits import DELETE_BATCH, SQLITE_BUSY_SECONDS, STORE_RETRY_PAUSE
from holodeck.lib.system.files import create_private_file, draft_of, remove_stale_drafts, warn_if_waiting

# A step holds one for a millisecond.
DURABLE_CONNECTIONS = 8
# Seconds for a number on a dashboard; the others must not wait for a database that hangs.
DURABLE_COUNT_WAIT = 2.0
# Seconds for the engine to end; its threads may wait for a database that does not answer.
DURABLE_CLOSE_WAIT = 5.0
# Seconds between two looks at what waits for room.
DURABLE_POLL = 0.5
# Deaths of the process with the same run under way, before the run is thought to cause them.
MAX_DURABLE_ATTEMPTS = 100


WORK_VERSION = "holodeck-1"
"""Changed only when the order of the steps of a run changes: work of another version is not picked up."""
_APPLICATION = "holodeck"
_QUEUE = "holodeck"
SCHEMA = "holodeck_work"
_ERROR_KEY = "$error"
_MAX_PRIORITY = 2**31 - 1  # DBOS counts no further; until then nobody has been without work for years
_EXPECTED_LOG_LINE = re.compile(
    r"Asyncio task cancelled|.* is no longer owned by this execution|.*: DBOS Error \d+: .* was cancelled"
    r"|Could not connect to postgres database to verify existence of "
)
"""How its log speaks of what is no trouble: a run that was cancelled, deleted or left to another; a database beside
ours to which our user has no access, and in which nothing is needed."""
_INSUFFICIENT_PRIVILEGE = "42501"
STAGES: dict[str, Stage] = {"ENQUEUED": "waiting", "DELAYED": "waiting", "PENDING": "running"}


def application_version(group: str) -> str:
    """Versions belong to one circle each: DBOS lets no two share one."""
    return f"{WORK_VERSION} {group}".rstrip(" ")


_open_engines: list[DBOSEngine] = []  # DBOS has one instance for each process, and so have we


class DBOSEngine:
    """One executor. `url` is that of SQLAlchemy for a SQLite file, or of PostgreSQL.

    `group`: the executor shares its work with those of the same circle, and with nobody else. The one without a name
    has a queue in which work waits for room.
    """

    def __init__(self, url: str, *, executor: str, max_running: int, group: str = "") -> None:
        self._url = url
        self._group = group
        self._executor = executor
        self._max_running = max_running
        self._work: Work | None = None
        self._running_here: set[str] = set()
        """What was begun here, or is about to be."""
        self._slots: AbstractAsyncContextManager[None] = nullcontext() if group else asyncio.Semaphore(max_running)
        self._tasks: set[asyncio.Task[None]] = set()
        self._count_task: asyncio.Task[int] | None = None

    async def open(self, work: Work) -> None:
        """Raises `StorageError` when the database cannot be had."""
        if _open_engines:
            raise StorageError("Durable runs are kept for one gateway in a process, and this process has one already.")
        self._work = work
        redirect_dbos_log()
        install_clock()
        refuse_other_serializers()
        await asyncio.to_thread(_prepare_database, self._url)  # making it takes a while
        config: DBOSConfig = {
            "name": f"{_APPLICATION}-{self._group}".rstrip("-"),
            "system_database_url": self._url,
            "dbos_system_schema": SCHEMA,
            "sys_db_pool_size": DURABLE_CONNECTIONS,
            "application_version": application_version(self._group),
            "executor_id": self._executor,
            "serializer": JSONSerializer(),
            "log_level": "WARNING",  # below it stands an advertisement
            "enable_otlp": False,
            "use_listen_notify": False,  # nothing here waits for its messages, and listening costs a connection
        }
        _open_engines.append(self)
        try:
            launched = DBOS(config=config)
            if not self._group:
                _limit_all_queues(launched, self._max_running)
            DBOS.launch()  # here, so that work is done on this event loop
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

    async def submit(self, work_id: str, work_input: JSONObject, *, queue_position: int = 1) -> bool:
        is_here = len(self._running_here) < self._max_running or bool(self._group)
        if is_here:
            self._running_here.add(work_id)
        try:
            if is_here and not self._group and await asyncio.to_thread(_has_enqueued_work):
                self._running_here.discard(work_id)
                is_here = False
            with SetWorkflowID(work_id):
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
        if work_ids:
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
        """Whether this executor has taken work and does not do it: DBOS could neither read it nor note its end."""
        return stage == "running" and executor == self._executor and work_id not in self._running_here

    async def list_started(self) -> list[str]:
        begun = await DBOS.list_workflows_async(status="PENDING", load_input=False, load_output=False)
        return [each.workflow_id for each in begun]

    async def take_over(self, executor: str) -> int:
        handles = await asyncio.to_thread(DBOS._recover_pending_workflows, [executor])
        return len(handles)

    async def cancel(self, work_id: str) -> None:
        await DBOS.cancel_workflow_async(work_id)

    async def delete_older_than(self, before: float) -> int:
        gone, until = 0, datetime.fromtimestamp(before, UTC).isoformat()
        while True:
            old = await DBOS.list_workflows_async(
                completed_before=until, limit=DELETE_BATCH, load_input=False, load_output=False
            )
            if not old:
                return gone
            await DBOS.delete_workflows_async([each.workflow_id for each in old])
            gone += len(old)

    async def count_queued(self) -> int:
        """Raises `StorageError` when the database does not answer at once: DBOS itself would ask it for ever."""
        if self._count_task is None or self._count_task.done():
            self._count_task = asyncio.create_task(_count_queued(), name="count what waits")
        await asyncio.wait({self._count_task}, timeout=DURABLE_COUNT_WAIT)
        if not self._count_task.done():
            raise StorageError("What waits cannot be counted: the database does not answer.")
        return self._count_task.result()

    async def close(self) -> None:
        if self not in _open_engines:
            return
        _open_engines.remove(self)
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def destroy() -> None:
            DBOS.destroy()
            with suppress(RuntimeError):  # the loop may not have waited for it
                loop.call_soon_threadsafe(done.set)

        # Not in the loop's own threads: DBOS made them its own, and takes them with it.
        threading.Thread(target=destroy, name="durable end", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(DURABLE_CLOSE_WAIT):
                await done.wait()
        loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="holodeck"))

    async def run_work(self, work_id: str, work_input: JSONObject) -> JSONObject | None:
        """One piece of work, to its end. Cancellation leaves it to somebody else."""
        assert self._work is not None  # noqa: S101 - nothing is begun before `open`
        checkpoints = _Checkpoints()
        self._running_here.add(work_id)
        try:
            async with self._slots:  # two that look for work at the same moment may each have found some
                return await self._work(work_id, work_input, checkpoints)
        finally:
            self._running_here.discard(work_id)
            if checkpoints.is_broken and self in _open_engines:
                again = self._resume_later(work_id)  # not as a step of the work itself, so in a context of its own
                task = asyncio.create_task(again, name=f"again {work_id}", context=contextvars.Context())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _resume_later(self, work_id: str) -> None:
        """Go on with work that could not be kept, once it can."""
        while self in _open_engines:
            await asyncio.sleep(STORE_RETRY_PAUSE)
            try:
                await DBOS.resume_workflow_async(work_id)
            except Exception as error:
                log.debug("durable.not_resumed", work=work_id, error=first_line(error))
            else:
                return


@DBOS.workflow(name="holodeck.work", max_recovery_attempts=MAX_DURABLE_ATTEMPTS)
async def _run_work(work_id: str, work_input: dict[str, Any]) -> JSONObject | None:
    return await _open_engines[-1].run_work(work_id, work_input)


class _AllActiveWork(ActiveWorkflowById):
    """What is being done in this process, wherever it waited before: each queue counts only its own otherwise."""

    def count_for_queue(self, queue_name: str) -> int:
        with self._lock:
            return sum(len(buckets) for buckets in self._m.values())


def _limit_all_queues(dbos: DBOS, max_running: int) -> None:
    """Take nothing from a queue without room for it, so that it is done by who has room.

    There are two: ours, and that of DBOS itself, in which the work of a process that is gone waits.
    """
    dbos._active_workflows_set = _AllActiveWork()
    dbos._registry.get_internal_queue()._worker_concurrency = max_running


class _Checkpoints:
    def __init__(self) -> None:
        self.is_broken = False
        """True when a step could not be kept; the work is begun again later, and goes on before that step."""

    async def step(self, name: str, work: Callable[[], Awaitable[JSONObject]]) -> JSONObject:
        own: list[Exception] = []
        is_replayed = True

        async def run() -> JSONObject:
            nonlocal is_replayed
            is_replayed = False
            try:
                return await work()
            except Exception as error:
                own.append(error)
                raise

        try:
            return await DBOS.run_step_async({"name": name}, run)
        except (errors.DBOSWorkflowConflictIDError, errors.DBOSWorkflowCancelledError) as error:
            raise WorkTakenOverError(str(error)) from error
        except StepFailedError:
            raise
        except Exception as error:
            if own:
                raise own[0] from None
            # DBOS raises these for a form or a value that is not read; a database that is away is an error of its own.
            if is_replayed and isinstance(error, TypeError | ValueError):
                log.error("durable.damaged", step=name, error=first_line(error))
                raise DamagedWorkError(
                    f"What is kept of this run is damaged: its step '{name}' cannot be read."
                ) from error
            log.warning("durable.not_kept", step=name, error=first_line(error))
            self.is_broken = True
            raise WorkTakenOverError(first_line(error)) from error


class StepFailedError(ExecutionError):
    """A step failed in an earlier attempt at the work, and so it is never done again."""


async def _count_queued() -> int:
    try:
        return await asyncio.to_thread(_count_enqueued)
    except Exception as error:
        raise StorageError(f"What waits cannot be counted: {first_line(error)}") from error


def _count_enqueued() -> int:
    """DBOS itself only lists them, and there may be very many."""
    work = SystemSchema.workflow_status
    asked = sqlalchemy.select(sqlalchemy.func.count()).select_from(work).where(work.c.status == "ENQUEUED")
    with _get_dbos_instance()._sys_db.engine.connect() as connection:
        return int(connection.execute(asked).scalar_one())


def _has_enqueued_work() -> bool:
    """Whether work waits that we can do; that of other versions waits for them."""
    work = SystemSchema.workflow_status
    asked = (
        sqlalchemy.select(sqlalchemy.literal(1))
        .select_from(work)
        .where(work.c.queue_name == _QUEUE, work.c.status == "ENQUEUED", work.c.application_version == WORK_VERSION)
    )
    with _get_dbos_instance()._sys_db.engine.connect() as connection:
        return connection.execute(asked.limit(1)).first() is not None


class JSONSerializer(Serializer):
    """Plain values only. An exception is kept as its words."""

    def serialize(self, data: Any) -> str:
        plain = {_ERROR_KEY: first_line(data)} if isinstance(data, BaseException) else data
        return orjson.dumps(plain, default=str, option=orjson.OPT_NON_STR_KEYS).decode()

    def deserialize(cls, serialized_data: str) -> Any:  # noqa: N805 - the name that its base gives it
        value = orjson.loads(serialized_data)
        return StepFailedError(value[_ERROR_KEY]) if isinstance(value, dict) and _ERROR_KEY in value else value

    def name(self) -> str:
        return "holodeck_json"


class _RefusedSerializer(JSONSerializer):
    """Stands where DBOS has a form that is not ours: what a row says it has in that form is never read.

    Whatever DBOS writes into such a row is JSON, so that it can end the work as failed.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def deserialize(cls, serialized_data: str) -> Any:  # noqa: N805 - the name that its base gives it
        raise ValueError(f"the row is in the form '{cls.name()}', which HoloDeck neither writes nor reads")

    def name(self) -> str:
        return self._name


def refuse_other_serializers() -> None:
    """Have DBOS read rows in our form only.

    Each row names its own form, and for `py_pickle` DBOS runs whatever code the row holds, whichever serializer it was
    given. It has no setting against that, so the forms themselves are replaced, for the whole process.
    """
    for form in ("DBOSDefaultSerializer", "DBOSPortableJSON"):
        refused = _RefusedSerializer(getattr(_serialization, form).name())
        setattr(_serialization, form, refused)


class _DBOSLogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        said = (record.getMessage().splitlines() or [""])[0]  # what follows are statements, with prompts in them
        said += f": {first_line(record.exc_info[1])}" if record.exc_info and record.exc_info[1] else ""
        if _EXPECTED_LOG_LINE.match(said) is None:
            (log.error if record.levelno >= logging.ERROR else log.warning)("durable.engine", message=said)


def redirect_dbos_log() -> None:
    """DBOS writes to the terminal unless its logger has a handler."""
    logger = logging.getLogger("dbos")
    logger.propagate = False
    if not any(isinstance(handler, _DBOSLogHandler) for handler in logger.handlers):
        logger.addHandler(_DBOSLogHandler())


def _prepare_database(url: str) -> None:
    """Have a file that is whole, if it is one. Writers do not stop readers, and a commit is one write to the disk."""
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        return
    path = Path(url.removeprefix(prefix))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_drafts(path)
        if not path.exists():
            _create_database(path)
        _wait_writable(path)
    except Exception as error:  # of the disk, of SQLite, or of DBOS in its own words
        raise StorageError(f"Durable runs cannot be kept in {path}: {first_line(error)}") from error


def _wait_writable(path: Path) -> None:
    """Wait until the file can be written to. DBOS would wait as well, without a word and in everybody's way."""
    connection = sqlite3.connect(path, timeout=SQLITE_BUSY_SECONDS, isolation_level=None)
    try:
        with warn_if_waiting(path, timeout=SQLITE_BUSY_SECONDS):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        raise StorageError("another process keeps it locked. Stop that one.") from None
    finally:
        connection.close()


def _create_database(path: Path) -> None:
    """Make the file whole or not at all: DBOS makes its tables one by one, and cannot go on with some of them."""
    with draft_of(path) as draft:
        create_private_file(draft)
        DBOS.migrate(f"sqlite:///{draft}", schema=SCHEMA)
        with suppress(FileExistsError):  # another process was first
            os.link(draft, path)


def _open_failure(error: Exception) -> str:
    """Why the engine did not open, with what to do where that is known."""
    if getattr(getattr(error, "orig", None), "sqlstate", None) == _INSUFFICIENT_PRIVILEGE:
        return (
            "the user of the database lacks a privilege. "
            f"Grant it CREATE on the database, or make the schema '{SCHEMA}' for it."
        )
    return first_line(error)


def first_line(error: BaseException | None) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
