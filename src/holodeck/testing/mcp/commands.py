"""Stand-ins for npx, uvx and docker, so that a test can start its own server through a command that is allowed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

_BETWEEN_ARGUMENTS = "\x1f"
_BETWEEN_CALLS = "\x1e"


def stand_in(
    folder: Path,
    command: Sequence[str],
    *,
    name: Literal["npx", "uvx", "docker"] = "npx",
    replaces_itself: bool = True,
) -> dict[str, str]:
    """Write an executable of this name that starts `command`, and return the PATH under which it is found first.

    Its own arguments do not reach the command; `stand_in_calls` tells what they were. By default it becomes the
    command, with its process id, signals and exit code. With `replaces_itself=False` it stays as the parent, as
    the real npx does. A `docker` starts the command for `run` only, and does nothing for `rm`, `stop` and `kill`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / name
    calls = shlex.quote(str(_calls_file(folder, name)))
    start = shlex.join(command)
    lines = [
        "#!/bin/sh",
        f"printf '%s\\037' \"$@\" >> {calls}",
        f"printf '\\036' >> {calls}",
        *(['case "$1" in run) ;; *) exit 0 ;; esac'] if name == "docker" else []),
        f"exec {start}" if replaces_itself else f"{start}\nexit $?",
    ]
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def stand_in_calls(folder: Path, name: str = "npx") -> list[list[str]]:
    """Return the arguments of every start of the stand-in so far, in order."""
    file = _calls_file(folder, name)
    calls = file.read_text().split(_BETWEEN_CALLS)[:-1] if file.exists() else []
    return [call.split(_BETWEEN_ARGUMENTS)[:-1] for call in calls]


def _calls_file(folder: Path, name: str) -> Path:
    return folder / f".{name}.calls"
