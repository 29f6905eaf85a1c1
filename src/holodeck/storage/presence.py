"""Which gateways that share a database are there: each holds a lock for as long as it lives, and no clock is asked."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from holodeck.lib import log
from holodeck.lib.limits import POSTGRES_GOODBYE, PRESENCE_INTERVAL, PRESENCE_RETRY, PRESENCE_TIMEOUT

LOCKS = 0x686F6C65  # "hole": apart from every other advisory lock in the database
IS_THERE = f"""EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {LOCKS} AND objid = keeper
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""  # noqa: S608 - our own number
"""Whether the gateway that a row names as its `keeper` is alive."""

Connect = Callable[[], Awaitable[Any]]


class Presence:
    """This gateway's own lock, on a connection of its own. After a restart of the server it is taken again."""

    def __init__(self, connect: Connect, errors: tuple[type[Exception], ...]) -> None:
        self.number = secrets.randbelow(2**31 - 1) + 1
        self._connect = connect
        self._errors = errors
        self._connection: Any = None
        self._lost = asyncio.Event()
        self._staying: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Be there, from now on."""
        if self._staying is None:
            await self._take()
            self._staying = asyncio.create_task(self._stay(), name="storage presence")

    async def end(self) -> None:
        staying, self._staying = self._staying, None
        if staying is not None:
            staying.cancel()
            with suppress(asyncio.CancelledError):
                await staying
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._errors):
                await connection.close(timeout=POSTGRES_GOODBYE)

    async def _take(self) -> None:
        """Take the lock on a new connection, then let go of the old one: there is no moment without it.

        It is a shared one: the server may keep the old one for a while after the connection was lost.
        """
        connection = await self._connect()
        try:
            await connection.execute("SELECT pg_advisory_lock_shared($1, $2)", LOCKS, self.number)
        except BaseException:
            connection.terminate()
            raise
        old, self._connection = self._connection, connection
        connection.add_termination_listener(self._noticed)
        if connection.is_closed():
            self._lost.set()
        if old is not None:
            old.terminate()

    def _noticed(self, connection: Any) -> None:
        if connection is self._connection:
            self._lost.set()

    async def _stay(self) -> None:
        while True:
            await self._until_lost()
            self._lost.clear()
            try:
                async with asyncio.timeout(PRESENCE_TIMEOUT):
                    await self._take()
            except self._errors as error:
                log.debug("storage.presence_lost", error=type(error).__name__)
                self._lost.set()
                await asyncio.sleep(PRESENCE_RETRY)

    async def _until_lost(self) -> None:
        """Wait until the connection ends, or no longer answers: a machine that vanished ends nothing."""
        while True:
            try:
                async with asyncio.timeout(PRESENCE_INTERVAL):
                    await self._lost.wait()
                    return
            except TimeoutError:
                pass
            try:
                async with asyncio.timeout(PRESENCE_TIMEOUT):
                    await self._connection.execute("SELECT 1")
            except self._errors:
                return
