"""`holodeck serve` that kills itself at one boundary, which `CRASH_AT` names: "turn 2 after", "dispatch 1 before".

No behaviour is replaced: every seam is wrapped and reports before it begins, when its work is done and not yet
stored, and after it was stored. A seam is counted when the first background response of this process reaches it,
so another, unfinished one can be finished before. The type of an event is a seam as well: it is reached when the stream
that has it is written, since how much is written at once depends on timing. Of two, as in "call 1 done and grow 1
after", it is the one that is reached last.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

PROGRAM = (str(Path(__file__)),)
AT = "CRASH_AT"


class Boundaries:
    """Counts what is reached, and ends the process at the one that was chosen."""

    def __init__(self, chosen: str) -> None:
        self._remaining = set(chosen.split(" and "))
        self._reached: Counter[tuple[str, str]] = Counter()
        self._response = ""

    def reach(self, seam: str, moment: str, response: str) -> None:
        if seam == "submit":
            self._response = self._response or response
        if response != self._response:
            return
        self._reached[seam, moment] += 1
        point = f"{seam} {self._reached[seam, moment]} {moment}"
        if self._remaining == {point}:
            os.kill(os.getpid(), signal.SIGKILL)
        self._remaining.discard(point)

    def wrap_method(
        self, wrapped_class: type[Any], method: str, seam: str, response: Callable[[Any], str | None]
    ) -> None:
        """Report before and after a method of a class. `response` maps its first argument to the id of the response."""
        inner = getattr(wrapped_class, method)

        async def wrapper(this: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
            response_id = response(first) or ""
            self.reach(seam, "before", response_id)
            result = await inner(this, first, *args, **kwargs)
            self.reach(seam, "after", response_id)
            return result

        setattr(wrapped_class, method, wrapper)

    def wrap_stream(self, wrapped_class: type[Any]) -> None:
        """Report every stored part of the stream, as `grow`, and each event in it."""
        inner = wrapped_class.append_events

        async def grow(this: Any, response: str, first: int, events: Sequence[bytes], **state: Any) -> Any:
            seams = ["grow", *(json.loads(event)["type"] for event in events)]
            for seam in seams:
                self.reach(seam, "before", response)
            result = await inner(this, response, first, events, **state)
            for seam in seams:
                self.reach(seam, "after", response)
            return result

        wrapped_class.append_events = grow

    def wrap_steps(self, wrapped_class: type[Any]) -> None:
        """Report every checkpoint: `turn`, `send` and `call`."""
        from dbos import DBOS

        inner = wrapped_class.step

        async def step(checkpoints: Any, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
            seam, response_id = name.partition(" ")[0], DBOS.workflow_id or ""

            async def do() -> Any:
                result = await work()
                self.reach(seam, "done", response_id)
                return result

            self.reach(seam, "before", response_id)
            result = await inner(checkpoints, name, do)
            self.reach(seam, "after", response_id)
            return result

        wrapped_class.step = step


def main() -> None:
    from dbos import DBOS

    from holodeck.cli.entry import main as holodeck
    from holodeck.durable import dbos_engine
    from holodeck.storage.store import ResponseStore
    from holodeck.tools.mcp.executor import MCPExecutor

    boundaries = Boundaries(os.environ.get(AT, ""))
    boundaries.wrap_steps(dbos_engine._Checkpoints)
    boundaries.wrap_method(dbos_engine.DBOSEngine, "submit", "submit", str)
    boundaries.wrap_method(MCPExecutor, "execute_at", "dispatch", lambda _: DBOS.workflow_id)
    boundaries.wrap_stream(ResponseStore)
    boundaries.wrap_method(ResponseStore, "claim_calls", "claim", lambda _: DBOS.workflow_id)
    boundaries.wrap_method(ResponseStore, "finish", "finish", lambda record: record.id)
    boundaries.wrap_method(ResponseStore, "add_items", "add_items", lambda _: DBOS.workflow_id)
    holodeck()


if __name__ == "__main__":
    # As `python -m holodeck` has it: the folder of this file would hide packages behind those of the tests.
    sys.path[0] = str(Path.cwd())
    main()
