"""Builds the console of the gateway into every package, where it was not built before and Node.js is there.

`make console` is the way in a checkout that one works on. This is for `pip install .` and for a build of a wheel.
Without Node.js or a network, the package is built without the console, and its page says what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Seconds: two packages with some megabytes are fetched.
_LIMIT = 300


class ConsoleBuildHook(BuildHookInterface[Any]):
    """The hook that the build calls before it collects files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the console. `version` is `editable` for a checkout, which `make console` builds it in."""
        root = Path(self.root)
        source, target = root / "console", root / "src/holodeck/gateway/console/static"
        if version == "editable" or (target / "index.html").is_file() or not source.is_dir():
            return
        npm = shutil.which("npm")
        if npm is None:
            self.app.display_warning("The console of the gateway is not built: there is no npm on PATH.")
            return
        with tempfile.TemporaryDirectory() as folder:
            console = Path(folder) / "console"
            shutil.copytree(source, console, ignore=shutil.ignore_patterns("node_modules"))
            for command in ([npm, "ci", "--omit=dev", "--no-audit", "--no-fund"], [npm, "run", "build"]):
                if not self._run(command, console, target):
                    shutil.rmtree(target, ignore_errors=True)
                    return

    def _run(self, command: list[str], folder: Path, target: Path) -> bool:
        env = {**os.environ, "CONSOLE_STATIC": str(target)}
        try:
            done = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=_LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            self.app.display_warning(f"The console of the gateway is not built: npm took over {_LIMIT} seconds.")
            return False
        if done.returncode:
            self.app.display_warning(f"The console of the gateway is not built:\n{done.stderr}")
        return not done.returncode
