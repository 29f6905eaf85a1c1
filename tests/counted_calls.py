"""Counts the work of a piece of code in calls of functions, which no busy machine changes."""

from __future__ import annotations

import dis
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

_COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_RESUME = dis.opmap["RESUME"]


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


class CountedFunctions:
    """How often the functions of a package were started, in this thread and in those that start while it `watches`.

    What `excluded` modules call is not counted. A coroutine or generator counts when it is started and not when it goes
    on, because that depends on how the bytes of a connection arrive. Python 3.12 has no functions for comprehensions
    any more, so those of 3.11 are not counted.
    """

    def __init__(self, package: str, *, excluded: str) -> None:
        self._prefix, self._excluded = f"{package}.", excluded
        self._counts: Counter[str] | None = None
        self._starts: dict[CodeType, int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        before, before_of_threads = sys.getprofile(), threading.getprofile()
        sys.setprofile(self._see)
        threading.setprofile(self._see)
        try:
            yield
        finally:
            threading.setprofile(before_of_threads)
            sys.setprofile(before)

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count while it watches. The keys are as `gateway.app:Gateway.find`."""
        self._counts = counts = Counter[str]()
        try:
            yield counts
        finally:
            self._counts = None

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        counts, code = self._counts, frame.f_code
        if counts is None or event != "call" or code.co_name in _COMPREHENSIONS:
            return
        module = str(frame.f_globals.get("__name__"))
        if not module.startswith(self._prefix) or frame.f_lasti > self._find_start(code) or self._is_excluded(frame):
            return
        # The code that `dataclass` writes has no name of its own.
        name = f"dataclass {code.co_name}" if code.co_filename == "<string>" else code.co_qualname
        counts[f"{module.removeprefix(self._prefix)}:{name}"] += 1

    def _find_start(self, code: CodeType) -> int:
        """The offset of the first RESUME of a function: where it goes on later, there is another."""
        if code not in self._starts:
            operations = code.co_code[::2]
            self._starts[code] = 2 * operations.index(_RESUME)
        return self._starts[code]

    def _is_excluded(self, frame: FrameType) -> bool:
        caller: FrameType | None = frame
        while caller is not None:
            if str(caller.f_globals.get("__name__")).startswith(self._excluded):
                return True
            caller = caller.f_back
        return False
