"""Stored durable runs: input, status, outcome and steps, and the store that reads and cancels them.

`RunStore` is a view of the archive of the durable engine; it runs nothing. `RunRecord` is one run with a status that
combines the stored stage with the liveness of its process: a run whose process is dead is `interrupted`. `RunInput`
is what a run needs to be resumed, and `RunStep` is a model turn or tool call as it is shown to a user.

`LocalState` is the local folder of durable runs. It has `runs.db`, the database of the durable engine; `alive/`, with
one lock file per process; and `runs.door`, whose lock serializes the creation and migration of the database.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from holodeck.durable.base import (
    DamagedWorkError,
    JSONObject,
    StoredStep,
    StoredWork,
    WorkArchive,
    WorkEngine,
    executor_name,
    executor_number,
)
from holodeck.lib import log
from holodeck.lib.errors import ConfigError, ExecutionError, StorageError
from holodeck.lib.extras import install_hint, is_installed
from holodeck.lib.limits import DAY, MAX_RUNS_LISTED
from holodeck.lib.record import record
from holodeck.lib.system.files import make_private_folder, open_private_file, user_state_folder, warn_if_waiting
from holodeck.models.events import RunResult
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, TextContent, decode_item, encode_item
from holodeck.storage.liveness import FileLiveness

# Questions and answers are private to the user.

# Days before an ended run is deleted. Users look at a run again within days; a gateway stores responses as long.
STORED_RUN_DAYS = 30.0
NO_RUNS = "There are no durable runs yet. Begin one with: holodeck run --durable"
RunStatus = Literal["running", "interrupted", "completed", "incomplete", "requires_action", "failed", "cancelled"]
StepStatus = Literal["done", "failed", "refused", "unknown", "under way"]


class LocalState:
    """The folder of durable runs. It creates nothing before `lock`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "runs.db"

    @property
    def is_empty(self) -> bool:
        """True before the first durable run. Reads the file system."""
        return not self.database.exists() or not self.database.stat().st_size

    def create_liveness(self) -> FileLiveness:
        return FileLiveness(self.folder / "alive")

    def create_engine(self, liveness: FileLiveness) -> WorkEngine:
        """Create the engine of this process.

        Its group is its own, so that no other process picks its runs up: a run belongs to the process that a user
        started for it.
        """
        from holodeck.durable.dbos_engine import DBOSEngine

        executor = executor_name(liveness.number)
        return DBOSEngine(self._url, executor=executor, max_running=1, group=executor)

    def open_archive(self) -> WorkArchive:
        from holodeck.durable.dbos_archive import DBOSArchive

        return DBOSArchive(self._url)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude other processes while the database is created or migrated. Waits, with a warning, for another one.

        Raises `StorageError` when the folder or its lock file cannot be created.
        """
        try:
            make_private_folder(self.folder)
            handle = open_private_file(self.folder / "runs.door", os.O_RDWR)
        except OSError as error:
            raise StorageError(f"Durable runs cannot be kept in {self.folder}: {error.strerror}.") from None
        try:
            with warn_if_waiting(self.database):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.database.absolute()}"


def find_local_state(environ: Mapping[str, str]) -> LocalState:
    """Return the state in `user_state_folder`. Raises `ConfigError` if the extra for durable runs is not installed."""
    if not is_installed("durable"):
        raise ConfigError(f"Durable runs need an extra: {install_hint('durable')}.")
    return LocalState(user_state_folder(environ))


def is_executor_alive(executor: str, liveness: FileLiveness) -> bool:
    """Return whether the process of an executor is alive. False for a name that is not one of `executor_name`."""
    number = executor_number(executor)
    return number is not None and liveness.is_alive(number)


@record
class RunInput:
    """Everything that a run needs to be executed again."""

    agent: str
    """Name of the agent."""
    file: Path | None
    """The absolute path of the agent file. None: a program has run the agent, and only it can resume the run."""
    digest: str
    """The digest of the agent file, or of the agent in code, when the run started."""
    question: tuple[Item, ...]
    started_at: float
    """Seconds since 1970."""
    history: tuple[Item, ...] = ()
    """The conversation before the question."""
    max_turns: int | None = None

    @property
    def text(self) -> str:
        """Text of the question."""
        return "\n".join(item.text for item in self.question if isinstance(item, Message))

    @property
    def has_file_changed(self) -> bool:
        """Whether the agent file has changed since the start. Raises `ExecutionError` when it cannot be read."""
        if self.file is None:
            return False
        try:
            return file_digest(self.file) != self.digest
        except OSError as error:
            raise ExecutionError(
                f"The agent file of this run cannot be read: {self.file}: {error.strerror}. "
                "Put it back to go on with the run."
            ) from None

    def to_json(self) -> JSONObject:
        return {
            "agent": self.agent,
            "file": None if self.file is None else str(self.file),
            "digest": self.digest,
            "question": [encode_item(item) for item in self.question],
            "history": [encode_item(item) for item in self.history],
            "began": self.started_at,
            "max_turns": self.max_turns,
        }


@record
class RunRecord:
    """One run."""

    id: str
    input: RunInput
    status: RunStatus
    is_current_version: bool
    """False for a run of a HoloDeck with another order of steps: it cannot be resumed."""
    outcome: JSONObject
    """The result of `outcome_to_json`; empty before the end."""
    steps: int
    """The number of finished turns and calls."""

    @property
    def agent(self) -> str:
        """Name of the agent."""
        return self.input.agent

    @property
    def question(self) -> str:
        """Text of the question."""
        return self.input.text

    @property
    def started_at(self) -> float:
        """When the run started, in seconds since 1970."""
        return self.input.started_at

    @property
    def text(self) -> str:
        """Text of the answer; empty before the end."""
        return str(self.outcome.get("text", ""))

    @property
    def reason(self) -> str:
        """Why the run is not completed, as a text for users; empty when it is."""
        return str(self.outcome.get("error") or self.outcome.get("reason") or "")

    def require_resumable(self) -> None:
        """Raise `ExecutionError` when the run cannot be resumed."""
        if self.status == "running":
            raise ExecutionError(f"{self.id} is running in another process; nothing was done here.")
        if self.status != "interrupted":
            raise ExecutionError(f"{self.id} has ended: {self.status}. See: holodeck runs show {self.id}")
        if not self.is_current_version:
            raise ExecutionError(f"{self.id} was begun by another version of HoloDeck, which must go on with it.")


@record
class RunStep:
    """A turn of the model, or a call of a tool."""

    kind: Literal["turn", "call"]
    name: str
    """`1` for the first turn; the tool's name for a call."""
    status: StepStatus
    """`unknown`: the process ended before the call had an answer. `under way`: it was sent, and has no answer yet."""
    started_at: float
    seconds: float
    arguments: str = ""
    """The arguments of a call, as the model wrote them."""
    result: str = ""
    """The text of a turn or of a tool's output, or the reason of a failure."""


class RunStore:
    """All durable runs of a user: `with RunStore(state) as runs: ...`. Its methods block, and run nothing."""

    def __init__(self, state: LocalState) -> None:
        """Open the archive. Raises `ExecutionError` when there are no runs, and `StorageError`."""
        if state.is_empty:
            raise ExecutionError(NO_RUNS)
        self._liveness = state.create_liveness()
        with state.lock():
            self._archive = state.open_archive()

    def list_runs(self, limit: int = MAX_RUNS_LISTED) -> Sequence[RunRecord]:
        """Return the newest runs, by their start. Damaged ones are skipped, and named in the log."""
        found = []
        for work in self._archive.list_work(limit):
            try:
                found.append(self._record_of(work))
            except DamagedWorkError as error:
                log.warning("runs.damaged", run=work.id, error=error)
        return sorted(found, key=lambda run: run.input.started_at, reverse=True)

    def require_run(self, run_id: str) -> RunRecord:
        """Return a run. Raises `ExecutionError` when there is none, `DamagedWorkError` when it cannot be read."""
        work = self._archive.find_work(run_id)
        if work is None:
            raise ExecutionError(f"There is no run '{run_id}'. See: holodeck runs list")
        return self._record_of(work)

    def require_last(self) -> RunRecord:
        """Return the newest run. Raises `ExecutionError` when there is none."""
        found = next(iter(self.list_runs()), None)
        if found is None:
            raise ExecutionError(NO_RUNS)
        return found

    def require_last_interrupted(self) -> RunRecord:
        """Return the newest interrupted run of an agent file. Raises `ExecutionError` when there is none."""
        runs = (run for run in self.list_runs() if run.input.file is not None)
        found = next((run for run in runs if run.status == "interrupted"), None)
        if found is None:
            raise ExecutionError("No run was interrupted. See: holodeck runs list")
        return found

    def read_steps(self, run_id: str) -> Sequence[StoredStep]:
        """Return the finished steps of a run. Raises `DamagedWorkError` when one cannot be read."""
        try:
            return self._archive.read_steps(run_id)
        except DamagedWorkError as error:
            raise damaged_run_error(run_id) from error

    def cancel(self, run: RunRecord) -> None:
        """Cancel a run for good, in whichever process it runs. Raises `ExecutionError` when it has ended."""
        if run.status not in {"running", "interrupted"}:
            raise ExecutionError(f"{run.id} has ended already: {run.status}.")
        self._archive.cancel(run.id)

    def delete_old(self) -> int:
        """Delete runs that ended more than `STORED_RUN_DAYS` ago, and return how many were deleted."""
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


def resume_hint(run_id: str, run_input: RunInput) -> str:
    """Return how a run is resumed: a command, or the call of the program that has started it."""
    if run_input.file is None:
        return f"holodeck.runs.resume({run_id!r}, agent), in the program of the agent '{run_input.agent}'"
    return f"holodeck runs resume {run_id}"


def file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def outcome_to_json(result: RunResult) -> dict[str, Any]:
    """Return the result of a run as JSON, without its items, which are in its steps."""
    return {
        "status": result.status,
        "text": result.text,
        "reason": result.reason,
        "error": result.error.message if result.error is not None else "",
        "turns": result.turns,
        "tool_calls": result.tool_calls,
        "usage": {**asdict(result.usage), "total_tokens": result.usage.total_tokens},
    }


def run_input_of(work_input: JSONObject) -> RunInput:
    stored, file = work_input["question"], work_input["file"]
    # Older versions have stored one message, and no history.
    question = [stored] if isinstance(stored, Mapping) else stored
    return RunInput(
        agent=work_input["agent"],
        file=None if file is None else Path(file),
        digest=work_input["digest"],
        question=tuple(decode_item(item) for item in question),
        history=tuple(decode_item(item) for item in work_input.get("history", ())),
        started_at=work_input["began"],
        max_turns=work_input["max_turns"],
    )


def damaged_run_error(run_id: str) -> DamagedWorkError:
    return DamagedWorkError(
        f"What is kept of {run_id} is damaged, and it is neither shown nor gone on with. Restore a copy of the "
        f"database, or begin the run anew."
    )


def run_record_of(work: StoredWork, step_names: Sequence[str], *, is_alive: bool) -> RunRecord:
    """Return the record of stored work. Raises `DamagedWorkError` when the work cannot be read."""
    if work.is_damaged:
        raise damaged_run_error(work.id)
    try:
        run_input = run_input_of(work.work_input)
    except (LookupError, TypeError, ValueError) as error:
        raise damaged_run_error(work.id) from error
    return RunRecord(
        id=work.id,
        input=run_input,
        status=_run_status(work, is_alive=is_alive),
        is_current_version=work.is_current_version,
        outcome=work.outcome or {},
        steps=count_steps(step_names),
    )


def count_steps(names: Sequence[str]) -> int:
    """Return the number of turns and calls. The engine has a further step before each call, which is not counted."""
    return sum(name.startswith(("turn ", "call ")) for name in names)


def _run_status(work: StoredWork, *, is_alive: bool) -> RunStatus:
    if work.is_cancelled:
        return "cancelled"
    if work.stage == "running" and is_alive:
        return "running"
    if work.stage in {"running", "waiting"}:
        return "interrupted"
    status: RunStatus = work.outcome["status"] if work.outcome else "failed"
    return status


def build_run_steps(stored: Sequence[StoredStep]) -> list[RunStep]:
    """Return the turns and calls of a run, in the order of their start.

    A call has two stored steps, one before it is sent and one with its answer. The first counts only while there is no
    second one.
    """
    calls = {call.id: call for step in stored for call in _calls_in_step(step)}
    answered = {step.name.partition(" ")[2] for step in stored if step.name.startswith("call ")}
    steps: list[RunStep] = []
    for step in stored:
        kind, _, key = step.name.partition(" ")
        if kind == "turn":
            steps.append(_turn_step(step, key))
        elif key in calls and (kind == "call" or key not in answered):
            steps.append(_call_step(step, calls[key], is_answered=kind == "call"))
    return steps


def _turn_step(step: StoredStep, number: str) -> RunStep:
    failure = step.result.get("failed")
    messages = [item.text for item in _items_in_step(step) if isinstance(item, Message)]
    calls = ", ".join(call.name for call in _calls_in_step(step))
    text = " ".join([*messages, f"asks for {calls}" if calls else ""]).strip()
    return RunStep(
        kind="turn",
        name=number,
        status="failed" if failure else "done",
        started_at=step.started_at,
        seconds=step.ended_at - step.started_at,
        result=str(failure) if failure else text,
    )


def _call_step(step: StoredStep, call: FunctionCall, *, is_answered: bool) -> RunStep:
    status, text = _answered_outcome(step.result) if is_answered else _unanswered_outcome(step.result)
    return RunStep(
        kind="call",
        name=call.name,
        status=status,
        started_at=step.started_at,
        seconds=step.ended_at - step.started_at if is_answered else 0.0,
        arguments=call.arguments,
        result=text,
    )


def _answered_outcome(result: Mapping[str, Any]) -> tuple[StepStatus, str]:
    output = decode_item(result["output"])
    assert isinstance(output, FunctionCallOutput)  # noqa: S101 - it was written as one
    text = "\n".join(part.text if isinstance(part, TextContent) else f"[{part.type}]" for part in output.content)
    if result.get("metadata", {}).get("outcome") == "unknown":
        return "unknown", text
    return ("failed" if output.is_error else "done"), text


def _unanswered_outcome(result: Mapping[str, Any]) -> tuple[StepStatus, str]:
    return ("refused", str(result["refusal"])) if "refusal" in result else ("under way", "")


def _calls_in_step(step: StoredStep) -> Iterator[FunctionCall]:
    return (item for item in _items_in_step(step) if isinstance(item, FunctionCall))


def _items_in_step(step: StoredStep) -> list[Any]:
    return [decode_item(event["item"]) for event in step.result.get("events", ()) if event["type"] == "item.finished"]
