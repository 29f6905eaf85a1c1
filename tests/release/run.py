"""The files of a release, made from the last commit and tried: `make release`.

The commit is built twice, in two folders: the wheel and the source archive must have the same bytes both times. Each is
then installed into an empty environment of each supported Python that is on the machine, and its command is used.
`dist` gets both, the bill of materials and `SHA256SUMS`. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

from compat.run import find_interpreter
from release.sbom import build_sbom

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
PYTHONS = ("3.11", "3.12", "3.13")
_AGENT = "name: tried\nmodel: {provider: rehearsal}\ninstructions: {inline: Answer.}\n"
CONSOLE_PAGE = "holodeck/gateway/console/static/index.html"


def main(args: Sequence[str] | None = None) -> None:
    """Make a release; exit with a sentence if something of it is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for the files")
    parser.add_argument("--pythons", nargs="*", default=PYTHONS, help="the Pythons to try the files on")
    options = parser.parse_args(args)
    if changed := _run("git", "status", "--porcelain"):
        sys.exit(f"A release is made of a commit. These files are not committed:\n{changed}")
    with tempfile.TemporaryDirectory(prefix="holodeck-release-") as name:
        folder = Path(name)
        built = int(_run("git", "log", "-1", "--format=%ct"))
        print("==> Building the commit twice")
        files, again = (_build(folder / part, built) for part in ("first", "second"))
        if different := [one.name for one, other in zip(files, again, strict=True) if _digest(one) != _digest(other)]:
            sys.exit(f"Two builds of one commit differ: {', '.join(different)}. They must not depend on time or place.")
        _require_console(files)
        for version in options.pythons:
            _try(version, files, folder)
        number = files[0].name.split("-")[1]
        sbom = files[0].parent / f"holodeck_engine-{number}.cdx.json"
        sbom.write_text(build_sbom(folder / "first/sources", version=number, built=built))
        _publish([*files, sbom], options.out)


def _run(*command: str | Path, cwd: Path = ROOT, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"`{' '.join(map(str, command))}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def _build(folder: Path, built: int) -> list[Path]:
    """Build wheel and source archive of the commit in this folder, with the time of the commit in them."""
    sources, out = folder / "sources", folder / "dist"
    sources.mkdir(parents=True)
    _run("git", "archive", "--output", folder / "sources.tar", "HEAD")
    with tarfile.open(folder / "sources.tar") as archive:
        archive.extractall(sources, filter="data")
    command = (UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", out, sources)
    _run(*command, environ={"SOURCE_DATE_EPOCH": str(built)})
    return sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")], key=lambda file: file.suffix, reverse=True)


def _require_console(files: list[Path]) -> None:
    with ZipFile(files[0]) as wheel, tarfile.open(files[1]) as archive:
        if CONSOLE_PAGE not in wheel.namelist() or not any(name.endswith(CONSOLE_PAGE) for name in archive.getnames()):
            sys.exit("The console is not in the files: it is built where npm is on PATH and can fetch packages.")


def _try(version: str, files: list[Path], folder: Path) -> None:
    interpreter = find_interpreter(version)
    if interpreter is None:
        print(f"==> Python {version}: not tried, it is not on this machine")
        return
    for file in files:
        place = folder / f"{version}-{file.suffix.strip('.')}"
        _run(UV, "venv", "--quiet", "--python", interpreter, place / "env")
        lock = ROOT / "requirements/dev.lock"
        python, program = place / "env/bin/python", place / "env/bin/holodeck"
        _run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", lock, file)
        home = {"HOME": str(place), "HOLODECK_TRUST": "all"}
        said = _run(program, "--version", cwd=place, environ=home)
        (place / "agent.yaml").write_text(_AGENT)
        for command in (("validate", "--strict"), ("run", "Hello"), ("docs", "first-agent")):
            _run(program, *command, cwd=place, environ=home)
        print(f"==> Python {version}: {file.name} works ({said})")


def _publish(files: list[Path], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, out)
    sums = "".join(f"{_digest(file)}  {file.name}\n" for file in files)
    (out / "SHA256SUMS").write_text(sums)
    print(f"==> {out}\n{sums}", end="")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
