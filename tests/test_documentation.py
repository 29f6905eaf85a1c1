"""What the documentation shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from holodeck_command import run_holodeck

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_every_make_target_in_the_readme_exists() -> None:
    targets = set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_shipped_examples_have_not_even_a_warning(tmp_path: Path) -> None:
    for path in sorted((ROOT / "examples").rglob("agent.yaml")):
        done = run_holodeck("validate", "--strict", path, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page",
    [ROOT / "CONTRIBUTING.md", *sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md")])],
    ids=lambda page: page.stem,
)
def test_files_that_a_page_for_contributors_names_exist(page: Path) -> None:
    text = page.read_text()
    named = {path for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text) if not path.startswith(".")}
    assert not {path for path in named if not ((ROOT / path).exists() or (ROOT / "src/holodeck" / path).exists())}


@pytest.mark.parametrize(
    "page",
    [
        path
        for pattern in ("*.md", "docs/**/*.md", "deploy/*.md", "examples/**/*.md")
        for path in sorted(ROOT.glob(pattern))
    ],
    ids=lambda page: str(page.relative_to(ROOT).with_suffix("")),
)
def test_files_that_a_page_links_exist(page: Path) -> None:
    linked = set(re.findall(r"\]\(([^)#:]+)\)", page.read_text()))
    assert not {link for link in linked if not (page.parent / link).exists()}


def test_the_project_stands_alone() -> None:
    """Nothing in it points at a machine, a tracker or a registry's host."""
    forbidden = re.compile(r"/wor[k]/|\.\./share[d]|pypi\.or[g]|pythonhoste[d]|npmjs\.or[g]|issue #?[0-9]+")
    patterns = (
        "*.md",
        "src/**/*.py",
        "tests/**/*.py",
        "bench/*.py",
        "requirements/*",
        "Makefile",
        "deploy/**/*.*",
        "docs/**/*.md",
        "examples/**/*.*",
    )
    files = [path for pattern in patterns for path in ROOT.glob(pattern)]
    assert [str(path) for path in files if forbidden.search(path.read_text())] == []
