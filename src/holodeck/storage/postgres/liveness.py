"""Which gateways that share a database are there: each holds a lock for as long as it lives, and no clock is asked."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from holodeck.lib import log
from holodeck.lib.limits import POSTGRES_CLOSE_TIMEOUT

# Seconds; until a gateway is back in its database, another that starts takes it for dead.
GATEWAY_LIVENESS_RETRY = 0.1
# Seconds for that; a new attempt finds a server that is back sooner than an old one.
GATEWAY_LIVENESS_TIMEOUT = 3.0
GATEWAY_LIVENESS_INTERVAL = (
    2.0  # seconds between two looks whether the lock is still held: a lost server does not say so
)


LIVENESS_LOCKS = 0x686F6C65  # "hole": apart from every other advisory lock in the database
IS_ALIVE = f"""EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {LIVENESS_LOCKS} AND objid = keeper
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""  # noqa: S608 - our own number
"""Whether the gateway that a row names as its `keeper` is alive."""

Connect = Callable[[], Awaitable[Any]]


class PostgresLiveness:
    """This gateway's own lock, on a connection of its own. After a restart of the server it is taken again."""

    def __init__(self, connect: Connect, errors: tuple[type[Exception], ...]) -> None:
        self.number = secrets.randbelow(2**31 - 1) + 1
        self._connect = connect
        self._errors = errors
        self._connection: Any = None
        self._is_lost = asyncio.Event()
        self._lock_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Be there, from now on."""
        if self._lock_task is None:
            await self._acquire_lock()
            self._lock_task = asyncio.create_task(self._maintain_lock(), name="storage presence")

    async def stop(self) -> None:
        staying, self._lock_task = self._lock_task, None
        if staying is not None:
            staying.cancel()
            with suppress(asyncio.CancelledError):
                await staying
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._errors):
                await connection.close(timeout=POSTGRES_CLOSE_TIMEOUT)

    async def _acquire_lock(self) -> None:
        """Take the lock on a new connection, then let go of the old one: there is no moment without it.

        It is a shared one: the server may keep the old one for a while after the connection was lost.
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
        """Wait until the connection ends, or no longer answers: a machine that vanished ends nothing."""
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
