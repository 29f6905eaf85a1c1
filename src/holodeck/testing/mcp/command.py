"""The command that starts the misbehaving server as a process, written from the same options that it reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

from holodeck.testing.mcp.faults import Era, Fault

Transport: TypeAlias = Literal["http", "sse", "websocket"]


class CommandOptions(TypedDict, total=False):
    """What can be said about a server process; all of it may be left out."""

    era: Era
    on: str | None
    """The request that the fault strikes, as in `FaultSchedule`."""
    after: int
    """So many of those requests are answered well first."""
    every: int | None
    """Then each so-manieth is struck."""
    times: int | None
    """At most so often; with a journal, counted over restarts."""
    protocol_version: str | None
    """The newest version that a legacy server speaks."""
    ttl_ms: int
    """For how long a modern client may keep a list."""
    pid_file: Path | None
    """Gets the id of every process of the server, one per line, the one that was started first."""
    journal: Path | None
    """Gets a line for every start, message, fault and end (stdio): read it with `Journal`."""
    wrapped: bool
    """Puts a parent in front, as under npx."""
    transport: Transport | None
    """Serves a network transport instead of stdio: prints its URL as the first line, ends when its input does."""
    port: int
    """The port for that; absent, a free one."""


def faulty_command(mode: Fault | str, options: CommandOptions) -> list[str]:
    """Return the command and its arguments."""
    command = [sys.executable, "-m", "holodeck.testing.faulty", "--mode", Fault(mode).value]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(flag)
        elif value is not None and value is not False:
            command += [flag, str(value)]
    return command
