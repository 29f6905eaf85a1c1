"""Runs the `holodeck` command as a user does: as a process, with the environment of the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from installed_servers import NPM_VARIABLES
from no_network import without_network
from warm_holodeck import Forked, can_fork

LIMIT = 180.0  # seconds, after which it hangs on any machine
INHERITED = ("PATH", "LANG", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "HOLODECK_TRUST", *NPM_VARIABLES)
"""Variables of the tests that every command gets."""


def run_holodeck(
    *args: str | Path, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = "", program: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder whose parent is also the home, and return its exit code and output.

    `validate` runs where no socket to a network can be opened: it needs none.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environ = {**inherited, "HOME": str(cwd.parent), **(env or {})}
    is_offline = args[:1] == ("validate",)
    if program is None and can_fork(env or {}):
        return _fork([str(arg) for arg in args], cwd, environ, stdin, is_offline=is_offline)
    command = [*([str(program)] if program else [sys.executable, "-m", "holodeck"]), *map(str, args)]
    return subprocess.run(
        without_network(*command) if is_offline else command,
        cwd=cwd,
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def _fork(
    args: list[str], cwd: Path, environ: Mapping[str, str], stdin: str, *, is_offline: bool
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` does, for a fork."""
    pipes = [os.pipe() for _ in range(3)]
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    try:
        process = Forked(args, theirs, cwd=cwd, environ=environ, is_offline=is_offline)
    finally:
        for stream in theirs:
            os.close(stream)
    with os.fdopen(pipes[1][0]) as out, os.fdopen(pipes[2][0]) as err, ThreadPoolExecutor() as readers:
        texts = readers.submit(out.read), readers.submit(err.read)
        with suppress(BrokenPipeError), os.fdopen(pipes[0][1], "w") as inlet:
            inlet.write(stdin)
        code = process.wait(LIMIT)
    return subprocess.CompletedProcess(args, code, texts[0].result(), texts[1].result())
