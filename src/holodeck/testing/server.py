"""`FaultyMCPServer`: the misbehaving MCP server that tests start, steer and question."""

from __future__ import annotations

import sys
from pathlib import Path

from holodeck.testing.faults import Era, Fault


class FaultyMCPServer:
    """An MCP server that misbehaves in one chosen way."""

    @classmethod
    def command(
        cls,
        mode: Fault | str = Fault.NORMAL,
        *,
        era: Era = "legacy",
        on: str | None = None,
        after: int = 0,
        every: int | None = None,
        times: int | None = None,
        protocol_version: str | None = None,
        ttl_ms: int = 0,
        pid_file: Path | None = None,
        journal: Path | None = None,
        wrapped: bool = False,
    ) -> list[str]:
        """Return the command that starts the server on standard input and output.

        `on`, `after`, `every` and `times` say when the fault strikes, as in `Plan`; with a `journal`, `times` is
        counted over restarts. `pid_file` gets the id of every process of the server, one per line. `journal` gets
        a line for every start, message, fault and end: read it with `Journal`. `wrapped` puts a parent in front.
        """
        options: dict[str, object | None] = {
            "--mode": Fault(mode).value,
            "--era": era,
            "--on": on,
            "--after": after or None,
            "--every": every,
            "--times": times,
            "--protocol-version": protocol_version,
            "--ttl-ms": ttl_ms or None,
            "--pid-file": pid_file,
            "--journal": journal,
        }
        given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
        return [sys.executable, "-m", "holodeck.testing.faulty", *given, *(["--wrapped"] if wrapped else [])]
