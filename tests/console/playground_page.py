"""The playground as a person uses it."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect


class PlaygroundPage:
    """A page at the playground."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.message = page.get_by_role("textbox", name="Message")
        self.exchanges = page.get_by_role("article")

    async def send(self, text: str) -> None:
        """Write a message and press Enter."""
        await self.message.fill(text)
        await self.message.press("Enter")

    async def ask(self, text: str) -> Locator:
        """Send a message and wait for the end of its response; its exchange."""
        before = await self.exchanges.count()
        await self.send(text)
        return await self.wait_done(before + 1)

    async def wait_done(self, count: int) -> Locator:
        """Wait until there are that many exchanges and the last one has ended; the last one."""
        await expect(self.exchanges).to_have_count(count)
        last = self.exchanges.nth(count - 1)
        await expect(last.get_by_role("button", name="Code and events")).to_be_visible()
        return last

    async def open_call(self, exchange: Locator, name: str) -> Locator:
        """Unfold a tool call."""
        call = exchange.locator("details.call", has_text=name)
        await call.locator("summary").click()
        return call
