"""The durable runs of a person, in whichever process they run: list them, look at one, cancel one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from holodeck.durable.base import DamagedWorkError, StoredStep, StoredWork
from holodeck.durable_runs.local_state import LocalState, is_executor_alive
from holodeck.durable_runs.records import RunRecord, damaged_run_error, run_record_of
from holodeck.lib import log
from holodeck.lib.errors import ExecutionError
from holodeck.lib.limits import DAY, MAX_RUNS_LISTED, STORED_RUN_DAYS

NO_RUNS = "There are no durable runs yet. Begin one with: holodeck run --durable"


class RunStore:
    """`with Shelf(home) as shelf: ...`. Nothing on it is run."""

    def __init__(self, state: LocalState) -> None:
        """Raises `ExecutionError` when there is nothing to look at."""
        if state.is_empty:
            raise ExecutionError(NO_RUNS)
        self._liveness = state.create_liveness()
        with state.lock():
            self._archive = state.open_archive()

    def list_runs(self, limit: int = MAX_RUNS_LISTED) -> Sequence[RunRecord]:
        """The newest first. Those that are damaged are left out, and the log names them."""
        found = []
        for work in self._archive.list_work(limit):
            try:
                found.append(self._record_of(work))
            except DamagedWorkError as error:
                log.warning("runs.damaged", run=work.id, error=error)
        return sorted(found, key=lambda run: run.input.started_at, reverse=True)

    def require_run(self, run_id: str) -> RunRecord:
        """Raises `ExecutionError` when there is none, `DamagedWorkError` when it cannot be read."""
        work = self._archive.find_work(run_id)
        if work is None:
            raise ExecutionError(f"There is no run '{run_id}'. See: holodeck runs list")
        return self._record_of(work)

    def require_last_interrupted(self) -> RunRecord:
        """The newest run that can be gone on with."""
        found = next((run for run in self.list_runs() if run.status == "interrupted"), None)
        if found is None:
            raise ExecutionError("No run was interrupted. See: holodeck runs list")
        return found

    def read_steps(self, run_id: str) -> Sequence[StoredStep]:
        """Raises `DamagedWorkError` when one cannot be read."""
        try:
            return self._archive.read_steps(run_id)
        except DamagedWorkError as error:
            raise damaged_run_error(run_id) from error

    def cancel(self, run: RunRecord) -> None:
        """End a run for good, wherever it is. Raises `ExecutionError` when it has ended."""
        if run.status not in {"running", "interrupted"}:
            raise ExecutionError(f"{run.id} has ended already: {run.status}.")
        self._archive.cancel(run.id)

    def delete_old(self) -> int:
        """Delete what ended long ago."""
        return self._archive.delete_older_than(time.time() - STORED_RUN_DAYS * DAY)

    def _record_of(self, work: StoredWork) -> RunRecord:
        names = self._archive.list_step_names(work.id)
        return run_record_of(work, names, is_alive=is_executor_alive(work.executor, self._liveness))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._archive.close()
