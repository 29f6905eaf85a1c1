"""What an installation weighs: packages and megabytes of the run-time tree, without the tools of development."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.table import print_table

ROOT = Path(__file__).parents[1]
LIMITS = {"packages": 50, "megabytes": 120}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = Path(folder) / "env"
        python = env / "bin" / "python"
        uv = [sys.executable, "-m", "uv", "--quiet"]
        subprocess.run([*uv, "venv", "--python", sys.executable, str(env)], check=True)
        lock = ROOT / "requirements" / "dev.lock"
        subprocess.run(
            [*uv, "pip", "install", "--python", str(python), "--constraint", str(lock), str(ROOT)], check=True
        )
        listing = [*uv, "pip", "list", "--format", "freeze", "--python", str(python)]
        listed = subprocess.run(listing, check=True, capture_output=True, text=True)
        size = sum(file.stat().st_size for file in env.rglob("*") if file.is_file() and not file.is_symlink())
    packages = len([line for line in listed.stdout.splitlines() if "==" in line or " @ " in line])
    rows = [
        ["packages", str(packages), f"under {LIMITS['packages']}"],
        ["megabytes", f"{size / 1e6:.0f}", f"under {LIMITS['megabytes']}"],
    ]
    print_table("An installation of holodeck", ["what", "measured", "bar"], rows)
