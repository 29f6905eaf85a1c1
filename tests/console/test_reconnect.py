"""An open page and a gateway that goes away: the page comes back by itself and misses nothing."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

from async_tests import async_test
from console.browser import open_page
from console.playground_page import PlaygroundPage
from gateway.gateway_process import run_gateway_process, write_gateway_file
from playwright.async_api import Page, expect

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

SECONDS = 150
READ_ROWS = """rows => rows.map(row => [
    Number(row.getAttribute("aria-posinset")),
    Number(row.getAttribute("aria-setsize")),
    Number(row.querySelector(".event-number").innerText),
])"""


def _choose_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def _read_numbers(page: Page) -> list[int]:
    """The numbers of all events that the page has, from its list of raw events."""
    events = page.get_by_role("listbox", name="Events")
    await events.press("Home")
    numbers: dict[int, int] = {}
    while True:
        # All rows at once: the list has only those in sight, and changes them while it scrolls.
        rows = await events.get_by_role("option").evaluate_all(READ_ROWS)
        numbers |= {position: number for position, _, number in rows}
        if rows and len(numbers) >= rows[0][1]:
            return [numbers[position] for position in sorted(numbers)]
        # A list that got its last rows meanwhile may have followed them to the end.
        is_at_end = bool(rows) and rows[-1][0] == rows[0][1]
        await events.press("Home" if is_at_end else "PageDown")


@async_test(SECONDS)
async def test_a_gateway_is_killed_and_started_again_under_an_open_page(tmp_path: Path, browser_url: str) -> None:
    never = asyncio.Event()
    begun = wait(never)
    model = ScriptedModel([call("echo", text="one")], [say("Half an "), begun], say("The whole answer."))
    async with FaultyMCPServer() as server, model.serve() as scripted:
        entry = {"name": "echoes", "type": "mcp", "description": "Echo", "transport": "http", "url": server.url}
        file = write_gateway_file(
            tmp_path,
            scripted.url,
            listen={"port": _choose_port()},
            mcp_servers=[entry],
            background={"durable": True},
        )
        async with open_page(browser_url) as page:
            playground = PlaygroundPage(page)
            async with run_gateway_process(file) as served:
                await page.goto(served.url)
                await playground.send("Go")
                await expect(page.get_by_text("Half an")).to_be_visible()
                served.stop(signal.SIGKILL)
                await served.wait_exit()
            await expect(page.get_by_text("The connection is lost")).to_be_visible()
            async with run_gateway_process(file):
                exchange = await playground.wait_done(1)
                await expect(exchange).to_contain_text("The whole answer.")
                await expect(exchange.locator("details.call")).to_have_count(1)
                await exchange.get_by_role("button", name="Code and events").click()
                numbers = await _read_numbers(page)
        assert numbers == list(range(len(numbers)))
        assert len(server.calls("echo")) == 1


@async_test(SECONDS)
async def test_a_page_that_is_loaded_again_follows_the_response_that_runs(tmp_path: Path, browser_url: str) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([say("Half an "), wait(go_on), say("answer.")])
    async with model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with run_gateway_process(file) as served, open_page(browser_url, served.url) as page:
            playground = PlaygroundPage(page)
            await playground.send("Go")
            await expect(page.get_by_text("Half an")).to_be_visible()
            await page.wait_for_url("**/conv_*")
            await page.reload()
            await expect(page.get_by_text("Half an")).to_be_visible()
            go_on.set()
            await expect(await playground.wait_done(1)).to_contain_text("Half an answer.")
