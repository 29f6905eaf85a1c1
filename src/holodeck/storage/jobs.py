"""Jobs: what the methods of the store do with a database, written once for both of them.

A job is a coroutine function of a `Connection`. It awaits statements of that connection and nothing else: SQLite runs
it on the thread of a connection, where no statement suspends it, PostgreSQL awaits it on the event loop. It may run
twice, so it has no other effect than what it writes. `read`, `statement` and `transaction` make a method of the store
out of a job: the method has the same parameters without the connection, and runs the job by the driver of its object.

SQL is that of PostgreSQL, with numbered parameters; a driver converts a text once. One function is our own:
`is_alive(COLUMN)`, whether the gateway of that id is alive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="Storing")

# A tuple, or the driver's record, which is as one.
Row = tuple[Any, ...]


class Connection(Protocol):
    """The connection of one job."""

    def fetch_row(self, sql: str, /, *values: object) -> Awaitable[Row | None]:
        """Return the first row of a query."""
        ...

    def fetch_rows(self, sql: str, /, *values: object) -> Awaitable[list[Row]]:
        """Return all rows of a query."""
        ...

    def write(self, sql: str, /, *values: object) -> Awaitable[object]:
        """Execute a statement."""
        ...

    def write_counted(self, sql: str, /, *values: object) -> Awaitable[int]:
        """Execute a statement, and return how many rows it changed."""
        ...

    def write_many(self, sql: str, rows: Iterable[Sequence[object]], /) -> Awaitable[object]:
        """Execute a statement for each of the rows of values."""
        ...

    def array(self, texts: Collection[str], /) -> object:
        """Return the value of a parameter that stands in `= ANY($1)`."""
        ...


Job = Callable[[Connection], Awaitable[T]]


class Driver(Protocol):
    """Runs jobs in one database, and says what it differs in. Every failure is a `StorageError`."""

    has_writing_queries: bool
    """Whether one statement can insert into two tables, which spares a transaction."""
    search_batch: int
    """Responses that a search fetches at once: a compromise between round trips and bytes read in vain."""

    gateway_id: int

    @property
    def unavailable_reason(self) -> str: ...

    @property
    def loss(self) -> str: ...

    def read(self, job: Job[T], *, confirms_missing: bool = False) -> Awaitable[T]:
        """Run a job that writes nothing. Its statements need not see the same state of the database."""
        ...

    def write(
        self,
        job: Job[T],
        *,
        is_one_statement: bool = False,
        is_repeatable: bool = True,
        confirms_missing: bool = False,
        exclusive_to: str | None = None,
    ) -> Awaitable[T]:
        """Run a job in a transaction, or without one if it `is_one_statement`, and return its outcome once committed.

        `is_repeatable`: it may run again where it is not known whether it was committed.
        `confirms_missing`, here and in `read`: an outcome of None or False says that a row is missing. It is returned
        only if the database is known to have lost none.
        `exclusive_to`: a caller, of which no gateway runs another such job at the same time.
        """
        ...

    def write_statement(self, sql: str, values: tuple[object, ...]) -> Awaitable[int]:
        """Execute a repeatable statement, and return how many rows it has changed, once committed.

        It changes rows for which no other gateway waits, and has no `RETURNING`: others may share its transaction.
        """
        ...

    def write_inline(self, job: Job[bool], *, is_one_statement: bool) -> bool:
        """Run a job that writes little on the thread of the event loop, if that is quick.

        Returns False, and nothing is written, if it is not, or if the outcome of the job is False.
        """
        ...

    async def require_usable(self) -> None:
        """Raise `StorageError` while the database cannot be written. Called regularly, so that a store recovers."""
        ...

    async def check_health(self) -> bool: ...

    async def close(self) -> None: ...


class Storing:
    """Base of the classes that have methods of the store."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.gateway_id = driver.gateway_id
        """The number of this gateway process. An unfinished response that it saves is assigned to it."""


_Written = Callable[Concatenate[S, Connection, P], Coroutine[Any, Any, T]]
_Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def read(*, confirms_missing: bool = False) -> Callable[[_Written[S, P, T]], _Method[S, P, T]]:
    """Make a method of a job that only reads."""

    def decorate(job: _Written[S, P, T]) -> _Method[S, P, T]:
        @wraps(job)
        def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self._driver.read(lambda db: job(self, db, *args, **kwargs), confirms_missing=confirms_missing)

        return run

    return decorate


def transaction(
    *, is_one_statement: bool = False, is_repeatable: bool = True, confirms_missing: bool = False
) -> Callable[[_Written[S, P, T]], _Method[S, P, T]]:
    """Make a method of a job that writes. For the parameters see `Driver.write`."""

    def decorate(job: _Written[S, P, T]) -> _Method[S, P, T]:
        @wraps(job)
        def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self._driver.write(
                lambda db: job(self, db, *args, **kwargs),
                is_one_statement=is_one_statement,
                is_repeatable=is_repeatable,
                confirms_missing=confirms_missing,
            )

        return run

    return decorate


def statement(
    *, is_repeatable: bool = True, confirms_missing: bool = False
) -> Callable[[_Written[S, P, T]], _Method[S, P, T]]:
    """Make a method of a job that is one writing statement, which needs no transaction."""
    return transaction(is_one_statement=True, is_repeatable=is_repeatable, confirms_missing=confirms_missing)
