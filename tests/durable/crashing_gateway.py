"""`holodeck serve` that kills itself at one boundary, which `CRASH_AT` names: "turn 2 after", "dispatch 1 before".

Nothing is replaced: every seam does what it does, and is told before it begins, when its work is done and not yet
kept, and after it was kept. A seam is counted each time that it is reached.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

PROGRAM = (str(Path(__file__)),)
AT = "CRASH_AT"


class Boundaries:
    """Counts what is reached, and ends the process at the one that was chosen."""

    def __init__(self, chosen: str) -> None:
        self._chosen = chosen
        self._reached: Counter[tuple[str, str]] = Counter()

    def reached(self, seam: str, moment: str) -> None:
        self._reached[seam, moment] += 1
        if self._chosen == f"{seam} {self._reached[seam, moment]} {moment}":
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: type[Any], method: str, seam: str) -> None:
        """Tell before and after a method of a class."""
        inner = getattr(owner, method)

        async def told(*args: Any, **kwargs: Any) -> Any:
            self.reached(seam, "before")
            result = await inner(*args, **kwargs)
            self.reached(seam, "after")
            return result

        setattr(owner, method, told)

    def around_steps(self, owner: type[Any]) -> None:
        """Tell of every checkpoint: `turn`, `send` and `call`."""
        inner = owner.step

        async def step(checkpoints: Any, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
            seam = name.partition(" ")[0]

            async def do() -> Any:
                result = await work()
                self.reached(seam, "done")
                return result

            self.reached(seam, "before")
            result = await inner(checkpoints, name, do)
            self.reached(seam, "after")
            return result

        owner.step = step


def main() -> None:
    from holodeck.cli.main import main as holodeck
    from holodeck.durable import dbos_engine
    from holodeck.storage.postgres import PostgresStore
    from holodeck.storage.sqlite import SQLiteStore
    from holodeck.tools.mcp.executor import MCPExecutor

    boundaries = Boundaries(os.environ.get(AT, ""))
    boundaries.around_steps(dbos_engine._Checkpoints)
    boundaries.around(dbos_engine.DBOSEngine, "submit", "submit")
    boundaries.around(MCPExecutor, "execute", "dispatch")
    for store in (SQLiteStore, PostgresStore):
        for seam in ("grow", "finish", "add_items"):
            boundaries.around(store, seam, seam)
    holodeck()


if __name__ == "__main__":
    # As `python -m holodeck` has it: the folder of this file would hide packages behind those of the tests.
    sys.path[0] = str(Path.cwd())
    main()
