"""Reading of files that a user named, within a limit of bytes. Every failure is a `ConfigError`.

Every configuration file is read here, so that `record_paths` knows on which files a configuration depends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.limits import KIB, MIB
from holodeck.lib.system.files import NotRegularFileError, read_regular_file

# Largest configuration file. An agent file is a page of text; a larger file is a mistake or an attack.
MAX_FILE_BYTES = 4 * MIB

_MISSING = "Check the name."
_recorded_paths: ContextVar[set[Path] | None] = ContextVar("recorded_paths", default=None)


@contextmanager
def record_paths() -> Iterator[set[Path]]:
    """Collect the absolute paths of all files that are read, or looked for, during a `with` block.

    The set also has the files of a configuration that turns out to be wrong.
    """
    paths: set[Path] = set()
    token = _recorded_paths.set(paths)
    try:
        yield paths
    finally:
        _recorded_paths.reset(token)


def record_path(path: Path) -> None:
    """Add a file to the set of `record_paths`: one that is read elsewhere, or that is used once it exists."""
    paths = _recorded_paths.get()
    if paths is not None:
        paths.add(path.absolute())


def read_text(path: Path, shown_as: str, limit: int = MAX_FILE_BYTES, *, missing: str = _MISSING) -> str:
    """Return the text of a UTF-8 file, with or without a byte-order mark.

    Raises `ConfigError`, as `read_bytes` does.
    """
    return decode_text(read_bytes(path, shown_as, limit, missing=missing), shown_as)


def read_bytes(path: Path, shown_as: str, limit: int = MAX_FILE_BYTES, *, missing: str = _MISSING) -> bytes:
    """Return the bytes of a file. Raises `ConfigError` for one that is missing, no regular file, or over `limit` bytes.

    `shown_as` is the name of the file in errors, `missing` the fix for a missing one.
    """
    record_path(path)
    try:
        data = read_regular_file(path, limit + 1)
    except FileNotFoundError:
        raise file_error(shown_as, "there is no such file", fix=missing) from None
    except NotRegularFileError as error:
        raise file_error(shown_as, str(error)) from None
    except (OSError, ValueError) as error:
        raise file_error(
            shown_as, f"the file cannot be read: {getattr(error, 'strerror', None) or 'bad name'}"
        ) from None
    if len(data) > limit:
        size = f"{limit // MIB} MB" if limit >= MIB else f"{limit // KIB} KB"
        raise file_error(shown_as, f"the file is larger than {size}")
    return data


def decode_text(data: bytes, shown_as: str) -> str:
    """Return the text of UTF-8 data, with or without a byte-order mark. Raises `ConfigError`, with the position."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        raise file_error(
            shown_as,
            "the file is not UTF-8 text",
            fix="Save it as UTF-8.",
            line=before.count(b"\n") + 1,
            column=error.start - (before.rfind(b"\n") + 1) + 1,
        ) from None


def file_error(
    shown_as: str, message: str, *, fix: str = "", line: int | None = None, column: int | None = None
) -> ConfigError:
    """Return a `ConfigError` with one problem of a file."""
    return ConfigError.of([Problem(message=message, file=shown_as, fix=fix, line=line, column=column)])
