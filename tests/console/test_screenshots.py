"""The pictures of the documentation, made anew: `make screenshots` takes them from `build/console`."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.browser import ROOT, open_page
from console.playground_page import PlaygroundPage
from gateway.running_gateway import run_gateway
from playwright.async_api import Page, expect

from holodeck.storage.usage import HOUR, SUMS, UsageBatch, UsageCounts, UsageKey, bucket_of
from holodeck.testing import ScriptedModel, call, say, spend, think

SECONDS = 120
PICTURES = ROOT / "build/console"
SIZE = {"width": 1120, "height": 760}
EDIT = {"oldText": "The launch is on Friday.\nBring cake.", "newText": "The launch is on Monday.\nBring cake."}
ANSWER = """The launch is on **Friday**. From `plan.md`:

> The launch is on Friday. Bring cake.

Should I move it?"""


@asynccontextmanager
async def _open_project(folder: Path, browser_url: str, **options: Any) -> AsyncIterator[Page]:
    """A page at a gateway with a folder of files, whose model looks things up and edits them."""
    data = folder / "data"
    data.mkdir()
    (data / "plan.md").write_text("# Plan\n\nThe launch is on Friday.\nBring cake.\n")
    model = ScriptedModel(
        [think("There may be a plan in the files."), call("list_directory", path="."), spend(1_204, 38)],
        [call("read_text_file", path="plan.md"), spend(1_270, 24)],
        [say(ANSWER), spend(1_322, 41)],
        [call("edit_file", path="plan.md", edits=[EDIT]), spend(1_391, 66)],
    )
    files = {
        "name": "files",
        "type": "mcp",
        "description": "Files of the project",
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", str(data)],
        "approval": {"always": ["edit_file", "write_file"]},
    }
    config: dict[str, Any] = {"mcp_servers": [files], "allow_stdio": True}
    async with (
        run_gateway(folder, model, **config) as gateway,
        open_page(browser_url, gateway.url, viewport=SIZE, **options) as page,
    ):
        # The first request of a server waits until it has started; that is no picture of a run.
        await gateway.send("POST", "/v1/mcp/servers/files/refresh")
        yield page


async def _take(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    await page.mouse.move(0, 0)
    picture = await page.screenshot(path=PICTURES / f"console-{name}.png", animations="disabled", caret="hide")
    assert picture


@pytest.mark.long
@async_test(SECONDS)
async def test_a_conversation_with_an_approval_is_pictured(tmp_path: Path, browser_url: str) -> None:
    async with _open_project(tmp_path, browser_url) as page:
        playground = PlaygroundPage(page)
        await playground.ask("When is the launch?")
        exchange = await playground.ask("Yes, to Monday")
        await expect(exchange.get_by_role("button", name="Approve")).to_be_visible()
        await _take(page, "playground")


@pytest.mark.long
@async_test(SECONDS)
async def test_runs_are_pictured(tmp_path: Path, browser_url: str) -> None:
    async with _open_project(tmp_path, browser_url, color_scheme="dark") as page:
        playground = PlaygroundPage(page)
        exchange = await playground.ask("When is the launch?")
        await exchange.get_by_role("button", name="Code and events").click()
        await page.get_by_role("tab", name="Python").click()
        await _take(page, "code")
        await playground.exchanges.first.get_by_role("link", name="Run").click()
        await page.get_by_role("option", name="files read_text_file").click()
        await expect(page.get_by_role("region", name="Step: read_text_file")).to_be_visible()
        await _take(page, "run")


@pytest.mark.long
@async_test(SECONDS)
async def test_a_server_is_pictured(tmp_path: Path, browser_url: str) -> None:
    async with _open_project(tmp_path, browser_url) as page:
        await page.get_by_role("link", name="Servers").click()
        await page.get_by_role("link", name="files").click()
        await page.get_by_role("searchbox", name="Search").fill("list_dir")
        await page.locator("summary").filter(has=page.get_by_text("list_directory", exact=True)).click()
        await page.get_by_role("textbox", name="path").fill(".")
        await page.get_by_role("button", name="Call").click()
        await expect(page.locator(".tool-result")).to_contain_text("plan.md")
        await _take(page, "server")


@pytest.mark.long
@async_test(SECONDS)
async def test_usage_and_keys_are_pictured(tmp_path: Path, browser_url: str) -> None:
    async with (
        run_gateway(tmp_path, ScriptedModel(), admins=["ops"]) as gateway,
        open_page(browser_url, f"{gateway.url}/#/usage", viewport=SIZE, color_scheme="dark") as page,
    ):
        await gateway.service.store.usage.add(_build_day())
        for body in (
            {"name": "alice", "limits": {"requests_per_minute": 60}},
            {"name": "reports", "role": "viewer", "expires": "2030-01-31T12:00:00Z"},
        ):
            assert (await gateway.send("POST", "/v1/keys", body, key="ops"))[0] == 200
        await page.get_by_role("textbox", name="Key").fill("ops")
        await page.keyboard.press("Enter")
        await expect(page.locator("canvas")).to_have_count(6)
        await _take(page, "usage")
        await page.emulate_media(color_scheme="light")
        await page.get_by_role("link", name="Keys").click()
        await page.get_by_role("button", name="Create a key").click()
        await page.get_by_role("textbox", name="Name of the caller").fill("carol")
        await page.get_by_role("textbox", name="Models").fill("small-*")
        await _take(page, "keys")


def _build_day() -> UsageBatch:
    """What a team uses in a day: little at night, more in the afternoon."""
    this_hour = int(time.time()) // HOUR * HOUR
    rows: dict[tuple[int, UsageKey], UsageCounts] = {}
    for back in range(24):
        requests = max(0, round(22 + 20 * math.sin((back + 3) / 3.8)) + back % 3)
        counts = UsageCounts(cost=requests * 0.0043)
        sums = dict.fromkeys(SUMS, 0) | {
            "requests": requests,
            "errors": back % 5 // 3,
            "input_tokens": requests * 1_350,
            "output_tokens": requests * 160,
            "tool_calls": requests * 2,
            "priced": requests,
        }
        counts.sums = [sums[name] for name in SUMS]
        for number in range(requests):
            counts.seconds[bucket_of(1.2 + number % 9 * (0.3 + back % 4 / 10))] += 1
            counts.first_token[bucket_of(0.2 + number % 7 / (8 + back % 3))] += 1
        rows[this_hour - back * HOUR, UsageKey(caller_id="key:alice", model="demo", status="completed")] = counts
    return UsageBatch(source="pictures", number=1, rows=rows)
