"""Driver of a store in PostgreSQL, shared by several gateways.

The server may be restarted at any time without the loss of an acknowledged write: `PostgresPool` repeats a job whose
connection was lost, where the job is repeatable. Whether an acknowledged write survives a loss of power is a setting of
the server, `synchronous_commit`.

Responses are stored by group commit: see `GroupWriter`. Jobs of several statements have a connection and a transaction
of their own each, because they wait for locks of rows, and would make their neighbours wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from typing import TypeVar
from weakref import WeakValueDictionary

from holodeck.lib.errors import StorageError
from holodeck.lib.limits import POSTGRES_TIMEOUT
from holodeck.lib.record import record
from holodeck.lib.tasks import TaskSet
from holodeck.storage.jobs import Job
from holodeck.storage.postgres.pool import PostgresPool
from holodeck.storage.write_health import STORE_PROBE, WriteHealth, make_probe_data

T = TypeVar("T")

# Statements that are written in one group: the first of them waits for all.
GROUP_COMMIT_STATEMENTS = 64

# "holq" in ASCII. The class of these locks, apart from every other advisory lock in the database.
QUOTA_LOCKS = 0x686F6C71
_LOCK_CALLER = f"SELECT pg_advisory_xact_lock({QUOTA_LOCKS}, hashtext($1))"
"""Serializes the insertions of one caller on all gateways: concurrent ones would all see the same count."""


@record
class _Write:
    """A statement that waits to be written. The future gets how many rows it has changed."""

    sql: str
    values: tuple[object, ...]
    changed: asyncio.Future[int]


class GroupWriter:
    """Group commit of single statements. Owns a task while some wait, which `close` waits for.

    While one group is written, the statements of the next one gather. Those of the same text are written in one round
    trip and one transaction. If the server refuses that, each of them is written by itself, so that only those fail
    that cannot be written. A caller that is cancelled does not stop its statement.
    """

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool
        self._waiting: list[_Write] = []
        self._is_writing = False
        """Whether a task will see what is added to the waiting statements."""
        self._tasks = TaskSet()

    async def run(self, sql: str, values: tuple[object, ...]) -> int:
        """Execute a repeatable statement, and return how many rows it has changed, once committed.

        Raises `StorageError`.
        """
        changed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(sql=sql, values=values, changed=changed))
        if not self._is_writing:
            self._is_writing = True
            # With an empty context: it is no part of the log of a request.
            self._tasks.start(self._write_waiting(), name="storage writer", context=Context())
        return await changed

    async def close(self) -> None:
        """Wait until all statements are written or have failed, each within the timeouts of the pool."""
        await self._tasks.wait()

    async def _write_waiting(self) -> None:
        while self._waiting:
            writes, self._waiting = self._waiting[:GROUP_COMMIT_STATEMENTS], self._waiting[GROUP_COMMIT_STATEMENTS:]
            groups: dict[str, list[_Write]] = {}
            for write in writes:
                groups.setdefault(write.sql, []).append(write)
            for group in groups.values():
                await self._write_group(group)
        self._is_writing = False

    async def _write_group(self, group: list[_Write]) -> None:
        outcomes: Sequence[int | Exception] | None = None
        try:
            if len(group) > 1:
                outcomes = await self._pool.run_group(group[0].sql, [write.values for write in group])
        except Exception as error:
            outcomes = [error] * len(group)
        if outcomes is None:
            outcomes = [await self._write_alone(write) for write in group]
        for write, outcome in zip(group, outcomes, strict=True):
            # The caller may have been cancelled.
            if write.changed.done():
                continue
            if isinstance(outcome, Exception):
                write.changed.set_exception(outcome)
                # Marks the exception as retrieved: a caller that is cancelled now does not retrieve it.
                write.changed.exception()
            else:
                write.changed.set_result(outcome)

    async def _write_alone(self, write: _Write) -> int | Exception:
        try:
            return await self._pool.run(lambda db: db.write_counted(write.sql, *write.values))
        except Exception as error:
            # One that is a bug as well: without this task, all callers would wait for ever.
            return error


class PostgresDriver:
    """`Driver` of a PostgreSQL database. It connects with the first job."""

    has_writing_queries = True
    search_batch = 16
    is_shared = True
    # While the server restarts, all gateways are missing for a moment.
    checks_before_takeover = 3
    # A server notices by itself what its own log has lost.
    loss = ""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url)
        self.gateway_id = self._pool.liveness.number
        self._group_writer = GroupWriter(self._pool)
        self._write_health = WriteHealth(self._probe)
        self._pool.on_failure = self._write_health.report_failure
        # One lock per caller; an entry ends with the last request that refers to its lock.
        self._caller_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def unavailable_reason(self) -> str:
        # The state of a server is not known without I/O, apart from its latest failure.
        return "" if self._write_health.failure is None else str(self._write_health.failure)

    def read(self, job: Job[T], *, confirms_missing: bool = False) -> Awaitable[T]:
        return self._pool.run(job)

    def write(
        self,
        job: Job[T],
        *,
        is_one_statement: bool = False,
        is_repeatable: bool = True,
        confirms_missing: bool = False,
        exclusive_to: str | None = None,
    ) -> Awaitable[T]:
        if exclusive_to is not None:
            return self._write_exclusively(job, exclusive_to, is_repeatable=is_repeatable)
        return self._pool.run(job, is_repeatable=is_repeatable, has_transaction=not is_one_statement)

    def write_statement(self, sql: str, values: tuple[object, ...]) -> Awaitable[int]:
        return self._group_writer.run(sql, values)

    def write_inline(self, job: Job[bool], *, is_one_statement: bool) -> bool:
        return False

    async def require_usable(self) -> None:
        await self._write_health.require_writable()

    async def check_health(self) -> bool:
        await self._pool.run(lambda db: db.write("SELECT 1"), attempts=1)
        await self._write_health.require_writable()
        return not self._pool.liveness.is_failing

    async def close(self) -> None:
        await self._write_health.close()
        await self._group_writer.close()
        await self._pool.close()

    async def _write_exclusively(self, job: Job[T], caller_id: str, *, is_repeatable: bool) -> T:
        lock = (_LOCK_CALLER, caller_id)
        async with self._hold_caller_lock(caller_id):
            return await self._pool.run(job, is_repeatable=is_repeatable, has_transaction=True, lock=lock)

    @asynccontextmanager
    async def _hold_caller_lock(self, caller_id: str) -> AsyncIterator[None]:
        """Serialize the exclusive jobs of a caller in this process.

        Otherwise they would wait for `_LOCK_CALLER`, each with a connection of the pool. Raises `StorageError` after
        `POSTGRES_TIMEOUT` seconds.
        """
        lock = self._caller_locks.setdefault(caller_id, asyncio.Lock())
        try:
            async with asyncio.timeout(POSTGRES_TIMEOUT):
                await lock.acquire()
        except TimeoutError:
            raise StorageError(
                "The database cannot be used: it does not answer earlier requests of this caller."
            ) from None
        try:
            yield
        finally:
            lock.release()

    async def _probe(self) -> None:
        data = make_probe_data()
        await self._pool.run(lambda db: db.write(STORE_PROBE, data), attempts=1)
