"""Each screen, dark and light, at phone width and enlarged: axe finds no violation, and nothing scrolls sideways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from console.playground_page import PlaygroundPage
from gateway.running_gateway import run_gateway
from playwright.async_api import Locator, Page, expect

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, think

SECONDS = 120
PHONE = {"width": 360, "height": 740}
# A page of 1280 by 800 at 200 %.
ENLARGED = {"width": 640, "height": 400}
ANSWER = "## Result\n\nIt is **3**:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n```\n" + "long " * 60 + "\n```\n"

HASH = "0123456789abcdef" * 8
# Its header has words that are wider than what is below them; its rows are higher than half a screen.
TABLE = (
    f"See {HASH} or https://example.com/{HASH}\n\n"
    "| Name | Description | Transport | Era | Restarts |\n|---|---|---|---|---|\n"
    + f"| a | {'many words ' * 20} `{HASH}` | http | 1 | 0 |\n" * 8
    + "| a | b | c | d | e |\n" * 20
)


@asynccontextmanager
async def _open_filled(folder: Path, browser_url: str, **options: Any) -> AsyncIterator[Page]:
    """A playground with an answer, a call, a call that waits for an approval, and what is beside it."""
    model = ScriptedModel([think("Hm."), call("add", a=1, b=2)], say(ANSWER), call("echo", text="x" * 200))
    async with FaultyMCPServer() as server:
        entry = {"name": "sums", "type": "mcp", "description": "Sums", "transport": "http", "url": server.url}
        config: dict[str, Any] = {"mcp_servers": [{**entry, "approval": {"always": ["echo"]}}]}
        async with (
            run_gateway(folder, model, **config) as gateway,
            open_page(browser_url, gateway.url, **options) as page,
        ):
            playground = PlaygroundPage(page)
            exchange = await playground.ask("1 + 2?")
            await playground.open_call(exchange, "add")
            await playground.ask("Say " + "x" * 200)
            yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_the_playground(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with _open_filled(tmp_path, browser_url, color_scheme=scheme) as page:
        assert not await find_violations(page)
        await page.get_by_role("button", name="Code and events").first.click()
        await expect(page.get_by_role("listbox", name="Events")).to_be_visible()
        assert not await find_violations(page)
        await page.get_by_role("tab", name="curl").click()
        assert not await find_violations(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_the_frame(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with (
        run_gateway(tmp_path, keys=["hd-ann"]) as gateway,
        open_page(browser_url, gateway.url, color_scheme=scheme) as page,
    ):
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert not await find_violations(page)
        await page.get_by_role("textbox", name="Key").fill("hd-ann")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        assert not await find_violations(page)


@pytest.mark.parametrize("size", [PHONE, ENLARGED], ids=["phone", "200 percent"])
@async_test(SECONDS)
async def test_the_playground_fits(tmp_path: Path, browser_url: str, size: dict[str, int]) -> None:
    async with _open_filled(tmp_path, browser_url, viewport=size) as page:
        assert not await scrolls_sideways(page)
        await expect(page.get_by_role("textbox", name="Message")).to_be_in_viewport()
        assert not await find_violations(page)
        await page.get_by_role("button", name="Code and events").first.click()
        await expect(page.get_by_role("listbox", name="Events")).to_be_visible()
        assert not await scrolls_sideways(page)


@pytest.mark.parametrize("width", [1280, 360])
@async_test(SECONDS)
async def test_words_of_tables_and_buttons_stay_whole_and_long_text_does_not_widen_the_page(
    tmp_path: Path, browser_url: str, width: int
) -> None:
    model = ScriptedModel(say(TABLE), call("echo", text="x"))
    async with FaultyMCPServer() as server:
        entry = {"name": "sums", "type": "mcp", "description": "Sums", "transport": "http", "url": server.url}
        config: dict[str, Any] = {"mcp_servers": [{**entry, "approval": {"always": ["echo"]}}]}
        async with (
            run_gateway(tmp_path, model, **config) as gateway,
            open_page(browser_url, gateway.url, viewport={"width": width, "height": 740}) as page,
        ):
            playground = PlaygroundPage(page)
            exchange = await playground.ask("A table")
            await playground.ask("Echo")
            table = exchange.get_by_role("region", name="Table")
            for cell in await table.get_by_role("columnheader").all():
                assert await _count_lines(cell) == 1
            assert await table.evaluate("box => box.scrollHeight <= box.clientHeight")
            for name in ("Approve", "Deny"):
                assert await _count_lines(page.get_by_role("button", name=name)) == 1
            assert not await scrolls_sideways(page)


async def _count_lines(element: Locator) -> int:
    """How many lines the text of an element takes."""
    return int(
        await element.evaluate("""element => {
            const range = document.createRange();
            range.selectNodeContents(element);
            return new Set([...range.getClientRects()].map(box => box.top)).size;
        }""")
    )


@async_test(SECONDS)
async def test_an_answer_is_announced_by_sentences(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(say("It is three. That is all."), chunk=2)
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, gateway.url) as page:
        await page.evaluate("""() => {
            window.announced = [];
            new MutationObserver(() => {
                const text = document.querySelector('.answer [aria-live=polite]')?.textContent;
                if (text && text !== announced.at(-1)) announced.push(text);
            }).observe(document.body, {childList: true, subtree: true, characterData: true});
        }""")
        await PlaygroundPage(page).ask("1 + 2?")
        await page.evaluate("""() => new Promise(done => {
            const check = () => announced.join('') === 'It is three. That is all.' ? done() : setTimeout(check, 50);
            check();
        })""")
