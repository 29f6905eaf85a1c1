"""The runs in a real browser: the list with its filters, one run as a waterfall, two side by side, very long ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from gateway.config_entries import server as server_entry
from gateway.described_server import DescribedServer
from gateway.running_gateway import MODEL, run_gateway
from playwright.async_api import Page, Route, expect

from holodeck.lib.errors import ModelError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say, wait
from holodeck.testing.mcp.tools import tool_entry

SECONDS = 120


def _rows(page: Page) -> Any:
    return page.get_by_role("table").get_by_role("row").filter(has=page.get_by_role("checkbox"))


@async_test(SECONDS)
async def test_runs_are_listed_newest_first_and_filtered(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(say("Hi Ann."), fail(ModelError("no", status=400)), [call("add", a=1, b=2)], say("3."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}) as gateway,
    ):
        for text in ("I am Ann", "I fail", "1 + 2?"):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": text})
        async with open_page(browser_url, f"{gateway.url}/#/runs") as page:
            await expect(_rows(page).get_by_role("link")).to_have_text(["1 + 2?", "I fail", "I am Ann"])
            await page.get_by_role("combobox", name="Status").select_option("failed")
            await expect(_rows(page).get_by_role("link")).to_have_text(["I fail"])
            await page.get_by_role("combobox", name="Status").select_option("")
            await page.get_by_role("searchbox", name="Tool").fill("add")
            await page.keyboard.press("Enter")
            await expect(_rows(page).get_by_role("link")).to_have_text(["1 + 2?"])
            await page.get_by_role("searchbox", name="Tool").fill("")
            await page.get_by_role("searchbox", name="Text").fill("ann")
            await page.keyboard.press("Enter")
            await expect(_rows(page).get_by_role("link")).to_have_text(["I am Ann"])
            assert page.url.endswith("#/runs?text=ann")
            await page.get_by_role("link", name="I am Ann").click()
            await page.get_by_role("link", name="All runs").click()
            await expect(_rows(page).get_by_role("link")).to_have_text(["I am Ann"])
            # Without Enter: a pause is enough.
            await page.get_by_role("searchbox", name="Text").fill("fail")
            await expect(_rows(page).get_by_role("link")).to_have_text(["I fail"])
            await page.get_by_role("searchbox", name="Model").fill("none")
            await page.keyboard.press("Enter")
            await page.get_by_role("link", name="Remove the filters").click()
            await expect(_rows(page)).to_have_count(3)


@async_test(SECONDS)
async def test_a_late_reply_to_earlier_filters_is_not_shown(tmp_path: Path, browser_url: str) -> None:
    is_asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer_late(route: Route) -> None:
        is_asked.set()
        await go_on.wait()
        await route.continue_()

    model = ScriptedModel(say("Hi Ann."), say("Hi Ben."))
    async with run_gateway(tmp_path, model) as gateway:
        for text in ("I am Ann", "I am Ben"):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": text})
        async with open_page(browser_url, f"{gateway.url}/#/runs") as page:
            await page.route("**/v1/runs?text=ann*", answer_late)
            await page.get_by_role("searchbox", name="Text").fill("ann")
            await page.keyboard.press("Enter")
            await is_asked.wait()
            await page.get_by_role("searchbox", name="Text").fill("ben")
            await page.keyboard.press("Enter")
            await expect(_rows(page).get_by_role("link")).to_have_text(["I am Ben"])
            async with page.expect_response("**/v1/runs?text=ann*") as late:
                go_on.set()
            await (await late.value).finished()
            await expect(_rows(page).get_by_role("link")).to_have_text(["I am Ben"])


@async_test(SECONDS)
async def test_a_background_run_is_followed_while_it_runs(tmp_path: Path, browser_url: str) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([say("Half"), wait(go_on), say(" done.")])
    async with run_gateway(tmp_path, model) as gateway, open_page(browser_url, f"{gateway.url}/#/runs") as page:
        await expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "background": True})
        await expect(_rows(page)).to_contain_text(["in progress"])
        await page.get_by_role("link", name="Go").click()
        await expect(page.get_by_role("listbox")).to_contain_text("running")
        go_on.set()
        await expect(page.get_by_role("heading", name="Go")).to_contain_text("completed")
        await expect(page.get_by_role("listbox")).not_to_contain_text("running")


@async_test(SECONDS)
async def test_an_operator_cancels_the_run_of_a_caller(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel([say("Half"), wait(asyncio.Event())])
    async with run_gateway(tmp_path, model, keys=["hd-ann"], admins=["hd-ops"]) as gateway:
        body = {"model": MODEL, "input": "Go", "background": True}
        _, begun = await gateway.send("POST", "/v1/responses", body, key="hd-ann")
        async with open_page(browser_url, f"{gateway.url}/#/runs/{begun['id']}") as page:
            await page.get_by_role("textbox", name="Key").fill("hd-ops")
            await page.keyboard.press("Enter")
            await page.get_by_role("button", name="Cancel this run").click()
            await expect(page.get_by_role("heading", name="Go")).to_contain_text("cancelled")
            await expect(page.get_by_role("button", name="Cancel this run")).to_have_count(0)


@async_test(SECONDS)
async def test_a_run_is_a_waterfall_with_what_the_model_was_sent_and_said(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel([call("add", a=1, b=2)], say("It is 3."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}) as gateway,
    ):
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "1 + 2?"})
        async with open_page(browser_url, f"{gateway.url}/#/runs/{response['id']}") as page:
            steps = page.get_by_role("listbox")
            await steps.get_by_role("option", name="sums add").click()
            detail = page.get_by_role("region", name="Step: add")
            await expect(detail.locator("pre")).to_have_text(['{\n  "a": 1,\n  "b": 2\n}', "3"])
            await steps.get_by_role("option", name="model: model").last.click()
            detail = page.get_by_role("region", name="Step: model")
            await expect(detail).to_contain_text("1 + 2?")
            await expect(detail.get_by_role("listitem").last).to_contain_text("It is 3.")
            assert await _is_to_scale(page)
            await steps.press("Home")
            await expect(steps.get_by_role("option", name="run: run")).to_have_attribute("aria-selected", "true")


@async_test(SECONDS)
async def test_an_operator_sees_the_agent_s_instructions_and_the_offered_tools(
    tmp_path: Path, browser_url: str
) -> None:
    model = ScriptedModel(say("Hi."))
    many = [tool_entry(f"tool_{n}", "One of many.") for n in range(40)]
    async with (
        DescribedServer(*many).serve() as server,
        run_gateway(
            tmp_path, model, mcp_servers=[server_entry("many", server.url)], keys=["hd-ann"], admins=["hd-ops"]
        ) as gateway,
    ):
        [entry] = orjson.loads(gateway.file.read_bytes())["models"]
        assert await gateway.reload(models=[entry | {"instructions": "Be kind."}])
        body = {"model": MODEL, "input": "Hello"}
        _, response = await gateway.send("POST", "/v1/responses", body, key="hd-ann")
        async with open_page(browser_url, f"{gateway.url}/#/runs/{response['id']}") as page:
            await page.get_by_role("textbox", name="Key").fill("hd-ops")
            await page.keyboard.press("Enter")
            await page.get_by_role("option", name="model: model").click()
            detail = page.get_by_role("region", name="Step: model")
            await expect(detail.get_by_role("heading", name="Instructions of the agent")).to_be_visible()
            await expect(detail.locator("pre").first).to_have_text("Be kind.")
            await detail.get_by_text("40 tools offered").click()
            offered = detail.locator(".offered-tools").get_by_role("listitem")
            await expect(offered).to_have_count(40)
            await detail.get_by_role("searchbox", name="Search the tools").fill("L_39")
            await expect(offered).to_have_text(["tool_39"])
            assert not await find_violations(page)
            await page.set_viewport_size({"width": 360, "height": 740})
            assert not await scrolls_sideways(page)
            assert await gateway.reload(models=[entry | {"instructions": "Be brief."}])
            await page.reload()
            await page.get_by_role("option", name="model: model").click()
            await expect(detail).to_contain_text("They have changed since this run.")
            await expect(detail).not_to_contain_text("Be brief.")
            await page.get_by_role("button", name="Forget key").click()
            await page.get_by_role("textbox", name="Key").fill("hd-ann")
            await page.keyboard.press("Enter")
            await page.reload()
            await page.get_by_role("option", name="model: model").click()
            await expect(detail).to_contain_text("Hello")
            await expect(detail).not_to_contain_text("Instructions of the agent")
            await expect(detail).not_to_contain_text("offered")


async def _is_to_scale(page: Page) -> bool:
    """Whether each bar lies within the bar of the run, and calls after the model that made them."""
    boxes = await page.eval_on_selector_all(
        ".span-bar",
        "bars => bars.map(b => [b.className, b.getBoundingClientRect().left, b.getBoundingClientRect().right])",
    )
    run, model, tool = (next(box for box in boxes if kind in box[0]) for kind in ("run", "model", "tool"))
    inside = all(run[1] - 1 <= left and right <= run[2] + 3 for _, left, right in boxes)
    return bool(inside and tool[1] >= model[1])


@async_test(SECONDS)
async def test_two_runs_are_compared_side_by_side(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi Ann."), say("Hi Ben."))) as gateway:
        for text in ("I am Ann", "I am Ben"):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": text})
        async with open_page(browser_url, f"{gateway.url}/#/runs") as page:
            await page.get_by_role("checkbox", name="Compare I am Ann").check()
            await page.get_by_role("checkbox", name="Compare I am Ben").check()
            await page.get_by_role("link", name="Compare the two chosen runs").click()
            await expect(page.get_by_role("article")).to_have_count(2)
            await expect(page.get_by_role("article").first).to_contain_text("Hi Ann.")
            await expect(page.get_by_role("article").last).to_contain_text("Hi Ben.")
            scales = await page.locator(".waterfall-scale").all_inner_texts()
            assert scales[0] == scales[1]


@async_test(SECONDS)
async def test_a_run_of_five_thousand_steps_has_few_of_them_in_the_page(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hello"})
        status, trace = await gateway.send("GET", f"/v1/runs/{response['id']}/trace")
        assert status == 200
        step = trace["spans"][-1]
        trace["spans"] += [{**step, "id": f"more_{n}", "start": n / 100, "seconds": 0.01} for n in range(5_000)]

        async def answer(route: Route) -> None:
            await route.fulfill(body=json.dumps(trace), content_type="application/json")

        async with open_page(browser_url) as page:
            await page.route("**/trace", answer)
            await page.goto(f"{gateway.url}/#/runs/{response['id']}")
            steps = page.get_by_role("listbox")
            await steps.press("End")
            last = steps.get_by_role("option", selected=True)
            await expect(last).to_have_attribute("aria-posinset", str(len(trace["spans"])))
            assert await steps.get_by_role("option").count() < 100


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_the_runs_and_they_fit(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    model = ScriptedModel([call("add", a=1, b=2)], say("It is 3."), fail(ModelError("no", status=400)))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}) as gateway,
    ):
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "1 + 2? " * 20})
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "I fail"})
        async with open_page(browser_url, f"{gateway.url}/#/runs", color_scheme=scheme) as page:
            await expect(_rows(page)).to_have_count(2)
            assert not await find_violations(page)
            await page.set_viewport_size({"width": 360, "height": 740})
            assert not await scrolls_sideways(page)
            assert not await find_violations(page)
            await page.goto(f"{gateway.url}/#/runs/{response['id']}")
            await page.get_by_role("option", name="sums add").click()
            assert not await scrolls_sideways(page)
            assert not await find_violations(page)
            await page.set_viewport_size({"width": 1280, "height": 800})
            assert not await find_violations(page)
