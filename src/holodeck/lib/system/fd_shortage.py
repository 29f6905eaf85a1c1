"""Failures caused by a lack of file descriptors or memory on this machine: how they are recognised and logged.

Such a failure must not be attributed to the peer that was being reached. The log has one event for all failures within
`SHORTAGE_LOG_PAUSE` seconds.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time

from holodeck.lib import log

# Seconds between two log lines about missing file descriptors: one line stands for all failures in between.
SHORTAGE_LOG_PAUSE = 10.0
# Seconds between two checks whether another file can be opened.
SHORTAGE_POLL = 2.0

_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
SHORTAGE_TEXT = "this machine has too many files and connections open"
_NOTICE = (
    "All files that this process may have open are open. Allow it more (ulimit -n, or LimitNOFILE= of its systemd "
    "unit), or let it do less at once (limits.in_flight and limits.sockets of a gateway)."
)
_last_logged = [float("-inf")]


def is_file_shortage(error: BaseException) -> bool:
    """Return whether an error was caused by a shortage on this machine, and log the shortage if so.

    Searches the causes of the error as well. May open and close a file.
    """
    reason: BaseException | None = error
    while reason is not None and getattr(reason, "errno", None) not in _SHORT:
        reason = reason.__cause__ or reason.__context__
    # Without a free descriptor a name lookup fails with "not known" and a certificate with "invalid": test directly.
    if reason is None and _can_open_file():
        return False
    _log_shortage()
    return True


async def watch_file_shortage() -> None:
    """Log shortages until cancelled, also when no operation fails: the event loop refuses connections silently."""
    while True:
        await asyncio.sleep(SHORTAGE_POLL)
        if not _can_open_file():
            _log_shortage()


def _log_shortage() -> None:
    now = time.monotonic()
    if now - _last_logged[0] >= SHORTAGE_LOG_PAUSE:
        _last_logged[0] = now
        log.error("process.out_of_files", limit=_open_file_limit(), notice=_NOTICE)


def _can_open_file() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _SHORT
    return True


def _open_file_limit() -> int | None:
    try:
        import resource
    except ImportError:
        # Windows has no such limit.
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
