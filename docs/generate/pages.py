"""The table of generated pages."""

from __future__ import annotations

from collections.abc import Callable

from generate import cli_page

PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": cli_page.build_page,
}
"""Maps a page, as a path in `docs/`, to the function that returns its text."""
