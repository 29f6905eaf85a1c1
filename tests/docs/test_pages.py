"""What the pages show is what happens: every block of every page is run or checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.page_blocks import read_blocks
from docs.page_runner import check_blocks, run_page, runs_programs
from real.project import ROOT

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
# The first that a person follows. The programs of all other pages take a fifth of all tests together.
IN_EACH_RUN = {ROOT / "README.md", ROOT / "docs/start/first-gateway.md"}


def _page(path: Path) -> object:
    is_long = path not in IN_EACH_RUN and runs_programs(read_blocks(path))
    name = str(path.relative_to(ROOT).with_suffix(""))
    return pytest.param(path, id=name, marks=pytest.mark.long if is_long else ())


@pytest.mark.parametrize("page", [_page(path) for path in PAGES])
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    environ = {}
    if "<!-- uses: postgres -->" in page.read_text():
        environ["DATABASE_URL"] = request.getfixturevalue("postgres").new_database()
    run_page(page, tmp_path, environ)


def test_each_block_of_a_page_has_a_purpose_and_each_file_in_it_can_be_parsed() -> None:
    for page in PAGES:
        check_blocks(page)
