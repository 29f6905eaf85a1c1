"""DBOS on a SQLite before 3.42, as Debian 12 has it: there `unixepoch('subsec')` is NULL, and DBOS keeps nothing.

It asks for the time in this way with Python 3.12 and later. Its own connections, and no others, get one that tells it.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from dbos._sys_db_sqlite import SQLiteSystemDatabase
from sqlalchemy import Engine, event

_FIRST_WITH_FRACTIONS = (3, 42, 0)
_MILLISECONDS = 3  # digits, as SQLite has them


_create_engine = SQLiteSystemDatabase._create_engine


def install_clock() -> None:
    """Whatever DBOS opens from now on knows the time."""
    if sqlite3.sqlite_version_info < _FIRST_WITH_FRACTIONS:
        SQLiteSystemDatabase._create_engine = _create_engine_with_clock  # type: ignore[assignment, method-assign] # no other door


def _create_engine_with_clock(
    database: SQLiteSystemDatabase, system_database_url: str, engine_kwargs: dict[str, Any]
) -> Engine:
    engine = _create_engine(database, system_database_url, engine_kwargs)
    event.listen(engine, "connect", _add_clock)
    return engine


def _add_clock(connection: sqlite3.Connection, _record: object) -> None:
    connection.create_function("unixepoch", 1, _unixepoch)


def _unixepoch(modifier: str) -> float | None:
    return round(time.time(), _MILLISECONDS) if modifier == "subsec" else None
