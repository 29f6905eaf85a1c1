"""The frame of the console, in a real browser: the page, its navigation, its key, its weight."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from console.browser import open_page
from console.playground_page import PlaygroundPage
from console.prefix_proxy import PREFIX, serve_below_prefix
from gateway.running_gateway import run_gateway
from playwright.async_api import Page, Response, Route, expect

from holodeck.testing import ScriptedModel, say

SECONDS = 90
# Compressed bytes that a first visit may load.
MAX_FIRST_LOAD = 150_000


@pytest.mark.proves("D-41")
@async_test(SECONDS)
async def test_the_gateway_serves_the_console_at_its_root(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path) as gateway, open_page(browser_url, gateway.url) as page:
        await expect(page.get_by_role("heading", name="Playground")).to_be_attached()
        assert await page.title() == "Playground · HoloDeck"
        await page.get_by_role("link", name="Runs").click()
        await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        assert await page.title() == "Runs · HoloDeck"


@pytest.mark.proves("D-41")
@async_test(SECONDS)
async def test_a_first_visit_loads_little_and_nothing_from_elsewhere(tmp_path: Path, browser_url: str) -> None:
    answers: list[Response] = []
    async with run_gateway(tmp_path) as gateway, open_page(browser_url) as page:
        page.on("response", lambda answer: answers.append(answer) if answer.ok else None)
        await page.goto(gateway.url)
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        assert all(answer.url.startswith(gateway.url) for answer in answers)
        sizes = [int(answer.headers["content-length"]) for answer in answers]
        assert 0 < sum(sizes) < MAX_FIRST_LOAD
        encodings = {answer.headers.get("content-encoding") for answer in answers if "/console/" in answer.url}
        assert encodings <= {"br", "gzip"}


@async_test(SECONDS)
async def test_a_key_is_asked_for_once_and_stays_in_its_tab(tmp_path: Path, browser_url: str) -> None:
    requests: list[str] = []
    model = ScriptedModel(say("Hi."))
    async with (
        run_gateway(tmp_path, model, keys=["hd-ann"]) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        page.on("request", lambda request: requests.append(request.url))
        await _enter_key(page, "hd-wrong")
        await expect(page.get_by_text("does not accept the key")).to_be_visible()
        await _enter_key(page, "hd-ann")
        await expect(await PlaygroundPage(page).ask("Hello")).to_contain_text("Hi.")
        await page.wait_for_url("**/conv_*")
        await page.reload()
        await expect(PlaygroundPage(page).exchanges.last).to_contain_text("Hi.")
        assert not await page.context.cookies()
        assert "hd-ann" not in str(await page.context.storage_state())
        assert all("hd-ann" not in url for url in requests)
        other = await page.context.new_page()
        await other.goto(gateway.url)
        await expect(other.get_by_role("dialog")).to_be_visible()
        await page.get_by_role("button", name="Forget key").click()
        await expect(page.get_by_role("dialog")).to_be_visible()


@pytest.mark.proves("D-41")
@async_test(SECONDS)
async def test_a_late_refusal_of_a_key_does_not_ask_again_after_the_next_was_entered(
    tmp_path: Path, browser_url: str
) -> None:
    is_held, go_on = asyncio.Event(), asyncio.Event()

    async def hold_wrong_key(route: Route) -> None:
        answer = await route.fetch()
        if route.request.headers.get("authorization") == "Bearer hd-wrong":
            is_held.set()
            await go_on.wait()
        await route.fulfill(response=answer)

    async with (
        run_gateway(tmp_path, ScriptedModel(say("Hi.")), keys=["hd-ann"]) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        for path in ("models", "me"):
            await page.route(f"**/v1/{path}", hold_wrong_key)
        await _enter_key(page, "hd-wrong")
        await is_held.wait()
        await page.get_by_role("button", name="Forget key").click()
        await _enter_key(page, "hd-ann")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        async with page.expect_event("requestfinished"):
            go_on.set()
        await expect(await PlaygroundPage(page).ask("Hello")).to_contain_text("Hi.")


@async_test(SECONDS)
async def test_two_callers_see_nothing_of_each_other(tmp_path: Path, browser_url: str) -> None:
    async with (
        run_gateway(tmp_path, ScriptedModel(say("For Ann."), say("For Bob.")), keys=["hd-ann", "hd-bob"]) as gateway,
        open_page(browser_url, gateway.url) as ann,
        open_page(browser_url, gateway.url) as bob,
    ):
        for page, key, name in ((ann, "hd-ann", "Ann"), (bob, "hd-bob", "Bob")):
            await _enter_key(page, key)
            await PlaygroundPage(page).ask(f"I am {name}.")
            await page.wait_for_url("**/conv_*")
        address = ann.url
        await bob.get_by_role("link", name="Runs", exact=True).click()
        await expect(bob.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        await expect(bob.get_by_text("I am Bob.")).to_be_visible()
        await expect(bob.get_by_text("I am Ann.")).to_have_count(0)
        # The address of a conversation is no key to it.
        await bob.goto(address)
        await expect(bob.get_by_role("alert")).to_be_visible()
        await expect(bob.get_by_text("For Ann.")).to_have_count(0)


@async_test(SECONDS)
async def test_the_next_key_in_a_tab_shows_nothing_of_the_one_before(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(say("For Ann."), say("For Bob."))
    async with (
        run_gateway(tmp_path, model, keys=["hd-ann", "hd-bob"]) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        await _enter_key(page, "hd-ann")
        await PlaygroundPage(page).ask("I am Ann.")
        await expect(page.get_by_role("link", name="I am Ann.")).to_be_visible()
        await page.get_by_role("button", name="Forget key").click()
        await expect(page.get_by_text("Ann.")).to_have_count(0)
        await _enter_key(page, "hd-bob")
        await PlaygroundPage(page).ask("I am Bob.")
        listed = page.get_by_role("navigation", name="Conversations").get_by_role("listitem")
        await expect(listed).to_contain_text(["I am Bob."])
        await expect(page.get_by_text("Ann.")).to_have_count(0)


@async_test(SECONDS)
async def test_a_key_is_asked_for_until_one_is_accepted(tmp_path: Path, browser_url: str) -> None:
    async with (
        run_gateway(tmp_path, ScriptedModel(say("Hi.")), keys=["hd-ann"]) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        dialog = page.get_by_role("dialog")
        for _ in range(3):
            await expect(dialog).to_be_visible()
            await page.keyboard.press("Escape")
        for _ in range(2):
            await _enter_key(page, "wrong")
            await expect(page.get_by_text("does not accept the key")).to_be_visible()
            await expect(page.get_by_role("textbox", name="Key")).to_have_value("")
        await _enter_key(page, "hd-ann")
        await expect(await PlaygroundPage(page).ask("Hello")).to_contain_text("Hi.")
        await page.get_by_role("button", name="Forget key").click()
        await expect(page.get_by_role("textbox", name="Key")).to_have_value("")


@async_test(SECONDS)
async def test_a_key_without_models_is_told_so(tmp_path: Path, browser_url: str) -> None:
    scopes: dict[str, dict[str, list[str]]] = {"hd-ann": {"models": [], "agents": []}}
    async with (
        run_gateway(tmp_path, keys=["hd-ann"], scopes=scopes) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        await _enter_key(page, "hd-ann")
        await expect(page.get_by_text("Your key may use no model and no agent.")).to_be_visible()


async def _enter_key(page: Page, key: str) -> None:
    await page.get_by_role("textbox", name="Key").fill(key)
    await page.get_by_role("button", name="Use this key").click()


@async_test(SECONDS)
async def test_the_console_works_below_the_path_of_a_proxy(tmp_path: Path, browser_url: str) -> None:
    async with (
        run_gateway(tmp_path, ScriptedModel(say("From afar."))) as gateway,
        serve_below_prefix(gateway.url) as url,
        open_page(browser_url, url) as page,
    ):
        await expect(await PlaygroundPage(page).ask("Hello")).to_contain_text("From afar.")
        assert PREFIX in page.url


@async_test(SECONDS)
async def test_dark_and_light_follow_the_system_until_one_is_chosen(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path) as gateway, open_page(browser_url, gateway.url) as page:
        colours = page.get_by_role("combobox", name="Colours")
        light = await _read_background(page)
        await page.emulate_media(color_scheme="dark")
        dark = await _read_background(page)
        assert light != dark
        await colours.select_option("light")
        assert await _read_background(page) == light
        await page.reload()
        await expect(colours).to_have_value("light")
        assert await _read_background(page) == light
        await colours.select_option("system")
        assert await _read_background(page) == dark


async def _read_background(page: Page) -> str:
    return str(await page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))


@async_test(SECONDS)
async def test_a_screen_that_does_not_exist_leads_back(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path) as gateway, open_page(browser_url, f"{gateway.url}/#/nowhere") as page:
        await page.get_by_role("link", name="playground", exact=True).click()
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()


@async_test(SECONDS)
async def test_a_text_is_copied_where_a_page_has_no_clipboard_of_the_newer_kind(
    tmp_path: Path, browser_url: str
) -> None:
    """As over plain http from another machine, where browsers leave `navigator.clipboard` out."""
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway, open_page(browser_url) as page:
        await page.add_init_script("delete Navigator.prototype.clipboard")
        await page.goto(gateway.url)
        exchange = await PlaygroundPage(page).ask("Hello")
        await exchange.get_by_role("link", name="Run").click()
        run_id = await page.locator(".run-head code").inner_text()
        copy = page.get_by_role("button", name="Copy id")
        await copy.click()
        await expect(page.get_by_role("button", name="Copied")).to_be_focused()
        await page.goto(f"{gateway.url}/#/playground")
        message = PlaygroundPage(page).message
        await message.focus()
        await page.keyboard.press("Control+V")
        await expect(message).to_have_value(run_id)
