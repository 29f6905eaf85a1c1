"""A real browser for the tests of the console: the Chromium of an npm package, one process per worker.

A test opens a page of its own: nothing is shared between two pages but the process and the connection to it. The driver
that connects is a process as well, and starting it takes more than most tests: it stays for the worker, which is why
the tests of a worker share an event loop (`sharing_loop`).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from interprocess_lock import interprocess_lock
from playwright.async_api import Browser, Page, async_playwright, expect

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "console/node_modules"
STATIC = ROOT / "src/holodeck/gateway/console/static"
UNPACKED = ROOT / ".cache/browser"
# Ends what hangs: a server may have to start first, on a busy machine.
WAIT_MS = 45_000

# Tests may run as root, where Chromium has no sandbox. Memory under /dev/shm is short in containers.
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0")
# Letters in shades of grey, whatever the screen: pictures are smaller by a third.
_DRAWING = ("--disable-lcd-text", "--hide-scrollbars")
# A browser of somebody has a language; one in a container may have none that is valid.
_PERSON = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"}
# Requests that a browser makes for itself.
_QUIET = ("--no-first-run", "--no-pings", "--disable-background-networking", "--disable-component-update")


@contextmanager
def run_browser() -> Iterator[str]:
    """A browser that answers; its debugging URL."""
    program, environ = _unpack()
    with TemporaryDirectory(prefix="holodeck-browser-") as profile:
        command = [program, *_OPTIONS, *_DRAWING, *_QUIET, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environ, text=True)
        try:
            yield _read_url(process)
        finally:
            process.kill()
            process.communicate()


_connected: dict[str, Browser] = {}


@asynccontextmanager
async def connect_browser(url: str) -> AsyncIterator[None]:
    """Connect to the browser at a debugging URL, for all pages that are opened on this event loop."""
    async with async_playwright() as playwright:
        _connected[url] = await playwright.chromium.connect_over_cdp(url)
        try:
            yield
        finally:
            del _connected[url]


@asynccontextmanager
async def open_page(browser_url: str, url: str = "", **options: Any) -> AsyncIterator[Page]:
    """A page in a profile of its own, at this URL. It fails the test for an error that the page does not handle."""
    problems: list[str] = []
    context = await _connected[browser_url].new_context(**{**_PERSON, **options})
    try:
        page = await context.new_page()
        page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if _is_violation(message.text) else None)
        if url:
            await page.goto(url)
        yield page
    finally:
        await context.close()
    assert not problems, problems


def _is_violation(text: str) -> bool:
    return "Content Security Policy" in text or "Trusted" in text


def _unpack() -> tuple[str, dict[str, str]]:
    """The program of the browser and its environment. The first test of a checkout unpacks it."""
    if not PACKAGES.is_dir() or not (STATIC / "index.html").is_file():
        raise AssertionError("The console or the browser of its tests is missing. Run: make console")
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with interprocess_lock("browser"):
        words = ["node", str(ROOT / "console/browser.js")]
        environ = {**os.environ, "TMPDIR": str(UNPACKED)}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True, timeout=120)
    program = done.stdout.strip()
    environ = dict(os.environ)
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if "not found" in linked.stdout:
        environ["LD_LIBRARY_PATH"] = str(UNPACKED / "al2023/lib")
    if not Path("/etc/fonts").is_dir():
        environ["FONTCONFIG_PATH"] = str(UNPACKED / "fonts")
    return program, environ


def _read_url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r"DevTools listening on (ws://\S+)", line):
            return found[1]
    raise AssertionError("".join(["The browser did not start:\n", *lines]))
