"""The configuration and the API in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from gateway.running_gateway import run_gateway
from playwright.async_api import ViewportSize, expect

from holodeck.testing import FaultyMCPServer

SECONDS = 120
PHONE: ViewportSize = {"width": 360, "height": 740}


@async_test(SECONDS)
async def test_the_configuration_is_shown_with_the_problems_of_a_changed_file(tmp_path: Path, browser_url: str) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"sums": server}) as gateway,
        open_page(browser_url, f"{gateway.url}/#/configuration") as page,
    ):
        settings = page.locator("pre.settings")
        await expect(settings).to_contain_text("mcp_servers:\n  - name: sums\n    type: mcp\n")
        await expect(page.get_by_text(str(gateway.file))).to_be_visible()
        assert not await gateway.reload(limitz={"drain_seconds": 1})
        problems = page.get_by_role("region", name="Problems")
        await expect(problems).to_contain_text("limitz")
        await expect(problems).to_contain_text("gateway.yaml:1")
        await expect(settings).not_to_contain_text("limitz")
        gateway.file.write_text(gateway.file.read_text().replace("limitz", "limits"))
        assert await gateway.reload(listen={"port": 9})
        await expect(page.get_by_role("region", name="Needs a restart")).to_contain_text("listen")
        await expect(problems).to_have_count(0)


@async_test(SECONDS)
async def test_the_api_is_shown_by_route_with_an_example(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path) as gateway, open_page(browser_url, f"{gateway.url}/#/api") as page:
        await page.get_by_role("searchbox", name="Search").fill("create a key")
        route = page.locator("details.endpoint")
        await expect(route).to_have_count(1)
        await route.locator("summary").first.click()
        await expect(route.locator("pre").first).to_contain_text(f"curl '{gateway.url}/v1/keys'")
        await expect(route.locator("pre").first).to_contain_text("Bearer $HOLODECK_KEY")
        await expect(route.locator(".errors")).to_contain_text("key_exists")
        await expect(route.get_by_text("The key itself, shown only now.")).to_be_visible()
        await page.get_by_role("searchbox", name="Search").fill("no such route")
        await expect(page.get_by_text("No route has this")).to_be_visible()
        await page.goto(f"{gateway.url}/#/runs")
        await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        await page.goto(f"{gateway.url}/#/api/createResponse")
        opened = page.locator("details.endpoint[open]")
        await expect(opened.locator("summary").first).to_contain_text("/v1/responses")
        await opened.locator(".named-schema > summary", has_text="Tool").first.click()
        await expect(opened.locator(".named-schema[open] .schema-view").first).to_be_visible()


@async_test(SECONDS)
async def test_every_route_of_the_document_is_on_the_page(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path) as gateway, open_page(browser_url, f"{gateway.url}/#/api") as page:
        _, document = await gateway.send("GET", "/openapi.json")
        routes = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
        summaries = page.locator("details.endpoint > summary")
        await expect(summaries).to_have_count(len(routes))
        shown = {" ".join(text.split()[:2]) for text in await summaries.all_inner_texts()}
        assert shown == routes


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_the_settings_and_they_fit(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with (
        run_gateway(tmp_path) as gateway,
        open_page(browser_url, f"{gateway.url}/#/configuration", color_scheme=scheme) as page,
    ):
        assert not await gateway.reload(limitz={"x" * 100: 1}, listen={"port": 9})
        await expect(page.get_by_role("region", name="Problems")).to_be_visible()
        assert not await find_violations(page)
        await page.set_viewport_size(PHONE)
        assert not await scrolls_sideways(page)
        await page.goto(f"{gateway.url}/#/api/createResponse")
        await expect(page.locator("details.endpoint[open]")).to_be_visible()
        assert not await scrolls_sideways(page)
        assert not await find_violations(page)
