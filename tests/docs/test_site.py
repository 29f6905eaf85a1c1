"""The documentation is a site without a broken link that loads nothing from other hosts."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
EXTERNAL_LINK = re.compile(r"\]\(([a-z]+:[^)]*)\)|<(https?:[^>]*)>")


@pytest.mark.long
def test_each_page_is_on_the_site_and_reached_from_its_front_page(site: Path) -> None:
    reached: set[Path] = set()
    waiting = [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            links = re.findall(r'href="([^"#:?]+\.html)', page.read_text())
            waiting += [(page.parent / link).resolve() for link in links]
    assert {(site / page.relative_to(DOCS)).with_suffix(".html") for page in PAGES} <= reached


@pytest.mark.long
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"(?:https?:)?//", re.IGNORECASE)
    styled = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import")
    assert [page for page in site.rglob("*.html") if loaded.search(page.read_text())] == []
    assert [sheet for sheet in site.rglob("*.css") if styled.search(sheet.read_text())] == []


@pytest.mark.long
def test_the_site_can_be_searched_from_the_file_system(site: Path) -> None:
    """The index is a script: a browser lets a page of the file system run one, and fetch nothing."""
    assert (site / "searchindex.js").read_text().startswith("Search.setIndex(")
    assert re.search(r'<script src="searchindex\.js"', (site / "search.html").read_text())


@pytest.mark.long
def test_programs_find_a_list_of_all_pages_and_their_markdown(site: Path) -> None:
    listed = re.findall(r"^- \[.+\]\((.+)\): \S", (site / "llms.txt").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)
    whole = (site / "llms-full.txt").read_text()
    assert all((site / page).read_text() in whole for page in listed)
    assert "{toctree}" not in whole


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_to_elsewhere_are_whole_https_addresses(page: Path) -> None:
    for link in EXTERNAL_LINK.finditer(page.read_text()):
        address = urlsplit(link[1] or link[2])
        assert address.scheme == "https", link[0]
        assert "." in (address.hostname or ""), link[0]
