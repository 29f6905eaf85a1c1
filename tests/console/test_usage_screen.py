"""Usage in a real browser: sums, charts with their tables, groups, ranges, a file for a spreadsheet."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from playwright.async_api import Page, expect

from holodeck.lib.errors import ModelError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say, spend

SECONDS = 120
PRICE = {"input": 2, "output": 10}


def _build_model() -> ScriptedModel:
    return ScriptedModel(
        [call("add", a=1, b=2), spend(1_000, 100)],
        [say("3."), spend(1_200, 50)],
        fail(ModelError("no", status=400)),
    )


async def _use(gateway: RunningGateway) -> None:
    for text in ("1 + 2?", "I fail"):
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": text})


async def _read_fact(page: Page, name: str) -> str:
    return await page.locator(".sums > div").filter(has_text=name).locator("dd").inner_text()


@async_test(SECONDS)
async def test_sums_charts_and_their_tables_agree(tmp_path: Path, browser_url: str) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, _build_model(), mcp={"sums": server}, price=PRICE) as gateway,
        open_page(browser_url, f"{gateway.url}/#/usage") as page,
    ):
        await expect(page.get_by_role("heading", name="Nothing was used in this time")).to_be_visible()
        await _use(gateway)
        await page.reload()
        await expect(page.get_by_role("figure")).to_have_count(6)
        assert await _read_fact(page, "Requests") == "2"
        assert await _read_fact(page, "Errors") == "1"
        assert await _read_fact(page, "Tokens in") == "2,200"
        assert await _read_fact(page, "Cached") == "0"
        assert await _read_fact(page, "Tokens out") == "150"
        assert await _read_fact(page, "Cost") == "0.0059"
        requests = page.get_by_role("figure").filter(has=page.get_by_role("heading", name="Requests"))
        await expect(requests.get_by_role("img")).to_have_attribute("aria-label", "Requests over time. " + MOST)
        await requests.get_by_text("Table of requests").click()
        await expect(requests.get_by_role("row")).to_have_count(2)
        await expect(requests.get_by_role("row").last.get_by_role("cell")).to_contain_text([":00", "2", "1"])
        assert await _is_drawn(page)
        await requests.get_by_role("img").hover()
        await expect(requests.locator(".legend strong")).to_have_count(2)


MOST = "requests: at most 2; errors: at most 1. The values are in the table below."


async def _is_drawn(page: Page) -> bool:
    """Whether every canvas has lines on it."""
    return bool(
        await page.evaluate("""[...document.querySelectorAll('.plot canvas')].every(canvas => {
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return canvas.width > 0 && data.some(value => value > 0);
        })""")
    )


@async_test(SECONDS)
async def test_the_duration_of_the_only_request_of_an_hour_is_a_dot(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway, open_page(browser_url) as page:
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"})
        await page.goto(f"{gateway.url}/#/usage?range=1h")
        durations = page.get_by_role("figure").filter(has=page.get_by_role("heading", name="Duration"))
        await expect(durations.locator("canvas")).to_be_visible()
        # A dot of 7 pixels; its edge is mixed with what is behind it.
        assert await durations.evaluate(COUNT_PIXELS) > 12


# The pixels of a chart that have the colour of its last line, once it is drawn.
COUNT_PIXELS = """async figure => {
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const colour = getComputedStyle([...figure.querySelectorAll('.swatch')].at(-1)).color.match(/\\d+/g).map(Number);
    const canvas = figure.querySelector('canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) {
        if (colour.every((part, index) => data[at + index] === part) && data[at + 3] === 255) count += 1;
    }
    return count;
}"""


@async_test(SECONDS)
async def test_usage_is_shown_by_group_and_for_other_ranges(tmp_path: Path, browser_url: str) -> None:
    asked: list[str] = []
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, _build_model(), mcp={"sums": server}) as gateway,
        open_page(browser_url) as page,
    ):
        page.on("request", lambda request: asked.append(request.url) if "/v1/usage" in request.url else None)
        await _use(gateway)
        await page.goto(f"{gateway.url}/#/usage?range=1h")
        await expect(page.get_by_role("figure").first).to_be_visible()
        assert "bucket=minute" in asked[-1]
        # Models without a price have no cost.
        await expect(page.get_by_role("heading", name="Cost")).to_have_count(0)
        await page.get_by_role("combobox", name="By").select_option("tool")
        totals = page.get_by_role("region", name="Totals")
        await expect(totals.get_by_role("row").last.get_by_role("cell")).to_have_text(["sums add", "1", "0"])
        await expect(page.get_by_role("figure").first).to_contain_text("sums add")
        await page.get_by_role("combobox", name="By").select_option("model")
        await expect(totals.get_by_role("row").last.get_by_role("cell").first).to_have_text(MODEL)
        await page.get_by_role("combobox", name="Last").select_option("30d")
        await expect(page.get_by_role("figure").first).to_be_visible()
        assert page.url.endswith("#/usage?range=30d&by=model")
        assert "bucket=day" in asked[-1]
        assert "group_by=model" in asked[-1]


@async_test(SECONDS)
async def test_a_report_is_downloaded_for_a_spreadsheet(tmp_path: Path, browser_url: str) -> None:
    async with (
        run_gateway(tmp_path, ScriptedModel([say("Hi."), spend(10, 2)]), keys=["hd-ann"]) as gateway,
        open_page(browser_url, f"{gateway.url}/#/usage?by=caller", accept_downloads=True) as page,
    ):
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}, key="hd-ann")
        await page.get_by_role("textbox", name="Key").fill("hd-ann")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("figure").first).to_be_visible()
        async with page.expect_download() as downloading:
            await page.get_by_role("button", name="Download CSV").click()
        download = await downloading.value
        assert download.suggested_filename == "usage-24h-by-caller.csv"
        path = tmp_path / "usage.csv"
        await download.save_as(path)
        [row] = csv.DictReader(path.read_text().splitlines())
        assert (row["caller"], row["requests"], row["input_tokens"]) == ("key:hd-ann", "1", "10")


@async_test(SECONDS)
async def test_values_are_in_the_tables_where_charts_cannot_be_drawn(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway, open_page(browser_url) as page:
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"})
        await page.route("**/console/plot-*.js", lambda route: route.abort())
        await page.goto(f"{gateway.url}/#/usage")
        requests = page.get_by_role("figure").filter(has=page.get_by_role("heading", name="Requests"))
        await expect(requests).to_contain_text("could not load what draws the chart")
        await requests.get_by_text("Table of requests").click()
        await expect(requests.get_by_role("row").last).to_contain_text("1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_the_usage_and_it_fits(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, _build_model(), mcp={"sums": server}, price=PRICE) as gateway,
    ):
        await _use(gateway)
        async with open_page(browser_url, f"{gateway.url}/#/usage", color_scheme=scheme) as page:
            await expect(page.get_by_role("figure")).to_have_count(6)
            await page.get_by_text("Table of requests").click()
            assert not await find_violations(page)
            await page.set_viewport_size({"width": 360, "height": 740})
            assert not await scrolls_sideways(page)
            await page.get_by_role("combobox", name="By").select_option("tool")
            await expect(page.get_by_role("region", name="Totals")).to_be_visible()
            assert not await scrolls_sideways(page)
            assert not await find_violations(page)
            before = await _read_lines(page)
            await page.get_by_role("combobox", name="Colours").select_option("dark" if scheme == "light" else "light")
            await page.wait_for_function(
                "before => (document.querySelector('canvas')?.toDataURL() ?? before) !== before", arg=before
            )


async def _read_lines(page: Page) -> str:
    return str(await page.evaluate("document.querySelector('canvas').toDataURL()"))
