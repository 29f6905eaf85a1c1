"""A file that another process has: whoever waits for it longer than a moment hears what for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holodeck.lib import log
from holodeck.lib.limits import PROGRESS_DELAY


@contextmanager
def warn_if_waiting(file: Path | str, *, timeout: float | None = None) -> Iterator[None]:
    """While another process may keep us from a file; `timeout` is how many seconds that is borne."""
    bound = "until it is done" if timeout is None else f"for up to {timeout:g} s"
    notice = f"Waiting for {file}, to which another process is writing, {bound}."

    def log_waiting() -> None:
        log.warning("storage.waiting", file=file, notice=notice)

    timer = threading.Timer(PROGRESS_DELAY, log_waiting)  # whoever waits is held by a database or by the kernel
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
