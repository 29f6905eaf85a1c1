"""The Python files that a function's file can import from its own folder, each with the hash of its content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.limits import MIB
from holodeck.lib.system.files import read_regular_file

# Files of one folder: a project has dozens. More are those of an environment or of a data set.
MAX_CODE_FILES = 2_000
# Bytes of one file: extension modules are large.
MAX_CODE_BYTES = 256 * MIB

CODE_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_NOT_PACKAGES = frozenset({"__pycache__", "node_modules"})


def hash_code_files(folder: Path) -> dict[Path, str]:
    """Return the SHA-256 of each file below `folder` that Python can import from there.

    Raises `ConfigError` for more than `MAX_CODE_FILES` files. A file that cannot be read is left out, and therefore
    cannot be imported either.
    """
    found: dict[Path, str] = {}
    for path in walk_code_files(folder):
        if len(found) == MAX_CODE_FILES:
            message = f"the folder of this function has more than {MAX_CODE_FILES:,} Python files that it could import"
            raise ConfigError.of([Problem(message=message, fix="Put the functions into a folder of their own.")])
        try:
            data = read_regular_file(path, MAX_CODE_BYTES)
        except OSError:
            continue
        found[path] = sha256(data).hexdigest()
    return found


def walk_code_files(folder: Path) -> Iterator[Path]:
    """Yield each file below `folder` that Python can import from there, in a stable order."""
    return _walk(folder, set())


def is_package_name(name: str) -> bool:
    """Return whether a folder of this name can be a package: `site-packages` and `.venv` cannot."""
    return name.isidentifier() and name not in _NOT_PACKAGES


def _walk(folder: Path, seen: set[str]) -> Iterator[Path]:
    # A link may lead to a folder above.
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(CODE_SUFFIXES):
            yield folder / entry.name
        elif is_package_name(entry.name) and entry.is_dir():
            yield from _walk(folder / entry.name, seen)
