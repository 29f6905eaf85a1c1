"""Compatibility of DBOS with SQLite before 3.42, the version of Debian 12.

With Python 3.12 and later, DBOS uses `unixepoch('subsec')`, which is NULL in these versions, so that it stores nothing.
`install_clock` adds a replacement of that function to the connections that DBOS opens, and to no others.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from dbos._sys_db_sqlite import SQLiteSystemDatabase
from sqlalchemy import Engine, event

_FIRST_WITH_FRACTIONS = (3, 42, 0)
# Digits after the decimal point, as in SQLite.
_MILLISECONDS = 3

_create_engine = SQLiteSystemDatabase._create_engine


def install_clock() -> None:
    """Patch DBOS for the rest of the process, where the SQLite of this process needs it. May be called repeatedly."""
    if sqlite3.sqlite_version_info < _FIRST_WITH_FRACTIONS:
        SQLiteSystemDatabase._create_engine = _create_engine_with_clock  # type: ignore[assignment, method-assign] # no hook


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
