"""The file that a command is about: the one that is named, or the usual one of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holodeck.config.loader import DEFAULT_AGENT_FILE
from holodeck.lib.errors import ConfigError, Problem

_INIT = "Name a file, or make an agent with 'holodeck init'."


def file_or_usual(named: str | None, usual: Sequence[str] = (DEFAULT_AGENT_FILE,), *, fix: str = _INIT) -> Path:
    """The file that is named; in a folder, or when nothing is named, the first of the usual ones that is there.

    Raises `ConfigError` when none of several is there. A single one is for whoever reads it to miss.
    """
    folder = Path(named or "")
    if named and not folder.is_dir():
        return folder
    if len(usual) == 1:
        return folder / usual[0]
    found = next((folder / name for name in usual if (folder / name).is_file()), None)
    if found is None:
        message = f"there is no {', '.join(usual[:-1])} or {usual[-1]} {'in this folder' if named else 'here'}"
        raise ConfigError.of([Problem(message=message, file=named or "", fix=fix)])
    return found
