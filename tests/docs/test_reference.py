"""The reference pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from generate.pages import PAGES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_the_code_gives_today(page: str) -> None:
    """If not: `make reference` writes it anew."""
    assert (DOCS / page).read_text(encoding="utf-8") == PAGES[page]()
