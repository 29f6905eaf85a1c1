"""The durable runs of a person, in whichever process they run: list them, look at one, cancel one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from holodeck.durable.engine import DamagedWorkError, KeptStep, KeptWork
from holodeck.lib import log
from holodeck.lib.errors import ExecutionError
from holodeck.lib.limits import DAY, KEPT_RUN_DAYS, MAX_RUNS_LISTED
from holodeck.runs.home import Home, is_alive
from holodeck.runs.kept_run import KeptRun, damaged_run, read_run

NO_RUNS = "There are no durable runs yet. Begin one with: holodeck run --durable"


class Shelf:
    """`with Shelf(home) as shelf: ...`. Nothing on it is run."""

    def __init__(self, home: Home) -> None:
        """Raises `ExecutionError` when there is nothing to look at."""
        if home.is_empty:
            raise ExecutionError(NO_RUNS)
        self._presence = home.presence()
        with home.door():
            self._archive = home.archive()

    def runs(self, limit: int = MAX_RUNS_LISTED) -> Sequence[KeptRun]:
        """The newest first. Those that are damaged are left out, and the log names them."""
        found = []
        for work in self._archive.list(limit):
            try:
                found.append(self._run(work))
            except DamagedWorkError as error:
                log.warning("runs.damaged", run=work.id, error=error)
        return sorted(found, key=lambda run: run.task.began, reverse=True)

    def find(self, run_id: str) -> KeptRun:
        """Raises `ExecutionError` when there is none, `DamagedWorkError` when it cannot be read."""
        work = self._archive.find(run_id)
        if work is None:
            raise ExecutionError(f"There is no run '{run_id}'. See: holodeck runs list")
        return self._run(work)

    def last_interrupted(self) -> KeptRun:
        """The newest run that can be gone on with."""
        found = next((run for run in self.runs() if run.status == "interrupted"), None)
        if found is None:
            raise ExecutionError("No run was interrupted. See: holodeck runs list")
        return found

    def steps(self, run_id: str) -> Sequence[KeptStep]:
        """Raises `DamagedWorkError` when one cannot be read."""
        try:
            return self._archive.steps(run_id)
        except DamagedWorkError as error:
            raise damaged_run(run_id) from error

    def cancel(self, run: KeptRun) -> None:
        """End a run for good, wherever it is. Raises `ExecutionError` when it has ended."""
        if run.status not in {"running", "interrupted"}:
            raise ExecutionError(f"{run.id} has ended already: {run.status}.")
        self._archive.drop(run.id)

    def forget_old(self) -> int:
        """Delete what ended long ago."""
        return self._archive.forget(time.time() - KEPT_RUN_DAYS * DAY)

    def _run(self, work: KeptWork) -> KeptRun:
        names = self._archive.step_names(work.id)
        return read_run(work, names, is_alive=is_alive(work.executor, self._presence))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._archive.close()
