"""Commands that start servers in tests: stand-ins for npx, uvx and docker, and the command of the faulty server.

A stand-in is an executable of an allowed name that starts the server of a test instead of a package.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

from holodeck.testing.mcp.faults import Era, Fault

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

    Its own arguments do not reach the command; `stand_in_calls` returns them. By default it becomes the command,
    with its process id, signals and exit code. With `replaces_itself=False` it stays as the parent, as the real npx
    does. A `docker` starts the command for `run` only, and does nothing for `rm`, `stop` and `kill`.
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


Transport: TypeAlias = Literal["http", "sse", "websocket"]


class CommandOptions(TypedDict, total=False):
    """Options of a server process; all are optional."""

    era: Era
    on: str | None
    """The request that the fault strikes, as in `FaultSchedule`."""
    after: int
    """Number of those requests that are answered correctly first."""
    every: int | None
    """Then the fault strikes every N-th one."""
    times: int | None
    """Largest number of strikes; with a journal, counted over restarts."""
    protocol_version: str | None
    """The newest version that a legacy server speaks."""
    ttl_ms: int
    """Milliseconds for which a modern client may cache a list."""
    pid_file: Path | None
    """File for the id of every process of the server, one per line; the first is the one that was started."""
    journal: Path | None
    """File for a line about every start, message, fault and end (stdio); read it with `Journal`."""
    tasks: Path | None
    """File in which tasks survive the process (stdio)."""
    wrapped: bool
    """Runs the server as the child of a wrapper process, as npx does."""
    transport: Transport | None
    """Serves a network transport instead of stdio: prints its URL as the first line, ends when its input does."""
    sse: bool
    """Answers over streamable HTTP with streams of events, for `transport`."""
    port: int
    """The port for `transport`; a free one if absent."""


def faulty_command(mode: Fault | str, options: CommandOptions) -> list[str]:
    """Return the command that starts the faulty server, with its arguments."""
    command = [sys.executable, "-P", "-m", "holodeck.testing.faulty", "--mode", Fault(mode).value]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(flag)
        elif value is not None and value is not False:
            command += [flag, str(value)]
    return command
