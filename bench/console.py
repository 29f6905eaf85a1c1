"""The console in a browser: how soon a person can write, and whether long runs stay smooth.

The browser is that of the tests (`make console` installs it), without a screen and without a graphics card, and shares
the machine with the gateway and the model.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from bench.gateway_targets import KEY, Target, run_holodeck
from bench.processes import ROOT
from bench.table import print_table
from holodeck.testing import ScriptedModel, say

sys.path.append(str(ROOT / "tests"))

from console.browser import connect_browser, open_page, run_browser
from console.playground_page import PlaygroundPage
from playwright.async_api import Page, expect

EVENTS = 5_000
ROUNDS = 10
# Milliseconds between two frames above which a person sees that a page stops.
SEEN_STOP = 100

# Notes when the message box has the focus, which is the last step of a first visit, and how long frames take.
_WATCH = """
sessionStorage.setItem("holodeck.key", KEY);
window.watched = { ready: 0, gaps: [] };
let last = 0;
const onFrame = (now) => {
  if (!window.watched.ready && document.activeElement?.tagName === "TEXTAREA") window.watched.ready = performance.now();
  if (last) window.watched.gaps.push(now - last);
  last = now;
  requestAnimationFrame(onFrame);
};
requestAnimationFrame(onFrame);
"""
_READY = """
new Promise((resolve) => {
  const look = () => (window.watched.ready ? resolve(window.watched.ready) : requestAnimationFrame(look));
  look();
})
"""


async def _open_watched(page: Page, url: str) -> PlaygroundPage:
    await page.add_init_script(_WATCH.replace("KEY", f'"{KEY}"'))
    await page.goto(url)
    playground = PlaygroundPage(page)
    await expect(playground.message).to_be_focused()
    return playground


async def measure_first_visits(browser: str, target: Target, rounds: int) -> list[list[str]]:
    """Milliseconds from the request for the page, with an empty cache."""
    painted, ready = [], []
    for _ in range(rounds):
        async with open_page(browser) as page:
            await _open_watched(page, target.url)
            ready.append(float(await page.evaluate(_READY)))
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            painted.append(float(await page.evaluate(paint)))
    return [
        [label, f"{statistics.median(values):.0f} ms", f"{max(values):.0f} ms"]
        for label, values in (("something is shown", painted), ("a person can write", ready))
    ]


async def measure_long_run(browser: str, target: Target) -> list[list[str]]:
    """Frames while a long answer arrives, and while its events are scrolled."""
    rows = []
    async with open_page(browser) as page:
        playground = await _open_watched(page, target.url)
        await page.evaluate("window.watched.gaps = []")
        exchange = await playground.ask("Go")
        rows.append(_describe_gaps(f"an answer of {EVENTS:,} events arrives", await _take_gaps(page)))
        await exchange.get_by_role("button", name="Code and events").click()
        events = page.get_by_role("listbox", name="Events")
        await events.focus()
        await page.evaluate("window.watched.gaps = []")
        await page.keyboard.press("Home")
        for _ in range(50):
            await page.keyboard.press("PageDown")
        rows.append(_describe_gaps("its events are scrolled", await _take_gaps(page)))
    return rows


async def _take_gaps(page: Page) -> list[float]:
    return [float(gap) for gap in await page.evaluate("window.watched.gaps")]


def _describe_gaps(label: str, gaps: list[float]) -> list[str]:
    stops = [gap for gap in gaps if gap > SEEN_STOP]
    return [label, str(len(gaps)), f"{statistics.median(gaps):.0f} ms", f"{max(gaps):.0f} ms", str(len(stops))]


async def _run(rounds: int) -> None:
    model = ScriptedModel(*[say("abcd " * (EVENTS // 5))] * 3, chunk=1)
    with tempfile.TemporaryDirectory() as folder, run_browser() as browser:
        async with model.serve("chat") as served, connect_browser(browser):
            with run_holodeck(Path(folder), served.url.removesuffix("/v1")) as target:
                visits = await measure_first_visits(browser, target, rounds)
                print_table(f"First visit, {rounds} times", ["", "median", "slowest"], visits)
                header = ["", "frames", "median", "longest", f"over {SEEN_STOP} ms"]
                print_table("Frames of a long run", header, await measure_long_run(browser, target))


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench console", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="first visits")
    asyncio.run(_run(parser.parse_args(arguments).rounds))
