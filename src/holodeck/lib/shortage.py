"""This machine has no file and no connection left to give: that is no fault of whoever was to be reached."""

from __future__ import annotations

import asyncio
import errno
import os
import time

from holodeck.lib import log
from holodeck.lib.limits import SHORTAGE_LOG_PAUSE, SHORTAGE_LOOK

_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
WHAT = "this machine has too many files and connections open"
_NOTICE = (
    "All files that this process may have open are open. Allow it more (ulimit -n, or LimitNOFILE= of its systemd "
    "unit), or let it do less at once (limits.in_flight and limits.sockets of a gateway)."
)
_told = [float("-inf")]


def is_short(error: BaseException) -> bool:
    """Whether this failed for want of something that this machine has no more of. The log tells the operator so."""
    reason: BaseException | None = error
    while reason is not None and getattr(reason, "errno", None) not in _SHORT:
        reason = reason.__cause__ or reason.__context__
    # A name that cannot be looked up for want of a file is "not known", and a certificate that cannot be read "wrong".
    if reason is None and _has_room():
        return False
    _tell()
    return True


async def watch() -> None:
    """Tell the log also when nothing of ours fails: who cannot be let in is turned away by the event loop, unheard."""
    while True:
        await asyncio.sleep(SHORTAGE_LOOK)
        if not _has_room():
            _tell()


def _tell() -> None:
    now = time.monotonic()
    if now - _told[0] >= SHORTAGE_LOG_PAUSE:  # thousands may feel it at once
        _told[0] = now
        log.error("process.out_of_files", limit=_limit(), notice=_NOTICE)


def _has_room() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _SHORT
    return True


def _limit() -> int | None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
