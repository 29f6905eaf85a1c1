"""What we ask of an engine that makes work survive: whoever does the work may die, the work goes on elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from holodeck.lib.errors import StorageError

JSONObject = Mapping[str, Any]
"""What JSON can say, and nothing else: it is read by another process, perhaps of another version."""
Stage = Literal["waiting", "running", "ended", "unknown"]


class WorkTakenOverError(asyncio.CancelledError):
    """The rest of the work is another process's. It ends what is left here as cancellation does."""


class DamagedWorkError(StorageError):
    """What is kept of a piece of work cannot be read, and trying again would not help."""


class Checkpoints(Protocol):
    """The steps of one piece of work, always asked for in the same order."""

    async def step(self, name: str, work: Callable[[], Awaitable[JSONObject]]) -> JSONObject:
        """The result of the work, which is kept. If it was kept before, nothing is done.

        Raises `WorkTakenOverError` when somebody else has taken the work over in the meantime, or has dropped it;
        `DamagedWorkError` when it was kept before and cannot be read.
        """
        ...


Work = Callable[[str, JSONObject, Checkpoints], Awaitable[JSONObject | None]]
"""Does a piece of work, by its id, and says what it came to. Raising cancellation leaves it to somebody else."""


@dataclass(frozen=True, kw_only=True)
class WorkStatus:
    """How far a piece of work has come. `executor` is who began it last."""

    stage: Stage
    executor: str = ""
    is_other_version: bool = False
    """True for work of another version, which nobody of ours picks up."""
    is_damaged: bool = False
    """True for work that is not done because what was given for it cannot be read. While it is `running`, it may also
    be about to begin at this very moment."""


@dataclass(frozen=True, kw_only=True)
class StoredStep:
    """A step that is done. Times are seconds since 1970."""

    name: str
    result: JSONObject
    started_at: float
    ended_at: float


@dataclass(frozen=True, kw_only=True)
class StoredWork:
    """A piece of work as it stands."""

    id: str
    stage: Stage
    executor: str
    work_input: JSONObject
    outcome: JSONObject | None
    """What it came to; None when it was dropped or has failed."""
    is_cancelled: bool
    is_current_version: bool
    """False for work of another version, which is not gone on with."""
    is_damaged: bool = False
    """True when a part of it cannot be read; that part is then empty."""


class WorkArchive(Protocol):
    """All the work that is kept in one place, whoever does it. Everything raises `StorageError`."""

    def list_work(self, limit: int) -> Sequence[StoredWork]:
        """The newest work first."""
        ...

    def find_work(self, work_id: str) -> StoredWork | None: ...

    def list_step_names(self, work_id: str) -> Sequence[str]: ...

    def read_steps(self, work_id: str) -> Sequence[StoredStep]:
        """The steps that are done, in their order. Raises `DamagedWorkError` when one of them cannot be read."""
        ...

    def cancel(self, work_id: str) -> None:
        """Nobody needs this work any more. Whoever does it finds out at its next look."""
        ...

    def delete_older_than(self, before: float) -> int:
        """Delete what ended before a time, and say how much it was."""
        ...

    def close(self) -> None: ...


class WorkEngine(Protocol):
    """Keeps work, and has it done by whoever is there."""

    async def open(self, work: Work) -> None:
        """Be ready to do work: what this process is given, and what waits for anybody."""
        ...

    async def submit(self, work_id: str, work_input: JSONObject, *, queue_position: int = 1) -> bool:
        """Keep a piece of work; once this returns, it will be done. True: here; False: by whoever has room first.

        What waits for room is begun in the order of its turns, and nothing that comes later gets ahead of it.
        """
        ...

    async def read_statuses(self, work_ids: Collection[str]) -> dict[str, WorkStatus]:
        """How far each piece of work has come, and with whom."""
        ...

    async def list_started(self) -> list[str]:
        """The ids of all work that somebody has begun, and that has not ended as far as the engine knows."""
        ...

    async def take_over(self, executor: str) -> int:
        """Have the work of an executor that is gone done by whoever is there, and say how much it was."""
        ...

    async def cancel(self, work_id: str) -> None:
        """Nobody needs this work any more."""
        ...

    async def delete_older_than(self, before: float) -> int:
        """Delete what ended before a time, and say how much it was."""
        ...

    async def count_queued(self) -> int:
        """How many pieces of work nobody has begun."""
        ...

    async def close(self) -> None:
        """Take nothing more. What is not done is left to others."""
        ...


@dataclass(frozen=True, kw_only=True)
class LazyEngine:
    """An engine that is made when it is needed: loading one takes a second, and as much memory as all the rest."""

    create: Callable[[], WorkEngine]
    """Takes its time, so in a thread. Raises `StorageError`."""
    check_file_replaced: Callable[[], bool]
    """Whether what the engine writes into was deleted or replaced. It is asked once there is one."""
    has_stored_work: Callable[[], bool]
    """Whether work may be kept already, for which somebody must be there."""
