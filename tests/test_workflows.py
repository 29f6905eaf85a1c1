"""The workflows of GitHub run what a person runs, with pinned actions and no right that they do not need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
# What one job may do beside reading the sources.
RIGHTS = {"publish": {"id-token"}, "image": {"packages"}}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_its_actions_and_has_few_rights(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    assert "write" not in workflow["permissions"].values()
    for name, job in workflow["jobs"].items():
        rights = job.get("permissions", {})
        assert {right for right, level in rights.items() if level == "write"} <= RIGHTS.get(name, set())
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert re.search(r"@[0-9a-f]{40}$", step.get("uses", "@" + 40 * "0"))
            # What others write, such as the title of a branch, must not become a command.
            assert "${{" not in step.get("run", "")


def test_the_commands_of_workflows_exist() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS)
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"run: make (\w+)", text))
    assert targets >= {"release", "console"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    version = (ROOT / "src/holodeck/__init__.py").read_text()
    assert re.search(r'^__version__ = "[^"]+"$', version, re.MULTILINE)
    assert (ROOT / ".ci/run").exists()
