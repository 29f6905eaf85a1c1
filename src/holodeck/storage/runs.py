"""The index of runs: one narrow row for each stored response, for lists and searches.

A row is written in the transaction that stores its response (`StoredResponse.run`), and deleted with it. It has what a
list shows and filters by; the response itself is read only for one run. Responses that were stored before the index
existed are not in it.

A page is found by position, newest first: the time and the id of the run before it. A search by anything but caller,
time and the rare statuses looks at no more than `SEARCHED_RUNS` runs; the page then says where the next one goes on.
"""

from __future__ import annotations

from typing import Protocol

from holodeck.lib.record import record

# Runs that one page of a search looks at. SQLite filters so many in about 50 ms, in which other reads wait.
SEARCHED_RUNS = 20_000

Position = tuple[float, str]
"""Where a run is in the index: its time and its id."""


@record
class StoredRun:
    """The row of one run."""

    id: str
    owner: str
    created_at: float
    """The same as that of its response."""
    status: str
    model: str
    servers: tuple[str, ...] = ()
    """Names of the MCP servers that it called. None of the names has a line break."""
    tools: tuple[str, ...] = ()
    """Names of the tools that it called."""
    question: str = ""
    """The beginning of the question."""
    answer: str = ""
    """The beginning of the answer."""
    details: bytes = b"{}"
    """What is only shown; JSON, encoded by the gateway."""

    @property
    def position(self) -> Position:
        return (self.created_at, self.id)


@record
class RunQuery:
    """Which runs a page has: those that match all of this."""

    owner: str | None
    """The caller. None: all callers."""
    limit: int
    after: Position | None = None
    """The last run of the page before, or where it went on."""
    status: str | None = None
    model: str | None = None
    tool: str | None = None
    server: str | None = None
    text: str | None = None
    """A part of the question's or the answer's beginning, in lower or upper case."""
    created_after: float | None = None
    created_before: float | None = None


@record
class RunPage:
    """A page of runs, newest first."""

    runs: tuple[StoredRun, ...]
    goes_on_after: Position | None = None
    """The position after which the next page begins. None: there is no further run."""


class RunIndex(Protocol):
    """Reads the index of runs. Every failure is a `StorageError`."""

    async def list_runs(self, query: RunQuery) -> RunPage: ...

    async def get_run(self, run_id: str, caller_id: str | None) -> StoredRun | None:
        """The run of this id. `caller_id`: of which caller; None: of any."""
        ...
