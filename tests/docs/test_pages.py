"""What the pages show is what happens: every block of every page is run or checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.page_runner import run_page
from real.project import ROOT

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT).with_suffix("")))
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    environ = {}
    if "<!-- uses: postgres -->" in page.read_text():
        environ["DATABASE_URL"] = request.getfixturevalue("postgres").new_database()
    run_page(page, tmp_path, environ)
