"""Third-party programs that are measured beside ours, each in an environment of its own, created once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.processes import ROOT


def install_program(name: str, version: str, *, extra: str = "", beside: Sequence[str] = (), size: str) -> Path:
    """The program of a package of the same name, installed on first use. `size`: of the download, for people.

    `beside`: further packages of its environment.
    """
    home = ROOT / ".cache" / f"{name}-{version}"
    if not (home / ".ready").exists():
        print(f"==> Setting up {home.relative_to(ROOT)} ({size})", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", f"{name}{extra}=={version}", *beside], check=True, stderr=subprocess.DEVNULL)
        (home / ".ready").touch()
    return home / "bin" / name
