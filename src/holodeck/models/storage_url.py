"""What a `storage.url` leads to: `sqlite:///path/to/file.db`, `sqlite://:memory:`, or `postgresql://...`."""

from __future__ import annotations

from pathlib import Path

_MEMORY = {"sqlite://:memory:", "sqlite:///:memory:"}  # the second is how SQLAlchemy's users write it


def is_in_memory(url: str) -> bool:
    """Whether nothing is kept when the process ends."""
    return url in _MEMORY


def is_sqlite(url: str) -> bool:
    """Whether it is a SQLite database; any other is a PostgreSQL server."""
    return url.startswith("sqlite://")


def sqlite_path(url: str, folder: Path) -> Path:
    """The file that a `sqlite:///...` names. A relative path is relative to `folder`."""
    path = Path(url.partition("://")[2].removeprefix("/"))
    return path.expanduser() if path.parts[:1] == ("~",) else folder / path


def seal_key_file(url: str, folder: Path) -> Path | None:
    """The file beside the database in which a gateway keeps the key that it has made; None: the database is no file."""
    if not is_sqlite(url) or is_in_memory(url):
        return None
    path = sqlite_path(url, folder)
    return path.with_name(f"{path.name}.key")
