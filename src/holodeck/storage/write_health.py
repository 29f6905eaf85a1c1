"""The ability of a store to be written, as its latest failure says.

A write that fails sets the failure, and only a probe ends it: a write of its own that has to reach the disk. Other
writes end nothing, because many of them change no row and succeed on a full disk. Probes have growing pauses; the
first one comes at once, so that a failure of one statement does not outlast it.

`WriteHealth` belongs to one store. The store reports failures and gives the probe; `require_writable` is called
regularly by the gateway (`check_health`, `find_orphans`), so that a store recovers without a request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextvars import Context

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import KIB
from holodeck.lib.tasks import TaskSet

# Seconds before the second probe; doubled before each further one.
FIRST_PROBE_PAUSE = 0.5
# Longest pause: bounds how long a gateway stays unready after an operator has made room.
LONGEST_PROBE_PAUSE = 5.0
# Seconds that a request waits for a probe: one that waits for a lock, or for a server, takes longer.
PROBE_WAIT = 1.0
# Bytes that a probe writes: as many as most responses take.
PROBE_BYTES = 64 * KIB

STORE_PROBE = "INSERT INTO probes (id, data) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET data = excluded.data"
"""Writes the one row of probes."""


def make_probe_data() -> bytes:
    """Return bytes that no database can compress, and that differ from those of the last probe."""
    return os.urandom(PROBE_BYTES)


class WriteHealth:
    """The failure of a store, and the probes that end it. Owns the task of a probe, until `close`."""

    def __init__(self, probe: Callable[[], Awaitable[object]]) -> None:
        """`probe` writes and commits. It raises `StorageError`, which it may report as a failure."""
        self._probe = probe
        self._tasks = TaskSet()
        self._failed_probes = 0
        self._next_probe = 0.0
        self.failure: StorageError | None = None
        """Why nothing can be written. None: nothing has failed since the latest probe."""

    def report_failure(self, error: StorageError) -> None:
        """Set the failure, if there is none. Called from any thread."""
        if self.failure is None:
            self.failure = error
            log.error("storage.not_writable", error=error)

    async def require_writable(self) -> None:
        """Raise `StorageError` if there is a failure, unless a probe ends it now.

        A probe is started where one is due, and waited for, at most `PROBE_WAIT`.
        """
        if self.failure is None:
            return
        if not self._tasks and time.monotonic() >= self._next_probe:
            # With an empty context: it is no part of the log of a request.
            self._tasks.start(self._run_probe(), name="probe the storage", context=Context())
        await self._tasks.wait(PROBE_WAIT)
        if self.failure is not None:
            raise StorageError(str(self.failure), reason=self.failure.reason)

    async def close(self) -> None:
        """Wait until a probe has ended, which has the timeouts of its database."""
        await self._tasks.wait()

    async def _run_probe(self) -> None:
        try:
            await self._probe()
        except StorageError as error:
            self._failed_probes += 1
            pause = backoff_pause(self._failed_probes, first=FIRST_PROBE_PAUSE, longest=LONGEST_PROBE_PAUSE)
            self._next_probe = time.monotonic() + pause
            self.failure = error
        else:
            self._failed_probes, self._next_probe = 0, 0.0
            self.failure = None
            log.info("storage.writable")
