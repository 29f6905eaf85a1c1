"""What the tests of the console share: one browser per worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console.browser import run_browser


@pytest.fixture(scope="session")
def browser_url() -> Iterator[str]:
    """The debugging URL of a browser."""
    with run_browser() as url:
        yield url
