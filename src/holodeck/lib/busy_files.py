"""A file that another process has: whoever waits for it longer than a moment hears what for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holodeck.lib import log
from holodeck.lib.limits import PROGRESS_DELAY


@contextmanager
def waiting_for(file: Path | str, *, at_most: float | None = None) -> Iterator[None]:
    """While another process may keep us from a file; `at_most` is how many seconds that is borne."""
    bound = "until it is done" if at_most is None else f"for up to {at_most:g} s"
    notice = f"Waiting for {file}, to which another process is writing, {bound}."

    def tell() -> None:
        log.warning("storage.waiting", file=file, notice=notice)

    timer = threading.Timer(PROGRESS_DELAY, tell)  # whoever waits is held by a database or by the kernel
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
