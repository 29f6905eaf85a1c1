"""The built site, for the tests that look at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from interprocess_lock import interprocess_lock

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, once for all workers of a run: each warning is an error."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if is_worker else base) / "site"
    with interprocess_lock("site"):
        if not (folder / "built").exists():
            _build(folder)
            (folder / "built").touch()
    return folder / "html"


def _build(folder: Path) -> None:
    command = ["-m", "sphinx", "-W", "--keep-going", "--quiet", "--doctree-dir", str(folder / "doctrees")]
    done = subprocess.run(
        [sys.executable, *command, str(DOCS), str(folder / "html")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
