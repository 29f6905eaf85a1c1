"""Interface of an engine for durable work, which survives the process that runs it.

Work is a function with a JSON input and an id. It consists of steps, and the result of each finished step is stored
(`Checkpoints`). When the process that runs the work dies, another one takes it over: it runs the function again from
the start, and finished steps return their stored results instead of being executed.

A process is an executor, with a name. `WorkEngine` stores work and runs it in this process; `WorkArchive` reads and
manages stored work without running any. The only implementation is in `dbos_engine` and `dbos_archive`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from holodeck.lib.errors import StorageError
from holodeck.lib.record import record

JSONObject = Mapping[str, Any]
"""Values that JSON can represent: another process reads them, perhaps one of another version."""
Stage = Literal["waiting", "running", "ended", "unknown"]
_EXECUTOR_PREFIX = "holodeck-"


def executor_name(number: int) -> str:
    """Return the name of the executor with this number: of its gateway, or of its process in a folder of local runs."""
    return f"{_EXECUTOR_PREFIX}{number}"


def executor_number(name: str) -> int | None:
    """Return the number in a name of `executor_name`; None for any other name."""
    number = name.removeprefix(_EXECUTOR_PREFIX)
    return int(number) if number.isdecimal() else None


class WorkTakenOverError(asyncio.CancelledError):
    """Work was taken over by another process, or cancelled. It ends the work in this process like a cancellation."""


class DamagedWorkError(StorageError):
    """Stored work cannot be read, and a retry would not help."""


class Checkpoints(Protocol):
    """The steps of one work. Every execution of the work runs them in the same order."""

    async def step(self, name: str, work: Callable[[], Awaitable[JSONObject]]) -> JSONObject:
        """Run a step and store its result, or return the result that is stored already.

        Raises `WorkTakenOverError` when another process has taken the work over, or when it was cancelled;
        `DamagedWorkError` when the stored result cannot be read; and the exceptions of `work`.
        """
        ...

    async def store_note(self, name: str, value: JSONObject) -> None:
        """Store a value during a step, at once. Another process finds it when it runs that step again.

        Raises `WorkTakenOverError`. A note that cannot be stored is logged, and the step goes on without it.
        """
        ...

    async def find_note(self, name: str) -> JSONObject | None:
        """Return what was stored under this name during a step of this work; None if nothing was, or if it is damaged.

        Called during a step.
        """
        ...


Work = Callable[[str, JSONObject, Checkpoints], Awaitable[JSONObject | None]]
"""Runs one work, from its id and its input, and returns the outcome. When it raises a cancellation, the work is
unfinished, and another executor continues it."""


@record
class WorkStatus:
    """The progress of one work."""

    stage: Stage
    executor: str = ""
    """The executor that started it last."""
    is_other_version: bool = False
    """True for work of another version, which executors of this version do not run."""
    is_damaged: bool = False
    """True for work that does not run because its stored input cannot be read. While the stage is `running`, this may
    also be work that is just about to start."""


@record
class StoredStep:
    """A finished step. Times are seconds since 1970."""

    name: str
    result: JSONObject
    started_at: float
    ended_at: float


@record
class StoredWork:
    """One stored work with its input and outcome."""

    id: str
    stage: Stage
    executor: str
    work_input: JSONObject
    outcome: JSONObject | None
    """The result of the work; None before its end, and when it was cancelled or has failed."""
    is_cancelled: bool
    is_current_version: bool
    """False for work of another version, which cannot be resumed."""
    is_damaged: bool = False
    """True when its input or outcome cannot be read; that field is then empty."""


class WorkArchive(Protocol):
    """All work in one database, of every executor. Every method blocks, and raises `StorageError`."""

    def list_work(self, limit: int) -> Sequence[StoredWork]:
        """Return up to `limit` works, newest first."""
        ...

    def find_work(self, work_id: str) -> StoredWork | None: ...

    def list_step_names(self, work_id: str) -> Sequence[str]: ...

    def read_steps(self, work_id: str) -> Sequence[StoredStep]:
        """Return the finished steps, in their order. Raises `DamagedWorkError` when one of them cannot be read."""
        ...

    def cancel(self, work_id: str) -> None:
        """Cancel work. Its executor notices at the next step, or when it reads the status."""
        ...

    def delete_older_than(self, before: float) -> int:
        """Delete work that ended before a time, and return how many were deleted."""
        ...

    def close(self) -> None: ...


class WorkEngine(Protocol):
    """Stores work, and runs it in this process or in another executor of the same database."""

    async def open(self, work: Work) -> None:
        """Start to run work with this function: work that is submitted here, and queued work of any executor."""
        ...

    async def submit(self, work_id: str, work_input: JSONObject, *, queue_position: int = 1, owner: str = "") -> bool:
        """Store work of an owner. Once this returns, the work runs to its end, on whichever executor.

        Returns True when it starts in this process, False when it is queued for the first executor with a free slot.
        Queued work starts in the order of its positions, and work that is submitted later does not overtake it.
        """
        ...

    async def read_statuses(self, work_ids: Collection[str]) -> dict[str, WorkStatus]:
        """Return the status of each work; stage `unknown` for an id without stored work."""
        ...

    async def has_steps(self, work_id: str) -> bool:
        """Return whether a step of the work has a stored result, of any execution of it."""
        ...

    async def list_started(self) -> list[str]:
        """Return the ids of all work that was started, on any executor, and has no stored end."""
        ...

    async def take_over(self, executor: str) -> int:
        """Make the work of a dead executor available to live ones, and return how many there were."""
        ...

    async def adopt(self, work_id: str, executor: str) -> bool:
        """Take over one work of a dead executor, of any group, to start it in this process.

        Returns False, and changes nothing, if the work has ended or is not that executor's any more.
        """
        ...

    async def resume(self, work_id: str) -> None:
        """Start work again that has stopped in the process of its executor without an end, on any executor."""
        ...

    async def release(self, work_id: str) -> None:
        """Make unfinished work that has stopped in this process available to other executors."""
        ...

    async def cancel(self, work_id: str) -> None:
        """Cancel work. Its executor notices at the next step."""
        ...

    async def delete_older_than(self, before: float) -> int:
        """Delete work that ended before a time, and return how many were deleted."""
        ...

    async def delete_owned(self, owner: str) -> None:
        """Delete all work of an owner. What runs is cancelled."""
        ...

    async def count_queued(self) -> int:
        """Return the number of works that were not started yet."""
        ...

    async def close(self) -> None:
        """Start nothing more. Unfinished work stays stored, for another executor."""
        ...


@record
class LazyEngine:
    """Creates an engine on demand: importing one takes a second, and as much memory as all other modules."""

    create: Callable[[], WorkEngine]
    """Blocks, so it is called in a thread. Raises `StorageError`."""
    check_file_replaced: Callable[[], bool]
    """Whether the engine's database file was deleted or replaced. Called after `create` only."""
    has_stored_work: Callable[[], bool]
    """Whether there may be stored work, which needs an engine that runs."""
