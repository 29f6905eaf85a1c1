"""The `holodeck` command as a person runs it: a process, with the environment that a test gives it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from no_network import without_network


def holodeck(
    *args: str | Path, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = "", program: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder whose parent is also the home, and return what it said.

    `validate` runs where no socket to a network can be opened: it needs none.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    command = [*([str(program)] if program else [sys.executable, "-m", "holodeck"]), *map(str, args)]
    return subprocess.run(
        without_network(*command) if args[:1] == ("validate",) else command,
        cwd=cwd,
        env={**kept, "HOME": str(cwd.parent), **(env or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
