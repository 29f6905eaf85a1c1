"""Choice of the file that a command reads: the one named as an argument, or the default of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE
from holodeck.config.files import file_error
from holodeck.config.gateway_loader import is_gateway
from holodeck.lib.errors import ConfigError, Problem

_INIT_HINT = "Name a file, or make an agent with 'holodeck init'."


def resolve_file(path: str | None, defaults: Sequence[str] = (DEFAULT_AGENT_FILE,), *, fix: str = _INIT_HINT) -> Path:
    """Return `path`; if it is a folder or None, the first of `defaults` that exists in it or in the current folder.

    Raises `ConfigError` with `fix` when none of several defaults exists. A single default is returned without a check:
    the loader reports that it is missing.
    """
    folder = Path(path or "")
    if path and not folder.is_dir():
        return folder
    if len(defaults) == 1:
        return folder / defaults[0]
    found = next((folder / name for name in defaults if (folder / name).is_file()), None)
    if found is None:
        message = f"there is no {', '.join(defaults[:-1])} or {defaults[-1]} {'in this folder' if path else 'here'}"
        raise ConfigError.of([Problem(message=message, file=path or "", fix=fix)])
    return found


def require_gateway_file(path: str | None) -> Path:
    """Return the gateway file that `path` names: a file, or its folder; None is the current folder.

    Raises `ConfigError` for a file of another kind.
    """
    file = resolve_file(path, [DEFAULT_GATEWAY_FILE])
    if not is_gateway(file, str(file)):
        fix = "Name the file that 'holodeck serve' reads, with -f."
        raise file_error(str(file), "this is not the file of a gateway", fix=fix)
    return file
