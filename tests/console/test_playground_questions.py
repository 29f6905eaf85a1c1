"""Questions of MCP servers in the playground: a person answers them in the middle of a call, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from console.playground_page import PlaygroundPage
from gateway.running_gateway import run_gateway
from playwright.async_api import expect

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

SECONDS = 90
PHONE = {"width": 360, "height": 740}


def repeat_output(received: Any) -> Any:
    """A model that calls the tool that asks, and says what the server got."""
    last = received.json["messages"][-1]
    return say(f"It got `{last['content']}`") if last["role"] == "tool" else call("ask_elicitation")


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test(SECONDS)
async def test_the_form_of_a_server_is_filled_in_and_the_answer_shows_it(
    tmp_path: Path, browser_url: str, era: Any
) -> None:
    async with (
        FaultyMCPServer(era=era) as server,
        run_gateway(tmp_path, ScriptedModel(repeat_output), mcp={"forms": server}) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        playground = PlaygroundPage(page)
        await playground.send("Ask me")
        form = page.get_by_role("form", name="Server forms asks")
        await expect(form).to_contain_text("What is your name?")
        await expect(page.get_by_role("status").filter(has_text="Server forms asks: What is your name?")).to_have_count(
            1
        )
        name = form.get_by_role("textbox", name="name")
        await expect(name).to_be_focused()
        await form.get_by_role("button", name="Accept").click()
        await expect(form).to_contain_text("This is needed.")
        await name.fill("Ada")
        await form.get_by_role("button", name="Accept").click()
        exchange = await playground.wait_done(1)
        await expect(exchange).to_contain_text('It got {"action": "accept", "content": {"name": "Ada"}}')
        await expect(form).to_have_count(0)


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("button", ["Decline", "Cancel"])
@async_test(SECONDS)
async def test_a_question_is_declined_or_put_aside_by_a_click(tmp_path: Path, browser_url: str, button: str) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(repeat_output), mcp={"forms": server}) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        playground = PlaygroundPage(page)
        await playground.send("Ask me")
        await page.get_by_role("form", name="Server forms asks").get_by_role("button", name=button).click()
        exchange = await playground.wait_done(1)
        await expect(exchange).to_contain_text(f'It got {{"action": "{button.lower()}"}}')


@pytest.mark.proves("D-20")
@async_test(SECONDS)
async def test_a_person_who_is_typing_keeps_the_focus_and_stops_the_run_with_its_question(
    tmp_path: Path, browser_url: str
) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(repeat_output), mcp={"forms": server}) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        playground = PlaygroundPage(page)
        await playground.send("Ask me")
        await playground.message.fill("And then")
        form = page.get_by_role("form", name="Server forms asks")
        await expect(form).to_be_visible()
        await expect(playground.message).to_be_focused()
        await page.get_by_role("button", name="Stop").click()
        await expect(await playground.wait_done(1)).to_contain_text("Stopped.")
        await expect(form).to_have_count(0)


@pytest.mark.proves("D-20")
@async_test(SECONDS)
async def test_a_page_to_visit_is_a_link_with_its_host(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(call("ask_elicitation", url="https://example.com/sign-in?a=1"), say("Welcome."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"forms": server}) as gateway,
        open_page(browser_url, gateway.url) as page,
    ):
        playground = PlaygroundPage(page)
        await playground.send("Sign in")
        form = page.get_by_role("form", name="Server forms asks")
        await expect(form).to_contain_text("a page of example.com")
        link = form.get_by_role("link")
        await expect(link).to_have_attribute("href", "https://example.com/sign-in?a=1")
        await expect(link).to_have_attribute("rel", "noopener noreferrer")
        await form.get_by_role("button", name="I have done it").click()
        await expect(await playground.wait_done(1)).to_contain_text("Welcome.")
        output = gateway.model_requests[-1]["messages"][-1]["content"]
        assert json.loads(output) == {"action": "accept"}


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_a_question_is_accessible_and_fits_a_phone(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(repeat_output), mcp={"forms": server}) as gateway,
        open_page(browser_url, gateway.url, color_scheme=scheme, viewport=PHONE) as page,
    ):
        playground = PlaygroundPage(page)
        await playground.send("Ask me")
        form = page.get_by_role("form", name="Server forms asks")
        await form.get_by_role("button", name="Accept").click()
        await expect(form).to_contain_text("This is needed.")
        assert not await find_violations(page)
        assert not await scrolls_sideways(page)
        await form.get_by_role("textbox", name="name").press_sequentially("Ada")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(await playground.wait_done(1)).to_contain_text("Ada")
