"""Factory of stores by URL: `sqlite:///path/to/file.db`, `sqlite://:memory:` or `postgresql://...`."""

from __future__ import annotations

from pathlib import Path

from holodeck.lib.errors import ConfigError
from holodeck.models.storage_url import is_in_memory, sqlite_path
from holodeck.storage.sqlite.connection import Durability
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore


def open_store(url: str, *, folder: Path, durability: Durability = "fast") -> ResponseStore:
    """Create the store of a URL. It opens its database with the first call. Raises `ConfigError` for another scheme.

    A relative path is relative to `folder`. `durability` applies to SQLite only; PostgreSQL has `synchronous_commit`,
    a setting of the server, which is not changed here.
    """
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        if is_in_memory(url):
            return ResponseStore(SQLiteDriver(":memory:"))
        return ResponseStore(SQLiteDriver(sqlite_path(url, folder), durability=durability))
    if scheme in {"postgresql", "postgres"}:
        from holodeck.storage.postgres.driver import PostgresDriver

        return ResponseStore(PostgresDriver(url))
    raise ConfigError(f"There is no storage for '{scheme}://'. There are sqlite:///path and postgresql://host/name.")
