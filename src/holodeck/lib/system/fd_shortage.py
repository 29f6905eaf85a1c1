"""This machine has no file and no connection left to give: that is no fault of whoever was to be reached."""

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
    """Whether this failed for want of something that this machine has no more of. The log tells the operator so."""
    reason: BaseException | None = error
    while reason is not None and getattr(reason, "errno", None) not in _SHORT:
        reason = reason.__cause__ or reason.__context__
    # A name that cannot be looked up for want of a file is "not known", and a certificate that cannot be read "wrong".
    if reason is None and _can_open_file():
        return False
    _log_shortage()
    return True


async def watch_file_shortage() -> None:
    """Tell the log also when nothing of ours fails: who cannot be let in is turned away by the event loop, unheard."""
    while True:
        await asyncio.sleep(SHORTAGE_POLL)
        if not _can_open_file():
            _log_shortage()


def _log_shortage() -> None:
    now = time.monotonic()
    if now - _last_logged[0] >= SHORTAGE_LOG_PAUSE:  # thousands may feel it at once
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
    except ImportError:  # Windows has no such limit
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
