"""`make release` makes the same files of a commit each time, tried in an empty environment."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from release.sbom import build_sbom

ROOT = Path(__file__).parents[1]


def test_the_bill_of_materials_has_what_an_installation_brings_and_no_tool_of_ours() -> None:
    document = json.loads(build_sbom(ROOT, version="0.1.0", built=1_800_000_000))
    scopes = {part["name"]: part["scope"] for part in document["components"]}
    assert (scopes["pydantic"], scopes["asyncpg"], scopes["preact"]) == ("required", "optional", "required")
    assert not {"pytest", "sphinx", "esbuild", "typescript"} & scopes.keys()
    assert all(part["purl"].endswith(f"@{part['version']}") for part in document["components"])
    assert document["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"


@pytest.mark.long
def test_a_commit_becomes_files_that_work_with_their_checksums(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    command = [sys.executable, "-m", "release.run", "--out", str(tmp_path / "dist"), "--pythons", "3.11"]
    environ = {**os.environ, "PYTHONPATH": str(clone / "tests")}
    done = subprocess.run(command, cwd=clone, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sums = dict(line.split()[::-1] for line in (tmp_path / "dist/SHA256SUMS").read_text().splitlines())
    assert sorted(Path(name).suffix for name in sums) == [".gz", ".json", ".whl"]
    for name, digest in sums.items():
        assert hashlib.sha256((tmp_path / "dist" / name).read_bytes()).hexdigest() == digest
