"""Environments of their own for the stock clients, at the versions of their lock files; made once, under .cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from interprocess_lock import interprocess_lock

CLIENTS = Path(__file__).parent / "clients"
_CACHE = Path(__file__).parents[2] / ".cache" / "clients"
_UV = Path(sys.executable).parent / "uv"


def python_with(lock: str) -> Path:
    """The interpreter of an environment with exactly the packages of a lock file."""
    place = _CACHE / lock
    file = CLIENTS / f"{lock}.lock"
    python = place / "bin" / "python"
    with interprocess_lock(f"client-{lock}"):
        if not _is_ready(place, file):
            _run(_UV, "venv", "--quiet", "--clear", "--python", sys.executable, place)
            _run(_UV, "pip", "sync", "--quiet", "--require-hashes", "--python", python, file)
            _mark_ready(place, file)
    return python


def node_folder() -> Path:
    """A folder with the npm package and the script that uses it."""
    place = _CACHE / "npm"
    lock = CLIENTS / "package-lock.json"
    script = place / "exercise.mjs"
    with interprocess_lock("client-npm"):
        place.mkdir(parents=True, exist_ok=True)
        if not _is_ready(place, lock):
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(CLIENTS / name, place)
            npm = shutil.which("npm")
            assert npm is not None, "The tests use the npm package of OpenAI. Install Node.js (it brings npm)."
            _run(npm, "ci", "--no-audit", "--no-fund", "--silent", cwd=place)
            _mark_ready(place, lock)
        if not script.exists() or script.read_bytes() != (CLIENTS / script.name).read_bytes():
            shutil.copy(CLIENTS / script.name, place)
    return place


def _run(*command: Path | str, cwd: Path | None = None) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=cwd)


def _is_ready(place: Path, lock: Path) -> bool:
    mark = place / ".ready"
    return mark.exists() and mark.read_text() == _digest(lock)


def _mark_ready(place: Path, lock: Path) -> None:
    (place / ".ready").write_text(_digest(lock))


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()
