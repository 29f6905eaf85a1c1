"""The console without a mouse."""

from __future__ import annotations

from pathlib import Path

from async_tests import async_test
from console.browser import open_page
from gateway.running_gateway import run_gateway
from playwright.async_api import Page, expect

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

SECONDS = 90
MAX_TABS = 60


async def _tab_to(page: Page, name: str, key: str = "Tab") -> None:
    """Press Tab until the focus is on the control of this name; it must be visible where it is."""
    for _ in range(MAX_TABS):
        await page.keyboard.press(key)
        focused = await page.evaluate(
            "(() => { const e = document.activeElement; "
            "return [e.getAttribute('aria-label') || e.innerText || e.labels?.[0]?.innerText || '', "
            "getComputedStyle(e).outlineStyle]; })()"
        )
        if focused[0].strip() == name:
            assert focused[1] != "none", f"the focus on {name} cannot be seen"
            return
    raise AssertionError(f"Tab does not reach {name}")


@async_test(SECONDS)
async def test_a_conversation_with_an_approval_needs_no_mouse(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."))
    async with FaultyMCPServer() as server:
        entry = {"name": "sums", "type": "mcp", "description": "Sums", "transport": "http", "url": server.url}
        async with (
            run_gateway(tmp_path, model, mcp_servers=[{**entry, "approval": "always"}]) as gateway,
            open_page(browser_url, gateway.url) as page,
        ):
            # The first field has the focus.
            await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
            await page.keyboard.type("1 + 2?")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("button", name="Approve")).to_be_visible()
            await _tab_to(page, "Approve", "Shift+Tab")
            await page.keyboard.press("Enter")
            await expect(page.get_by_text("It is 3.").first).to_be_visible()
            await _tab_to(page, "Code and events", "Shift+Tab")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="Code and events")).to_be_focused()
            await _tab_to(page, "Events")
            await page.keyboard.press("ArrowRight")
            await expect(page.get_by_role("tab", name="curl")).to_have_attribute("aria-selected", "true")
            await expect(page.get_by_role("tab", name="curl")).to_be_focused()


@async_test(SECONDS)
async def test_the_first_tab_skips_the_navigation_and_screens_take_the_focus(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path) as gateway, open_page(browser_url, f"{gateway.url}/#/runs") as page:
        await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        await page.keyboard.press("Tab")
        skip = page.get_by_role("button", name="Skip to content")
        await expect(skip).to_be_focused()
        await expect(skip).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("main")).to_be_focused()
        await _tab_to(page, "Playground", "Shift+Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
