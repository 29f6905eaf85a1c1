"""No Python file of the current folder is imported, whichever way the command is started."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import holodeck
from holodeck.testing import FaultyMCPServer, stand_in

PROGRAM = Path(sys.executable).with_name("holodeck")
# What the command depends on, and what Python itself would import first.
PACKAGES = ["click", "yaml", "orjson", "pydantic", "pydantic_core", "httpx", "uvloop", "rich", "holodeck_x"]
STANDARD = ["typing", "__future__", "json", "subprocess", "asyncio", "dataclasses", "re", "pathlib", "enum", "signal"]
WAYS = {
    "python -m": [sys.executable, "-m", "holodeck"],
    "the program": [str(PROGRAM)],
    "python -P -m": [sys.executable, "-P", "-m", "holodeck"],
}


class PoisonedFolder:
    """A project in which modules of well-known names write a file when they are imported."""

    def __init__(self, root: Path) -> None:
        self.path, self.marker = root / "clone", root / "was-imported"
        self.path.mkdir()
        poison = f"open({str(self.marker)!r}, 'a').write(__name__ + ' ')\n"
        for name in (*PACKAGES, *STANDARD, "sitecustomize"):
            (self.path / f"{name}.py").write_text(poison)
        (self.path / "pydantic").mkdir()
        (self.path / "pydantic" / "__init__.py").write_text(poison)
        path = stand_in(root / "bin", FaultyMCPServer.command("normal"))["PATH"]
        self.env = {"PATH": path, "HOME": str(root), "HOLODECK_TRUST": "all"}
        tool: dict[str, object] = {
            "type": "mcp",
            "name": "calc",
            "description": "d",
            "command": "npx",
            "args": ["-y", "server"],
        }
        tool["allowed_tools"] = ["add"]
        (self.path / "agent.yaml").write_text(json.dumps({"name": "demo", "tools": [tool]}))

    def run(self, command: Sequence[str], **env: str) -> subprocess.CompletedProcess[str]:
        environ = {**self.env, **env}
        return subprocess.run(
            command, cwd=self.path, env=environ, capture_output=True, text=True, timeout=60, check=False
        )

    def imported(self) -> str:
        return self.marker.read_text() if self.marker.exists() else ""


@pytest.fixture
def folder(tmp_path: Path) -> PoisonedFolder:
    return PoisonedFolder(tmp_path)


def test_the_folder_is_poisonous(folder: PoisonedFolder) -> None:
    folder.run([sys.executable, "-c", "import click"])
    assert folder.imported() == "click "


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "args", [("validate",), ("mcp", "call", "calc", "add", "a=1", "b=2"), ("run", "Hi"), ("docs",)]
)
def test_a_command_imports_nothing_of_the_current_folder(
    way: str, args: tuple[str, ...], folder: PoisonedFolder
) -> None:
    done = folder.run([*WAYS[way], *args])
    assert (done.returncode, "Traceback" in done.stderr, folder.imported()) == (0, False, ""), done.stderr


def test_a_safe_path_is_not_shortened(folder: PoisonedFolder, tmp_path: Path) -> None:
    """Where Python adds no entry for the current folder, the first one is the user's own."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\n")
    (own / "rich.py").write_text(f"open({str(tmp_path / 'own-was-imported')!r}, 'w')\nraise ImportError\n")
    folder.run(WAYS["python -m"] + ["validate"], PYTHONSAFEPATH="1", PYTHONPATH=str(own))
    assert (tmp_path / "own-was-imported").exists()
    assert folder.imported() == ""


def test_the_package_of_the_current_folder_works(folder: PoisonedFolder) -> None:
    """A checkout without an installation, or a folder with all packages of an application."""
    source = Path(holodeck.__file__).parent.parent
    done = subprocess.run(
        WAYS["python -m"] + ["--version"], cwd=source, env=folder.env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"holodeck, version {holodeck.__version__}\n")


def find_python_starts() -> Iterator[tuple[str, list[str]]]:
    """Each command of ours that starts Python: its place, and the constant words after `sys.executable`."""
    source = Path(holodeck.__file__).parent
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.List | ast.Tuple) or not node.elts:
                continue
            if ast.unparse(node.elts[0]) == "sys.executable":
                words = [str(item.value) for item in node.elts[1:] if isinstance(item, ast.Constant)]
                yield f"{os.fspath(path.relative_to(source))}:{node.lineno}", words


def test_every_python_that_we_start_ignores_the_current_folder() -> None:
    starts = dict(find_python_starts())
    assert len(starts) >= 5
    assert [place for place, words in starts.items() if words[:1] not in (["-I"], ["-P"])] == []
