"""Connections to a PostgreSQL server that may go away and come back. Failures are words, never the password."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from holodeck.lib import log
from holodeck.lib.errors import ConfigError, StorageError
from holodeck.lib.extras import install_hint
from holodeck.lib.limits import POSTGRES_CLOSE_TIMEOUT, POSTGRES_TIMEOUT
from holodeck.storage.migrations import for_postgres, migrations_after
from holodeck.storage.postgres.liveness import PostgresLiveness

# Of one gateway; with those of durable runs, five gateways fit into the usual limit of 100.
POSTGRES_CONNECTIONS = 10
# A server that is restarted is away for a second or two ...
POSTGRES_ATTEMPTS = 6
# ... and is asked again after this long, doubled each time.
POSTGRES_FIRST_PAUSE = 0.1
# Seconds of silence before the server asks whether our machine is still there, ...
POSTGRES_KEEPALIVE_IDLE = 2
# ... again after this long, ...
POSTGRES_KEEPALIVE_INTERVAL = 1
# ... and how often in vain: work of a machine that vanished is free after 5 seconds.
POSTGRES_KEEPALIVE_COUNT = 3


T = TypeVar("T")
Connection = Any  # asyncpg has no types of its own
Job = Callable[[Connection], Awaitable[T]]

_MIGRATION_LOCK = 0x686F6C6F  # "holo": one gateway at a time brings the tables up to date
_CONNECT_OPTIONS: dict[str, Any] = {
    "timeout": POSTGRES_TIMEOUT,
    "command_timeout": POSTGRES_TIMEOUT,
    "server_settings": {
        "application_name": "holodeck",
        # A machine that vanishes says no goodbye; until the server knows, all that it had locked stays locked.
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


class PostgresPool:
    """Opened with its first job. A lost server is waited for, a bounded time."""

    def __init__(self, url: str) -> None:
        try:
            import asyncpg
        except ImportError:
            raise ConfigError(f"PostgreSQL storage needs: {install_hint('postgres')}.") from None
        try:
            parts = urlsplit(url)
            self._address = f"{parts.hostname or 'localhost'}:{parts.port or 5432}"
        except ValueError:  # it quotes the URL, and that has the password
            raise ConfigError("The 'storage.url' is not a postgresql://user:password@host:port/name.") from None
        self._asyncpg = asyncpg
        self._url = url
        self._pool: Any = None
        self._open_lock = asyncio.Lock()
        # A server's farewell that arrives between two statements leaves a connection that is not closed yet and takes
        # no statement any more: asyncpg calls that an internal error, which is neither of its two other kinds.
        self._lost_errors = (
            asyncpg.PostgresConnectionError,
            asyncpg.OperatorInterventionError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            OSError,
        )
        self._errors = (asyncpg.PostgresError, TimeoutError, *self._lost_errors)
        self.liveness = PostgresLiveness(self._connect, self._errors)

    async def run(self, job: Job[T], *, is_repeatable: bool, attempts: int = POSTGRES_ATTEMPTS) -> T:
        """Do a job on a connection. One that may be done twice is tried again when the server was lost under it."""
        pause = POSTGRES_FIRST_PAUSE
        patience = asyncio.get_running_loop().time() + POSTGRES_TIMEOUT
        for attempt in range(1, attempts + 1):
            is_begun = False
            try:
                connection = await self._acquire()
                is_begun = True
                try:
                    return await job(connection)
                except TimeoutError:
                    connection.terminate()  # a server that does not answer would not hear that we are done, either
                    raise
                finally:
                    await self._release(connection)
            except self._errors as error:
                can_repeat = is_repeatable or not is_begun
                is_late = asyncio.get_running_loop().time() > patience  # it does not answer, which is not a restart
                if attempt == attempts or is_late or not can_repeat or not self._is_connection_error(error):
                    raise self._to_storage_error(error) from None
                log.debug("storage.retry", attempt=attempt, error=type(error).__name__)
                await asyncio.sleep(pause)
                pause *= 2
        raise AssertionError  # the last attempt returns or raises

    async def close(self) -> None:
        await self.liveness.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), POSTGRES_CLOSE_TIMEOUT)
            except self._errors:
                pool.terminate()

    async def _acquire(self) -> Connection:
        if self._pool is None:
            async with self._open_lock:
                if self._pool is None:
                    self._pool = await self._open()
        return await self._pool.acquire(timeout=POSTGRES_TIMEOUT)

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
        """Whether it was the connection, and not the statement."""
        return isinstance(error, self._lost_errors) and not isinstance(error, self._asyncpg.QueryCanceledError)

    def _to_storage_error(self, error: Exception) -> StorageError:
        if isinstance(error, StorageError):
            return error
        state = getattr(error, "sqlstate", None)
        if state in _REASONS:
            reason = _REASONS[state]
        elif isinstance(error, TimeoutError):
            reason = f"the server at {self._address} did not answer within {POSTGRES_TIMEOUT:g} seconds."
        elif isinstance(error, OSError) and _tls_problem(error):
            reason = f"the server at {self._address} {_tls_problem(error)}"
        elif self._is_connection_error(error):
            reason = f"the server at {self._address} cannot be reached."
        else:  # its own words may quote what was stored
            reason = f"the server at {self._address} reports {type(error).__name__} ({state})."
        return StorageError(f"The database cannot be used: {reason}")


def _url_problem(error: ValueError) -> str:
    """What is wrong with an address; the driver's own words may quote it."""
    if "certificate" in str(error):
        return (
            "'sslmode' of 'storage.url' asks for a check of certificates. Name the authority's file as 'sslrootcert'."
        )
    return "'storage.url' is not complete."


def _tls_problem(error: OSError) -> str:
    """Empty: it is not about TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not accepted: {error.verify_message}. Check 'sslrootcert' of 'storage.url'."
    if isinstance(error, FileNotFoundError):
        return "is not asked: a file that 'storage.url' names, such as 'sslrootcert', is not there."
    if "rejected SSL upgrade" in str(error):
        return "does not speak TLS, which 'sslmode' of 'storage.url' asks for."
    return ""


async def _migrate(connection: Connection) -> None:
    """Bring the tables up to date; several gateways may try at once, and one does it."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
        await connection.execute("CREATE TABLE IF NOT EXISTS holodeck_schema (version INTEGER NOT NULL)")
        found = await connection.fetchval("SELECT MAX(version) FROM holodeck_schema")
        version = found or 0
        steps = migrations_after(version)
        for step in steps:
            for statement in step:
                await connection.execute(for_postgres(statement))
        if steps:
            await connection.execute("DELETE FROM holodeck_schema")
            await connection.execute("INSERT INTO holodeck_schema (version) VALUES ($1)", version + len(steps))
