"""A store with many finished runs, made quickly: one real run, then copies of its rows under other ids."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.postgres_server import PostgresServer

_WORK = (("workflow_status", "workflow_uuid"), ("operation_outputs", "workflow_uuid"))
_RESPONSES = ("responses", "id")
_SCHEMA = "holodeck_work"


def fill_sqlite(path: Path, run_id: str, copies: int) -> None:
    """`path` is the gateway's file; the engine's is beside it."""
    _fill_file(path, (_RESPONSES,), run_id, copies)
    _fill_file(path.with_name(path.name + ".work"), _WORK, run_id, copies)


def fill_postgres(server: PostgresServer, name: str, run_id: str, copies: int) -> None:
    for schema, (table, key) in (("public", _RESPONSES), *((_SCHEMA, each) for each in _WORK)):
        found = server.administer(
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_schema = '{schema}' AND table_name = '{table}' AND is_generated = 'NEVER'",
            name,
        )
        columns = [str(column) for (column,) in found]
        series = f"generate_series(1, {copies}) AS copy(n)"
        server.administer(_copy(f"{schema}.{table}", key, columns, series, run_id), name)
    server.administer("ANALYZE", name)


def _fill_file(path: Path, tables: tuple[tuple[str, str], ...], run_id: str, copies: int) -> None:
    db = sqlite3.connect(path)
    try:
        for table, key in tables:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            series = (
                f"(WITH RECURSIVE copy(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < {copies}) "
                "SELECT n FROM copy) AS copy"
            )
            db.execute(_copy(table, key, columns, series, run_id))
        db.commit()
    finally:
        db.close()


def _copy(table: str, key: str, columns: list[str], series: str, run_id: str) -> str:
    names = ", ".join(columns)
    values = ", ".join(f"{column} || '-' || copy.n" if column == key else f"one.{column}" for column in columns)
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} AS one, {series} WHERE one.{key} = '{run_id}'"
