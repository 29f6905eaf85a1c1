"""A login at an MCP server in a real browser: from the page of the server to the authorization server and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from console.prefix_proxy import serve_below_prefix
from gateway.login_site import CALLBACK, LOGIN, NAME, LoginSite, run_login_site
from gateway.running_gateway import RunningGateway, run_gateway
from playwright.async_api import Page, ViewportSize, expect

from holodeck.testing import FaultyMCPServer

SECONDS = 120
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 360, "height": 740}


@pytest.fixture(autouse=True)
def own_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logins of the user that runs the gateway."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


@asynccontextmanager
async def open_server(
    folder: Path, browser_url: str, **options: Any
) -> AsyncIterator[tuple[LoginSite, RunningGateway, Page]]:
    """The page of a server that wants a login. `options`: of the page."""
    async with (
        run_login_site() as site,
        run_gateway(folder, mcp_servers=[site.entry()]) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers/{NAME}", **options) as page,
    ):
        yield site, gateway, page


@pytest.mark.parametrize("is_proxied", [False, True], ids=["direct", "below the path of a proxy"])
@async_test(SECONDS)
async def test_a_login_is_clicked_through_and_the_tools_are_there(
    tmp_path: Path, browser_url: str, is_proxied: bool
) -> None:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(run_login_site())
        gateway = await stack.enter_async_context(run_gateway(tmp_path, mcp_servers=[site.entry()]))
        base = f"{gateway.url}/"
        if is_proxied:
            base = await stack.enter_async_context(serve_below_prefix(gateway.url))
        page = await stack.enter_async_context(open_page(browser_url, f"{base}#/servers/{NAME}"))
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.get_by_role("group", name="Last error")).to_contain_text("it wants a person to log in")
        await page.get_by_role("button", name="Log in").press("Enter")
        link = page.get_by_role("link", name="Open the login page")
        await expect(link).to_be_focused()
        await expect(page.get_by_role("status")).to_have_text("Waiting for the login…")
        assert await link.get_attribute("rel") == "noopener noreferrer"
        async with page.context.expect_page() as opened:
            await page.keyboard.press("Enter")
        tab = await opened.value
        await expect(tab.get_by_role("heading", name="You can close this window")).to_be_visible()
        assert await tab.evaluate("window.opener") is None
        assert urlsplit(tab.url)._replace(query="").geturl() == base + CALLBACK.removeprefix("/")
        assert not await find_violations(tab)
        await tab.close()
        await expect(page.get_by_role("status")).to_have_text("Logged in.")
        await expect(page.get_by_role("heading", name=NAME)).to_contain_text("connected")
        await expect(page.locator("summary").filter(has=page.get_by_text("add", exact=True))).to_be_visible()
        await expect(page.get_by_role("group", name="Last error")).to_have_count(0)
        await expect(page.get_by_role("button", name="Log in")).to_be_focused()


@async_test(SECONDS)
async def test_a_login_that_is_refused_says_so_as_text(tmp_path: Path, browser_url: str) -> None:
    async with open_server(tmp_path, browser_url) as (_, gateway, page):
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("link", name="Open the login page")).to_be_visible()
        login = (await gateway.send("GET", LOGIN))[1]
        state = parse_qs(urlsplit(login["authorization_url"]).query)["state"][0]
        refusal = {"state": state, "error": "access_denied", "error_description": "<img src=x onerror=alert(1)>"}
        async with aiohttp.ClientSession() as session, session.get(login["redirect_uri"], params=refusal) as answer:
            assert answer.status == 200
        await expect(page.get_by_role("alert")).to_contain_text("access_denied: <img src=x onerror=alert(1)>")
        await expect(page.get_by_role("button", name="Log in")).to_be_focused()


@async_test(SECONDS)
async def test_a_login_is_cancelled_and_started_again(tmp_path: Path, browser_url: str) -> None:
    async with open_server(tmp_path, browser_url) as (_, gateway, page):
        await page.get_by_role("button", name="Log in").click()
        link = page.get_by_role("link", name="Open the login page")
        first = await link.get_attribute("href")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("alert")).to_contain_text("the login was cancelled")
        await expect(link).to_have_count(0)
        assert (await gateway.send("GET", LOGIN))[1]["status"] == "failed"
        await page.get_by_role("button", name="Log in").click()
        await expect(link).not_to_have_attribute("href", first or "")
        await expect(page.get_by_role("alert")).to_have_count(0)


@async_test(SECONDS)
async def test_a_page_that_is_loaded_again_goes_on_with_the_login(tmp_path: Path, browser_url: str) -> None:
    async with open_server(tmp_path, browser_url) as (_, _, page):
        await page.get_by_role("button", name="Log in").click()
        link = page.get_by_role("link", name="Open the login page")
        started = await link.get_attribute("href") or ""
        await page.reload()
        await expect(link).to_have_attribute("href", started)
        await expect(page.get_by_text("Waiting for the login…")).to_be_visible()


@async_test(SECONDS)
async def test_a_login_page_that_cannot_be_found_is_the_words_of_the_gateway(tmp_path: Path, browser_url: str) -> None:
    async with open_server(tmp_path, browser_url) as (site, _, page):
        site.authority.metadata_paths = ()
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("alert")).to_contain_text("publishes no metadata")


@async_test(SECONDS)
async def test_a_server_without_a_login_says_what_to_write(tmp_path: Path, browser_url: str) -> None:
    async with (
        FaultyMCPServer("http-401") as refusing,
        FaultyMCPServer() as plain,
        run_gateway(tmp_path, mcp={"tickets": refusing, "plain": plain}) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers/tickets") as page,
    ):
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.get_by_text("auth: {type: oauth_authorization_code}")).to_be_visible()
        await expect(page.get_by_role("button", name="Log in")).to_have_count(0)
        await page.goto(f"{gateway.url}/#/servers/plain")
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.get_by_role("heading", name="plain")).to_contain_text("connected")
        await expect(page.get_by_role("button", name="Log in")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_a_login_and_it_fits(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with open_server(tmp_path, browser_url, color_scheme=scheme) as (_, _, page):
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.get_by_role("group", name="Last error")).to_be_visible()
        for size in (DESK, PHONE):
            await page.set_viewport_size(size)
            await page.get_by_role("button", name="Log in").click()
            await expect(page.get_by_role("link", name="Open the login page")).to_be_visible()
            assert not await find_violations(page)
            assert not await scrolls_sideways(page)
            await page.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_role("alert")).to_be_visible()
            assert not await find_violations(page)
            assert not await scrolls_sideways(page)
