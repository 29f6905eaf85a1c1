"""A pool of connections to a PostgreSQL server that may be restarted at any time.

`PostgresPool` owns the pool of the driver and the liveness lock of this gateway. Both are opened, and the schema is
migrated, with the first job. A job that may be repeated is retried for a few seconds when the connection was lost
under it; every failure then becomes a `StorageError` whose text contains neither the URL, which has the password, nor
texts of the server, which may quote stored values.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.errors import ConfigError, StorageError
from holodeck.lib.extras import install_hint
from holodeck.lib.limits import POSTGRES_CLOSE_TIMEOUT, POSTGRES_TIMEOUT
from holodeck.lib.tasks import TaskSet
from holodeck.storage.jobs import Job, Row
from holodeck.storage.migrations import migrations_after

# Connections of one gateway. With those of durable runs, five gateways fit into PostgreSQL's default limit of 100.
POSTGRES_CONNECTIONS = 10
# Attempts at one job. With their pauses they span the second or two of a server's restart.
POSTGRES_ATTEMPTS = 6
# Seconds before the second attempt; doubled before each further one.
POSTGRES_FIRST_PAUSE = 0.1
# TCP keepalive of the server's side: seconds of silence before its first probe, seconds between probes, and probes
# without an answer. Together they release the locks of a machine that vanished after 5 seconds.
POSTGRES_KEEPALIVE_IDLE = 2
POSTGRES_KEEPALIVE_INTERVAL = 1
POSTGRES_KEEPALIVE_COUNT = 3

# Seconds between two attempts to acquire a lost lock. It is short, because without the lock this gateway counts as
# dead for others.
GATEWAY_LIVENESS_RETRY = 0.1
# Seconds for one such attempt: a new attempt finds a restarted server sooner than an old one does.
GATEWAY_LIVENESS_TIMEOUT = 3.0
# Seconds between two checks of the connection: a server that has vanished does not close it.
GATEWAY_LIVENESS_INTERVAL = 2.0

# "hole" in ASCII. The class of these locks, apart from every other advisory lock in the database.
LIVENESS_LOCKS = 0x686F6C65

T = TypeVar("T")
# asyncpg has no type annotations.
Connection = Any
Lock = tuple[str, str]
"""A statement that waits for a lock, and its value."""

# "holo" in ASCII: the advisory lock of the one gateway that migrates the schema.
_MIGRATION_LOCK = 0x686F6C6F
_CONNECT_OPTIONS: dict[str, Any] = {
    "timeout": POSTGRES_TIMEOUT,
    "command_timeout": POSTGRES_TIMEOUT,
    "server_settings": {
        "application_name": "holodeck",
        # A machine that vanishes does not close its connections, and its locks are held until the server does.
        "tcp_keepalives_idle": str(POSTGRES_KEEPALIVE_IDLE),
        "tcp_keepalives_interval": str(POSTGRES_KEEPALIVE_INTERVAL),
        "tcp_keepalives_count": str(POSTGRES_KEEPALIVE_COUNT),
    },
}
_REASONS = {
    "28P01": "the server refuses the user or the password. Check 'storage.url'.",
    "28000": "the server refuses the user. Check 'storage.url' and the server's pg_hba.conf.",
    "3D000": "the server has no database of that name. Create it.",
    "42501": "the user lacks a privilege. Grant it CREATE on the schema.",
    "53300": "the server has no connection left. Raise its max_connections.",
    "53100": "the disk of the server is full. Make room; nothing was half written.",
    "42704": "the server does not know a setting that stands behind the '?' in 'storage.url'. Leave it out.",
    "25006": "the server is read-only. Use the address of the primary.",
    "57P03": "the server is starting or stopping.",
    "57P01": "the server was shut down.",
    "23505": "an entry of that id is there already.",
}
# Classes of SQLSTATE: a value that one statement cannot store says nothing about the next one.
_VALUE_ERRORS = ("22", "23")


_IS_ALIVE = rf"""EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {LIVENESS_LOCKS} AND objid = \1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""  # noqa: S608 - our own number


@cache
def for_postgres(sql: str) -> str:
    """Return a statement in which `is_alive` looks for the lock of the gateway."""
    return re.sub(r"is_alive\((\w+)\)", _IS_ALIVE, sql)


def _clean(values: Collection[object]) -> Collection[object]:
    """Return values as PostgreSQL accepts them. Its texts cannot contain NUL, so no stored id does."""
    for value in values:
        if type(value) is str and "\0" in value:
            return [each.replace("\0", "\ufffd") if type(each) is str else each for each in values]
    return values


class PostgresConnection:
    """The `Connection` of a job: a connection of the pool."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fetch_row(self, sql: str, /, *values: object) -> Awaitable[Row | None]:
        row: Awaitable[Row | None] = self._connection.fetchrow(for_postgres(sql), *_clean(values))
        return row

    def fetch_rows(self, sql: str, /, *values: object) -> Awaitable[list[Row]]:
        rows: Awaitable[list[Row]] = self._connection.fetch(for_postgres(sql), *_clean(values))
        return rows

    def write(self, sql: str, /, *values: object) -> Awaitable[object]:
        written: Awaitable[object] = self._connection.execute(for_postgres(sql), *_clean(values))
        return written

    async def write_counted(self, sql: str, /, *values: object) -> int:
        status: str = await self._connection.execute(for_postgres(sql), *_clean(values))
        # Such as `INSERT 0 1`.
        return int(status.rpartition(" ")[2])

    def write_many(self, sql: str, rows: Iterable[Sequence[object]], /) -> Awaitable[object]:
        written: Awaitable[object] = self._connection.executemany(
            for_postgres(sql), [_clean(values) for values in rows]
        )
        return written

    def array(self, texts: Collection[str], /) -> object:
        return list(_clean(texts))

    async def write_group(self, sql: str, rows: Sequence[Collection[object]]) -> list[int]:
        """Execute a statement that writes for each of the rows of values, in one round trip and one transaction.

        Returns how many rows of the database each of them has changed.
        """
        # The number of the row of values comes back with each row that it has changed.
        grouped = f"{for_postgres(sql)} RETURNING ${len(rows[0]) + 1}::int4"
        values = [(*_clean(row), number) for number, row in enumerate(rows)]
        counts = [0] * len(rows)
        for (number,) in await self._connection.fetchmany(grouped, values):
            counts[number] += 1
        return counts


async def _leave_as_it_is(connection: Connection) -> None:
    """Reset nothing: no job changes the session of its connection. asyncpg's own reset is a round trip for each job."""


def _ignore(failure: StorageError) -> None:
    pass


class PostgresLiveness:
    """Liveness of the gateways that share a database, by advisory locks: the lock of this gateway.

    Each gateway has a random number, and holds an advisory lock of that number on a connection of its own for as long
    as it lives. The server releases the lock when the connection ends, so there are neither heartbeats nor comparisons
    of clocks. `for_postgres` has the SQL that checks the lock of another gateway.

    Owns the connection and one task, from `start` to `stop`. When the connection is lost, for example because the
    server was restarted, the task acquires the lock again on a new connection, and retries until it succeeds.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], errors: tuple[type[Exception], ...]) -> None:
        self.number = secrets.randbelow(2**31 - 1) + 1
        self._connect = connect
        self._errors = errors
        self._connection: Any = None
        self._is_lost = asyncio.Event()
        self._tasks = TaskSet()

    async def start(self) -> None:
        """Acquire the lock, and maintain it in the background. Raises the errors of the driver."""
        if not self._tasks:
            await self._acquire_lock()
            self._tasks.supervise(self._maintain_lock, name="storage presence")

    @property
    def is_failing(self) -> bool:
        """True while nothing maintains the lock, so that other gateways may take this one for dead."""
        return bool(self._tasks.failing)

    async def stop(self) -> None:
        """Release the lock and close its connection, within `POSTGRES_CLOSE_TIMEOUT` for each of the two steps."""
        await self._tasks.close(POSTGRES_CLOSE_TIMEOUT)
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._errors):
                await connection.close(timeout=POSTGRES_CLOSE_TIMEOUT)

    async def _acquire_lock(self) -> None:
        """Acquire the lock on a new connection, then close the old one, so that there is no moment without the lock.

        The lock is a shared one: the server may hold that of a lost connection for a while.
        """
        connection = await self._connect()
        try:
            await connection.execute("SELECT pg_advisory_lock_shared($1, $2)", LIVENESS_LOCKS, self.number)
        except BaseException:
            connection.terminate()
            raise
        old, self._connection = self._connection, connection
        connection.add_termination_listener(self._on_terminated)
        if connection.is_closed():
            self._is_lost.set()
        if old is not None:
            old.terminate()

    def _on_terminated(self, connection: Any) -> None:
        if connection is self._connection:
            self._is_lost.set()

    async def _maintain_lock(self) -> None:
        while True:
            await self._wait_lost()
            self._is_lost.clear()
            try:
                async with asyncio.timeout(GATEWAY_LIVENESS_TIMEOUT):
                    await self._acquire_lock()
            except self._errors as error:
                log.debug("storage.presence_lost", error=type(error).__name__)
                self._is_lost.set()
                await asyncio.sleep(GATEWAY_LIVENESS_RETRY)

    async def _wait_lost(self) -> None:
        """Wait until the connection is closed or does not answer: a machine that vanishes closes nothing."""
        while True:
            try:
                async with asyncio.timeout(GATEWAY_LIVENESS_INTERVAL):
                    await self._is_lost.wait()
                    return
            except TimeoutError:
                pass
            try:
                async with asyncio.timeout(GATEWAY_LIVENESS_TIMEOUT):
                    await self._connection.execute("SELECT 1")
            except self._errors:
                return


class PostgresPool:
    """Runs jobs on pooled connections. The pool is opened with the first job."""

    def __init__(self, url: str) -> None:
        """Check the URL. Raises `ConfigError` when the driver is not installed or the URL cannot be parsed."""
        try:
            import asyncpg
        except ImportError:
            raise ConfigError(f"PostgreSQL storage needs: {install_hint('postgres')}.") from None
        try:
            parts = urlsplit(url)
            self._address = f"{parts.hostname or 'localhost'}:{parts.port or 5432}"
        except ValueError:
            # The text of this error quotes the URL, which has the password.
            raise ConfigError("The 'storage.url' is not a postgresql://user:password@host:port/name.") from None
        self._asyncpg = asyncpg
        self._url = url
        self._pool: Any = None
        self._open_lock = asyncio.Lock()
        # When the server announces its shutdown between two statements, the connection is not closed yet but accepts
        # no statement: asyncpg raises `InternalClientError` for that, which is no subclass of the others.
        self._lost_errors = (
            asyncpg.PostgresConnectionError,
            asyncpg.OperatorInterventionError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            OSError,
        )
        self._errors = (asyncpg.PostgresError, TimeoutError, *self._lost_errors)
        self._data_error = asyncpg.DataError
        self.on_failure: Callable[[StorageError], None] = _ignore
        """Called with an error that the server reports of itself, such as a full disk."""
        self.liveness = PostgresLiveness(self._connect, self._errors)

    async def run(
        self,
        job: Job[T],
        *,
        is_repeatable: bool = True,
        has_transaction: bool = False,
        lock: Lock | None = None,
        attempts: int = POSTGRES_ATTEMPTS,
    ) -> T:
        """Run a job on a connection, and return its result. Raises `StorageError`.

        `has_transaction`: the job runs in a transaction, which begins with `lock`, if there is one.
        A failure of the connection is retried, up to `attempts` in all; after the job has started only if it
        `is_repeatable`, because a lost connection does not tell whether it was committed.
        """
        # A server that has not answered by then is not being restarted, and is not asked again.
        retry_until = asyncio.get_running_loop().time() + POSTGRES_TIMEOUT
        for attempt in range(1, attempts + 1):
            is_started = False
            try:
                if self._pool is None:
                    await self._require_pool()
                connection = await self._pool.acquire(timeout=POSTGRES_TIMEOUT)
                is_started = True
                try:
                    if not has_transaction:
                        return await job(PostgresConnection(connection))
                    async with connection.transaction():
                        if lock is not None:
                            await connection.execute(*lock)
                        return await job(PostgresConnection(connection))
                except TimeoutError:
                    # Returning the connection in order would need an answer of the server as well.
                    connection.terminate()
                    raise
                finally:
                    await self._release(connection)
            except self._errors as error:
                can_repeat = is_repeatable or not is_started
                is_late = asyncio.get_running_loop().time() > retry_until
                if attempt == attempts or is_late or not can_repeat or not self._is_connection_error(error):
                    failure = self._to_storage_error(error)
                    if self._is_server_failure(error):
                        self.on_failure(failure)
                    raise failure from None
                log.debug("storage.retry", attempt=attempt, error=type(error).__name__)
                await asyncio.sleep(backoff_pause(attempt, first=POSTGRES_FIRST_PAUSE, longest=POSTGRES_TIMEOUT))
        # Unreachable: the last attempt returns or raises.
        raise AssertionError

    async def run_group(self, sql: str, rows: Sequence[Collection[object]]) -> list[int] | None:
        """Execute a repeatable statement for each of the rows of values, in one transaction, and return the counts.

        None, and nothing is written, if the server refuses one of them. Raises `StorageError` for what concerns all.
        """

        async def write(db: PostgresConnection) -> list[int] | None:
            try:
                return await db.write_group(sql, rows)
            except self._errors as error:
                if isinstance(error, TimeoutError) or (
                    self._is_connection_error(error) and not isinstance(error, self._data_error)
                ):
                    raise
                log.debug("storage.group_refused", error=type(error).__name__)
                return None

        # The connection of this driver, which has more than jobs see.
        return await self.run(cast(Job[list[int] | None], write))

    async def close(self) -> None:
        """Release the liveness lock and close all connections, within `POSTGRES_CLOSE_TIMEOUT` for each step."""
        await self.liveness.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), POSTGRES_CLOSE_TIMEOUT)
            except self._errors:
                pool.terminate()

    async def _require_pool(self) -> None:
        async with self._open_lock:
            if self._pool is None:
                self._pool = await self._open()

    async def _release(self, connection: Connection) -> None:
        try:
            await self._pool.release(connection, timeout=POSTGRES_TIMEOUT)
        except self._errors as error:
            log.debug("storage.connection_lost", error=type(error).__name__)

    async def _open(self) -> Any:
        pool = self._asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=POSTGRES_CONNECTIONS,
            reset=_leave_as_it_is,
            **_CONNECT_OPTIONS,
        )
        try:
            await pool
            async with pool.acquire(timeout=POSTGRES_TIMEOUT) as connection:
                await _migrate(connection)
            await self.liveness.start()
        except ValueError as error:
            pool.terminate()
            raise StorageError(f"The database cannot be used: {_url_problem(error)}") from None
        except BaseException:
            pool.terminate()
            raise
        return pool

    async def _connect(self) -> Connection:
        return await self._asyncpg.connect(self._url, **_CONNECT_OPTIONS)

    def _is_connection_error(self, error: Exception) -> bool:
        """Return whether an error is one of the connection, and not of the statement."""
        return isinstance(error, self._lost_errors) and not isinstance(error, self._asyncpg.QueryCanceledError)

    def _is_server_failure(self, error: Exception) -> bool:
        """Return whether the server answers and cannot do the job. One that is away is waited for by each job."""
        state = getattr(error, "sqlstate", None) or ""
        return bool(state) and not self._is_connection_error(error) and not state.startswith(_VALUE_ERRORS)

    def _to_storage_error(self, error: Exception) -> StorageError:
        if isinstance(error, StorageError):
            return error
        state = getattr(error, "sqlstate", None)
        if state in _REASONS:
            text = _REASONS[state]
            return StorageError(f"The database cannot be used: {text}", reason=text.partition(".")[0])
        if isinstance(error, TimeoutError):
            problem = f"did not answer within {POSTGRES_TIMEOUT:g} seconds."
        elif isinstance(error, OSError) and _tls_problem(error):
            problem = _tls_problem(error)
        elif self._is_connection_error(error):
            problem = "cannot be reached."
        else:
            # The text of the error may quote stored values.
            problem = f"reports {type(error).__name__} ({state})."
        reason = f"the server {problem.partition('.')[0]}"
        return StorageError(f"The database cannot be used: the server at {self._address} {problem}", reason=reason)


def _url_problem(error: ValueError) -> str:
    """Return what is wrong with the URL. The text of the driver's error is not shown: it may quote the URL."""
    if "certificate" in str(error):
        return (
            "'sslmode' of 'storage.url' asks for a check of certificates. Name the authority's file as 'sslrootcert'."
        )
    return "'storage.url' is not complete."


def _tls_problem(error: OSError) -> str:
    """Return what is wrong with TLS, or an empty text when the error has another cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not accepted: {error.verify_message}. Check 'sslrootcert' of 'storage.url'."
    if isinstance(error, FileNotFoundError):
        return "is not asked: a file that 'storage.url' names, such as 'sslrootcert', is not there."
    if "rejected SSL upgrade" in str(error):
        return "does not speak TLS, which 'sslmode' of 'storage.url' asks for."
    return ""


async def _migrate(connection: Connection) -> None:
    """Apply missing migrations in one transaction, under a lock that other gateways wait for."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
        await connection.execute("CREATE TABLE IF NOT EXISTS holodeck_schema (version INTEGER NOT NULL)")
        version = await connection.fetchval("SELECT MAX(version) FROM holodeck_schema") or 0
        migrations = migrations_after(version)
        for migration in migrations:
            for statement in migration:
                await connection.execute(statement)
        if migrations:
            await connection.execute("DELETE FROM holodeck_schema")
            await connection.execute("INSERT INTO holodeck_schema (version) VALUES ($1)", version + len(migrations))
