"""The reference pages say what the code says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from generate.pages import PAGES
from generate.python_sections import SECTIONS, require_one_section

import holodeck

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_the_code_gives_today(page: str) -> None:
    """If not: `make reference` writes it anew."""
    assert (DOCS / page).read_text(encoding="utf-8") == PAGES[page]()


def test_a_public_name_in_no_section_of_the_python_page_or_in_two_is_named() -> None:
    without_agent = tuple(replace(each, names=each.names[each.title == "Agents" :]) for each in SECTIONS)
    for sections in (without_agent, (*SECTIONS, SECTIONS[0])):
        with pytest.raises(ValueError, match="'Agent'"):
            require_one_section(sections, holodeck)
