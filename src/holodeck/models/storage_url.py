"""Parsing of `storage.url`: `sqlite:///path/to/file.db`, `sqlite://:memory:`, or `postgresql://...`."""

from __future__ import annotations

from pathlib import Path

# The second form is SQLAlchemy's.
_MEMORY = {"sqlite://:memory:", "sqlite:///:memory:"}


def is_in_memory(url: str) -> bool:
    """Return whether the database is in memory, and lost when the process ends."""
    return url in _MEMORY


def is_sqlite(url: str) -> bool:
    """Return whether it is a SQLite database; any other is a PostgreSQL server."""
    return url.startswith("sqlite://")


def sqlite_path(url: str, folder: Path) -> Path:
    """Return the file of a `sqlite:///...` URL. A relative path is relative to `folder`."""
    path = Path(url.partition("://")[2].removeprefix("/"))
    return path.expanduser() if path.parts[:1] == ("~",) else folder / path


def seal_key_file(url: str, folder: Path) -> Path | None:
    """Return the file for a generated seal key, beside the database; None if the database is not a file."""
    if not is_sqlite(url) or is_in_memory(url):
        return None
    path = sqlite_path(url, folder)
    return path.with_name(f"{path.name}.key")
