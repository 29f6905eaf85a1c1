"""Counts the work of a piece of code in calls of functions, which no busy machine changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class CountedCalls:
    """Calls of functions in this thread while `counting`, of Python and of C."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        def count(frame: FrameType, event: str, argument: object) -> None:
            if event in ("call", "c_call"):
                self.count += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            yield
        finally:
            sys.setprofile(before)
