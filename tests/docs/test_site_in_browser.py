"""The site as a reader meets it in a browser: light, dark and on a phone, with blocks to copy and a search."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from console.browser import connect_browser, open_page, run_browser

pytestmark = pytest.mark.long
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def _serve(folder: Path) -> Iterator[str]:
    """Serve a folder; its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_reader_copies_commands_finds_words_and_reads_on_a_phone(site: Path) -> None:
    with _serve(site) as url, run_browser() as browser:
        asyncio.run(_read(url, browser))


async def _read(url: str, browser: str) -> None:
    async with connect_browser(browser):
        granted = {"permissions": ["clipboard-read", "clipboard-write"]}
        async with open_page(browser, f"{url}/index.html", **granted) as page:
            block = page.locator(".highlight-console").first
            await block.hover()
            await block.get_by_role("button", name="Copy").click()
            await block.get_by_role("button", name="Copied").wait_for()
            # Without the prompt, and without what is printed.
            assert await page.evaluate("navigator.clipboard.readText()") == 'holodeck run "Read the file hours.md"\n'
            assert await page.locator(".sidebar-tree .caption").count() >= 5
        for options in ({"color_scheme": "dark"}, PHONE):
            async with open_page(browser, f"{url}/index.html", **options) as page:
                widths = await page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
                assert widths[0] <= widths[1]
        for words, title in (
            ("elicitation", "Questions of servers"),
            ("structured output", "Structured answers"),
            ("prompt injection", "Locking tools"),
        ):
            async with open_page(browser, f"{url}/search.html?q={words}") as page:
                await page.locator(".search-summary").get_by_text("finished").wait_for()
                found = await page.locator("#search-results li a").all_text_contents()
                assert [text for text in found[:3] if text.startswith(title)], (words, found[:6])
