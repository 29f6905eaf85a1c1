"""Liveness of the gateways that share a PostgreSQL database, by advisory locks.

Each gateway has a random number, and holds an advisory lock of that number on a connection of its own for as long as
it lives. The server releases the lock when the connection ends, so there are neither heartbeats nor comparisons of
clocks. `pool.for_postgres` has the SQL that checks the lock of another gateway.

`PostgresLiveness` owns the connection and one task. When the connection is lost, for example because the server was
restarted, the task acquires the lock again on a new connection, and retries until it succeeds. `stop` ends both.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from holodeck.lib import log
from holodeck.lib.limits import POSTGRES_CLOSE_TIMEOUT
from holodeck.lib.tasks import TaskSet

# Seconds between two attempts to acquire a lost lock. It is short, because without the lock this gateway counts as
# dead for others.
GATEWAY_LIVENESS_RETRY = 0.1
# Seconds for one such attempt: a new attempt finds a restarted server sooner than an old one does.
GATEWAY_LIVENESS_TIMEOUT = 3.0
# Seconds between two checks of the connection: a server that has vanished does not close it.
GATEWAY_LIVENESS_INTERVAL = 2.0

# "hole" in ASCII. The class of these locks, apart from every other advisory lock in the database.
LIVENESS_LOCKS = 0x686F6C65
Connect = Callable[[], Awaitable[Any]]


class PostgresLiveness:
    """The lock of this gateway, from `start` to `stop`."""

    def __init__(self, connect: Connect, errors: tuple[type[Exception], ...]) -> None:
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
