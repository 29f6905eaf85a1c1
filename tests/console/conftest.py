"""What the tests of the console share: one browser per worker, and one connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from async_tests import sharing_loop
from console.browser import connect_browser, run_browser


@pytest.fixture(scope="session")
def _browser() -> Iterator[tuple[str, asyncio.Runner]]:
    with run_browser() as url, asyncio.Runner() as runner:
        connection = AsyncExitStack()
        runner.run(connection.enter_async_context(connect_browser(url)))
        yield url, runner
        runner.run(connection.aclose())


@pytest.fixture
def browser_url(_browser: tuple[str, asyncio.Runner]) -> Iterator[str]:
    """The debugging URL of a browser. The test runs on the loop that is connected to it."""
    url, runner = _browser
    with sharing_loop(runner):
        yield url
