"""Jobs: what the methods of the store do with a database, and the form of the values that they store, for both of them.

A job is a coroutine function of a `Connection`. It awaits statements of that connection and nothing else: SQLite runs
it on the thread of a connection, where no statement suspends it, PostgreSQL awaits it on the event loop. It may run
twice, so it has no other effect than what it writes. `read`, `statement` and `transaction` make a method of the store
out of a job: the method has the same parameters without the connection, and runs the job by the driver of its object.

SQL is that of PostgreSQL, with numbered parameters; a driver converts a text once. One function is our own:
`is_alive(COLUMN)`, whether the gateway of that id is alive.

A stored value of bytes has a checksum in front, so that no changed byte is served: one byte for its form, the CRC-32 of
the rest, and its bytes: as they are, compressed, or without what they share with another value of the same record, its
base, which is a dictionary for zlib. A disk that changes some bytes is noticed but for one case in four billion. It is
no protection against an attacker: a program that can write to the database can write a checksum as well.

Streams are compressed, which are many times as long as their text, and what is returned of a response has its items as
its base. Other values are not compressed: SQL measures them for limits of memory, and their length in the database
would say little about that.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import KIB

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

    is_shared: bool
    """Whether other processes may use the same database."""
    checks_before_takeover: int
    """Checks in a row at which a gateway must be missing before it counts as dead."""

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

    async def erase_caller(self, caller_id: str) -> None:
        """Delete what these tables have of a caller. Idempotent. A class whose tables name callers has its own."""


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


CHECK_BYTES = 5
"""Bytes that a value takes beside its own."""
INLINE_BYTES = 64 * KIB
"""Size up to which a record may be encoded and written on the event loop's thread."""
# Size from which a value is compressed where it may be: writing the bytes to two files costs more than that.
_COMPRESSED_FROM = 1 * KIB
# Sizes between which a value is stored without what its base has. A shorter one gains too little. zlib sees 32 KiB
# back, and a longer one that shares nothing with its base would take too long.
_MIN_BASED = 256
_MAX_BASED = 16 * KIB
# Size of a value with its base up to which zlib gets a small window: to clear the memory of the largest one costs more
# than all the rest.
_SMALL_WINDOW = 8 * KIB
# The fastest: a stream of small pieces of text shrinks to less than a tenth at any level.
_LEVEL = 1

# One changed bit makes none of them another one: the checksum does not cover the form.
_PLAIN = 1
_COMPRESSED = 2
_BASED = 4


class DamagedValueError(StorageError):
    """A stored value is not as it was written. Its text names the record."""


def encode_value(data: bytes, *, may_compress: bool = False, base: bytes = b"") -> bytes:
    """Return a value as it is stored. The same bytes, with the same base, always have the same form.

    `base`: bytes that `decode_value` gets again.
    """
    form = _PLAIN
    if may_compress and len(data) >= _COMPRESSED_FROM:
        form, data = _COMPRESSED, zlib.compress(data, _LEVEL)
    elif base and _MIN_BASED <= len(data) <= _MAX_BASED:
        is_small = len(base) + len(data) <= _SMALL_WINDOW
        bits, memory = (13, 5) if is_small else (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
        encoder = zlib.compressobj(_LEVEL, zlib.DEFLATED, bits, memory, zdict=base)
        form, data = _BASED, encoder.compress(data) + encoder.flush()
    return b"%c%b%b" % (form, zlib.crc32(data).to_bytes(4), data)


def decode_value(stored: object, record: str, *, base: bytes = b"") -> bytes:
    """Return a value that was read. Raises `DamagedValueError`, and logs it, naming `record`."""
    if isinstance(stored, bytes) and len(stored) >= CHECK_BYTES:
        data = stored[CHECK_BYTES:]
        if zlib.crc32(data) == int.from_bytes(stored[1:CHECK_BYTES]):
            if stored[0] == _PLAIN:
                return data
            if stored[0] == _COMPRESSED:
                return zlib.decompress(data)
            if stored[0] == _BASED:
                # `zlib.error`: its base is another one.
                with suppress(zlib.error):
                    return zlib.decompressobj(zdict=base).decompress(data)
    log.error("storage.value_damaged", record=record)
    raise DamagedValueError(
        f"What is stored of '{record}' is damaged: its checksum is another. Restore a backup: see 'A damaged file' in "
        "docs/operate/backup-and-restore.md.",
        reason="a stored value is damaged",
    )


def encode_optional(data: bytes | None) -> bytes | None:
    """Return `encode_value` of a value that may be missing."""
    return None if data is None else encode_value(data)


def decode_optional(stored: object, record: str) -> bytes | None:
    """Return `decode_value` of a value that may be missing."""
    return None if stored is None else decode_value(stored, record)
