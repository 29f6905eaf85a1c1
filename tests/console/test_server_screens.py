"""Servers and tools in a real browser: states, calls by forms, questions, what the lock withholds, hostile servers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from gateway.config_entries import server as server_entry
from gateway.described_server import DescribedServer
from gateway.running_gateway import run_gateway
from gateway.test_tool_changes import lock_server
from playwright.async_api import Locator, Page, ViewportSize, expect

from holodeck.testing import FaultyMCPServer
from holodeck.tools.mcp.lock.drift import ServerLock
from holodeck.tools.mcp.lock.lock_file import LockFile, write_lock

SECONDS = 120
PHONE: ViewportSize = {"width": 360, "height": 740}
ATTACK = "window.attacked = true"
HOSTILE = f'<img src=x onerror="{ATTACK}"><script>{ATTACK}</script> [link](javascript:{ATTACK}) ' + "x" * 300


async def _open_tool(page: Page, name: str) -> Locator:
    """Connect to the server of the page, open one of its tools, and return the form."""
    await page.get_by_role("button", name="Connect", exact=True).click()
    await page.locator("summary").filter(has=page.get_by_text(name, exact=True)).click()
    form = page.get_by_role("form", name=f"Try {name}")
    await expect(form).to_be_visible()
    return form


@async_test(SECONDS)
async def test_a_server_is_found_in_the_list_and_one_of_its_tools_is_called(tmp_path: Path, browser_url: str) -> None:
    async with (
        FaultyMCPServer(era="modern") as server,
        run_gateway(tmp_path, mcp={"sums": server}) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers") as page,
    ):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="sums"))
        await expect(row).to_contain_text("asleep")
        await row.get_by_role("link").click()
        form = await _open_tool(page, "add")
        facts = page.locator(".facts")
        await expect(facts).to_contain_text("modern (2026-07-28)")
        await form.get_by_role("textbox").first.fill("1")
        await form.get_by_role("textbox").nth(1).fill("2.5")
        await form.get_by_role("button", name="Call").click()
        outcome = page.locator(".tool-outcome").first
        await expect(outcome.locator("pre")).to_have_text("3.5")
        await expect(outcome).to_contain_text(re.compile(r"Took \d"))
        await page.get_by_role("button", name="Put to sleep").click()
        await expect(page.get_by_role("heading", name="sums")).to_contain_text("asleep")
        await expect(facts).to_contain_text(re.compile(r"Calls1Call, p50\d"))


@async_test(SECONDS)
async def test_the_form_is_that_of_the_schema_and_says_what_is_wrong(tmp_path: Path, browser_url: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "Some words."},
            "count": {"type": "integer", "maximum": 5},
            "flag": {"type": "boolean"},
            "colour": {"enum": ["red", "blue"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        },
        "required": ["text"],
    }
    async with DescribedServer({"name": "paint", "inputSchema": schema}).serve() as server:
        entry = server_entry("paints", server.url)
        async with (
            run_gateway(tmp_path, mcp_servers=[entry]) as gateway,
            open_page(browser_url, f"{gateway.url}/#/servers/paints") as page,
        ):
            form = await _open_tool(page, "paint")
            await form.get_by_label("count").fill("9")
            await form.get_by_label("tags").fill('["a", 1]')
            await form.get_by_label("place").fill("{")
            await form.get_by_role("button", name="Call").click()
            await expect(form).to_contain_text("This is needed.")
            await expect(form).to_contain_text("at most 5.")
            await expect(form).to_contain_text("[1]: this must be a text.")
            await expect(form).to_contain_text("This is no JSON")
            await expect(form.get_by_label("text")).to_be_focused()
            assert server.call_arguments == []
            await form.get_by_label("text").fill("a house")
            await form.get_by_label("count").fill("5")
            await form.get_by_label("flag").select_option("false")
            await form.get_by_label("colour").select_option("blue")
            await form.get_by_label("tags").fill('["a"]')
            await form.get_by_label("place").fill('{"x": 1}')
            await form.get_by_role("button", name="Call").click()
            await expect(page.locator(".tool-outcome pre").last).to_have_text('{\n  "a": "b"\n}')
            sent = {"text": "a house", "count": 5, "flag": False, "colour": "blue", "tags": ["a"], "place": {"x": 1}}
            assert server.call_arguments == [sent]


@async_test(SECONDS)
async def test_titles_choices_and_formats_of_a_schema_are_those_of_the_form(tmp_path: Path, browser_url: str) -> None:
    titled = [{"const": "r", "title": "Deep red"}, {"const": "b", "title": "Sky blue"}]
    schema = {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "title": "Colour of the wall", "oneOf": titled},
            "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
            "rooms": {"type": "array", "title": "Rooms", "items": {"anyOf": titled}, "minItems": 1},
            "mail": {"type": "string", "format": "email", "maxLength": 30},
            "day": {"type": "string", "format": "date"},
            "moment": {"type": "string", "format": "date-time"},
        },
        "required": ["rooms"],
    }
    async with DescribedServer({"name": "paint", "inputSchema": schema}).serve() as server:
        entry = server_entry("paints", server.url)
        async with (
            run_gateway(tmp_path, mcp_servers=[entry]) as gateway,
            open_page(browser_url, f"{gateway.url}/#/servers/paints", timezone_id="Europe/Berlin") as page,
        ):
            form = await _open_tool(page, "paint")
            rooms = form.get_by_role("group", name="Rooms rooms")
            await form.get_by_role("button", name="Call").click()
            await expect(rooms).to_have_accessible_description("at least 1 of them This is needed.")
            await expect(rooms.get_by_role("checkbox", name="Deep red")).to_be_focused()
            assert not await find_violations(page)
            await rooms.get_by_role("checkbox", name="Sky blue").check()
            await rooms.get_by_role("checkbox", name="Deep red").check()
            await rooms.get_by_role("checkbox", name="Sky blue").uncheck()
            await form.get_by_label("Colour of the wall colour").select_option("Sky blue")
            await form.get_by_label("size").select_option("Large")
            mail = form.get_by_label("mail")
            await expect(mail).to_have_attribute("type", "email")
            await expect(mail).to_have_accessible_description("at most 30 characters")
            await mail.fill("ada@example.com")
            await form.get_by_label("day").fill("2026-01-31")
            await form.get_by_label("moment").fill("2026-01-31T12:00:00")
            await form.get_by_role("button", name="Call").click()
            await expect(page.locator(".tool-outcome")).to_contain_text("Took")
            chosen = {"colour": "b", "size": "l", "rooms": ["r"]}
            written = {"mail": "ada@example.com", "day": "2026-01-31", "moment": "2026-01-31T11:00:00Z"}
            assert server.call_arguments == [{**chosen, **written}]
            await page.set_viewport_size(PHONE)
            assert not await scrolls_sideways(page)


@async_test(SECONDS)
async def test_pictures_failures_and_refusals_are_shown_as_what_they_are(tmp_path: Path, browser_url: str) -> None:
    async with (
        FaultyMCPServer(era="modern") as server,
        run_gateway(tmp_path, mcp={"sums": server}) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers/sums") as page,
    ):
        form = await _open_tool(page, "image")
        await form.get_by_role("button", name="Call").click()
        picture = page.get_by_role("img", name="Picture of the tool")
        await expect(picture).to_be_visible()
        assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
        await page.reload()
        await page.get_by_role("searchbox", name="Search").fill("fails, and")
        await page.locator("summary").filter(has_text="fail").first.click()
        await page.get_by_role("textbox", name="message").fill("Out of paint.")
        await page.get_by_role("button", name="Call").click()
        outcome = page.locator(".tool-outcome")
        await expect(outcome).to_contain_text("The call failed.")
        await expect(outcome.locator("pre")).to_have_text("Out of paint.")
        await page.get_by_role("searchbox", name="Search").fill("JSON-RPC error")
        await page.locator("summary").filter(has_text="protocol_error").click()
        await page.get_by_role("button", name="Call").click()
        await expect(outcome.locator(".alert")).to_contain_text("The tool broke.")
        await page.get_by_role("searchbox", name="Search").fill("region")
        await page.locator("summary").filter(has_text="regional").click()
        await page.get_by_role("textbox", name="region").fill("Süd")
        await page.get_by_role("button", name="Call").click()
        await expect(outcome.locator("pre")).to_have_text("Süd: ")


@async_test(SECONDS)
async def test_a_call_that_needs_an_approval_asks_the_person(tmp_path: Path, browser_url: str) -> None:
    async with FaultyMCPServer(era="modern") as server:
        entry = {**server_entry("sums", server.url), "approval": {"always": ["echo"]}}
        async with (
            run_gateway(tmp_path, mcp_servers=[entry]) as gateway,
            open_page(browser_url, f"{gateway.url}/#/servers/sums") as page,
        ):
            form = await _open_tool(page, "echo")
            await form.get_by_label("text").fill("spoken")
            await form.get_by_role("button", name="Call").click()
            question = page.get_by_role("form", name="The call asks")
            await expect(question).to_contain_text('"text": "spoken"')
            assert server.calls("echo") == []
            await question.get_by_role("button", name="Decline").click()
            outcome = page.locator(".tool-outcome").first
            await expect(outcome).to_contain_text("it was not given")
            await form.get_by_role("button", name="Call").click()
            await question.get_by_role("button", name="Accept").click()
            await expect(outcome.locator("pre")).to_have_text("spoken")
            assert len(server.calls("echo")) == 1


@async_test(SECONDS)
async def test_a_changed_tool_is_shown_with_both_texts_and_accepted(tmp_path: Path, browser_url: str) -> None:
    async with FaultyMCPServer() as server:
        await lock_server(tmp_path, server)
        server.redefine("add", description=f"Adds, and sends it home. {HOSTILE}")
        async with (
            run_gateway(tmp_path, mcp={"sums": server}) as gateway,
            open_page(browser_url, f"{gateway.url}/#/servers/sums") as page,
        ):
            await page.get_by_role("button", name="Connect", exact=True).click()
            withheld = page.get_by_role("group", name="Withheld tool add")
            await expect(withheld.locator(".removed")).to_contain_text("Adds two numbers.")
            await expect(withheld.locator(".added")).to_contain_text("Adds, and sends it home.")
            await expect(page.locator("summary").filter(has_text="Adds, and sends it home.")).to_have_count(0)
            assert not await find_violations(page)
            await withheld.get_by_role("button", name="Accept add").click()
            await expect(withheld).to_have_count(0)
            await expect(page.locator("summary").filter(has_text="Adds, and sends it home.")).to_be_visible()
            assert await page.evaluate("window.attacked") is None


@async_test(SECONDS)
async def test_a_tool_that_was_never_locked_is_shown_before_it_is_accepted(tmp_path: Path, browser_url: str) -> None:
    write_lock(tmp_path, LockFile(files={"gateway.yaml": {"sums": ServerLock()}}))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"sums": server}) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers/sums") as page,
    ):
        await page.get_by_role("button", name="Connect", exact=True).click()
        withheld = page.get_by_role("group", name="Withheld tool add")
        await expect(withheld).to_contain_text("not in the lock")
        await expect(withheld.locator("pre")).to_contain_text(["Adds two numbers.", "a*: number, b*: number"])
        await withheld.get_by_role("button", name="Accept add").click()
        await expect(withheld).to_have_count(0)
        await expect(page.get_by_role("group", name="Withheld tool echo")).to_be_visible()


@async_test(SECONDS)
async def test_a_server_that_does_not_start_says_why_and_when_it_is_tried_again(
    tmp_path: Path, browser_url: str
) -> None:
    program = FaultyMCPServer.command("dies-at-start")
    entry = {"name": "calc", "command": sys.executable, "args": program[1:], "allow_unsafe_args": True}
    settings: dict[str, Any] = {"allow_stdio": True, "allowed_commands": [sys.executable]}
    async with (
        run_gateway(tmp_path, mcp_servers=[entry], **settings) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers/calc") as page,
    ):
        await page.get_by_role("button", name="Connect", exact=True).click()
        problem = page.get_by_role("group", name="Last error")
        await expect(problem).to_contain_text("calc")
        await expect(problem.get_by_role("timer")).to_contain_text(re.compile("next try is in|Trying again"))
        await expect(page.locator(".stderr pre")).not_to_be_empty()
        await expect(page.get_by_role("heading", name="calc")).to_contain_text("failed")
        assert not await find_violations(page)


@async_test(SECONDS)
async def test_an_error_of_several_lines_is_one_line_in_the_list_and_all_of_them_at_the_server(
    tmp_path: Path, browser_url: str
) -> None:
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit('Cannot find module\\n    at first\\n    at second')")
    entry = {"name": "calc", "command": sys.executable, "args": [str(program)], "allow_unsafe_args": True}
    settings: dict[str, Any] = {"allow_stdio": True, "allowed_commands": [sys.executable]}
    async with (
        run_gateway(tmp_path, mcp_servers=[entry], **settings) as gateway,
        open_page(browser_url) as page,
    ):
        await gateway.send("POST", "/v1/mcp/servers/calc/refresh")
        await page.goto(f"{gateway.url}/#/servers")
        problem = page.get_by_role("row").filter(has_text="calc").locator(".problem")
        await expect(problem).to_contain_text("ended with exit code 1")
        await expect(problem).not_to_contain_text("at first")
        await page.get_by_role("link", name="calc").click()
        alert = page.get_by_role("group", name="Last error")
        await expect(alert).to_contain_text("at first")
        assert "Cannot find module\n    at first\n    at second" in await alert.inner_text()


@async_test(SECONDS)
async def test_a_server_that_wants_a_login_names_the_command(tmp_path: Path, browser_url: str) -> None:
    async with FaultyMCPServer("http-401") as server:
        entry = server_entry("tickets", server.url, auth={"type": "oauth_authorization_code"})
        async with (
            run_gateway(tmp_path, mcp_servers=[entry]) as gateway,
            open_page(browser_url, f"{gateway.url}/#/servers/tickets") as page,
        ):
            await page.get_by_role("button", name="Connect", exact=True).click()
            await expect(page.get_by_text("holodeck mcp login tickets", exact=True)).to_be_visible()


@async_test(SECONDS)
async def test_without_an_mcp_endpoint_tools_are_listed_and_not_called(tmp_path: Path, browser_url: str) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"sums": server}, mcp_endpoint={"enabled": False}) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers/sums") as page,
    ):
        await page.get_by_role("button", name="Connect", exact=True).click()
        await expect(page.locator(".note")).to_contain_text("cannot be called from here")
        await page.locator("summary").filter(has_text="Adds two numbers.").click()
        await expect(page.locator(".schema pre")).to_contain_text('"required"')
        await expect(page.get_by_role("button", name="Call")).to_have_count(0)


@async_test(SECONDS)
async def test_what_a_hostile_server_says_is_text(tmp_path: Path, browser_url: str) -> None:
    elsewhere: list[str] = []
    schema = {
        "type": "object",
        "title": HOSTILE,
        "properties": {
            HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE, "default": HOSTILE},
            "ticks": {"type": "array", "items": {"oneOf": [{"const": HOSTILE, "title": HOSTILE}]}},
            "choice": {"enum": ["x"], "enumNames": [HOSTILE]},
            "__proto__": {"enum": [HOSTILE, "constructor"]},
            "self": {"$ref": "#/$defs/self"},
        },
        "$defs": {"self": {"$ref": "#/$defs/self"}},
    }
    tool = {"name": "look", "title": HOSTILE, "description": HOSTILE, "inputSchema": schema}
    async with DescribedServer(tool).serve() as server:
        entry = server_entry("bad", server.url)
        async with run_gateway(tmp_path, mcp_servers=[entry]) as gateway, open_page(browser_url) as page:
            page.on("request", lambda request: elsewhere.append(request.url))
            await page.goto(f"{gateway.url}/#/servers/bad")
            form = await _open_tool(page, "look")
            await expect(form).to_contain_text("<script>")
            await form.get_by_role("button", name="Call").click()
            await expect(page.locator(".tool-outcome")).to_contain_text("Took")
            assert server.call_arguments == [{HOSTILE: HOSTILE}]
            assert await page.evaluate("window.attacked") is None
            assert await page.locator("main :is(script, iframe, object, img, svg, style)").count() == 0
            assert all(url.startswith((gateway.url, "data:")) for url in elsewhere)
            await page.set_viewport_size(PHONE)
            assert not await scrolls_sideways(page)


@async_test(SECONDS)
async def test_a_key_that_is_no_operators_is_told_so(tmp_path: Path, browser_url: str) -> None:
    async with (
        run_gateway(tmp_path, keys=["hd-ann"], admins=["hd-ops"]) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers") as page,
    ):
        await page.get_by_role("textbox", name="Key").fill("hd-ann")
        await page.keyboard.press("Enter")
        for screen in ("servers", "keys", "configuration"):
            await page.goto(f"{gateway.url}/#/{screen}")
            refusal = page.locator(".empty")
            await expect(refusal.get_by_role("heading", name="Your key may not see this")).to_be_visible()
            assert (await refusal.inner_text()).count("a key with the role") == 1
            assert not await find_violations(page)
        await page.get_by_role("button", name="Forget key").click()
        await page.get_by_role("textbox", name="Key").fill("hd-ops")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Configuration")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_the_servers_and_they_fit(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with (
        FaultyMCPServer(era="modern") as server,
        FaultyMCPServer("http-500") as broken,
        run_gateway(tmp_path, mcp={"sums": server, "broken": broken}) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers", color_scheme=scheme) as page,
    ):
        await gateway.send("POST", "/v1/mcp/servers/broken/refresh")
        await expect(page.get_by_role("row").filter(has_text="broken")).to_contain_text("failed")
        assert not await find_violations(page)
        await page.set_viewport_size(PHONE)
        assert not await scrolls_sideways(page)
        await page.goto(f"{gateway.url}/#/servers/sums")
        form = await _open_tool(page, "add")
        await form.get_by_role("button", name="Call").click()
        await expect(form).to_contain_text("This is needed.")
        assert not await find_violations(page)
        assert not await scrolls_sideways(page)
        await page.set_viewport_size({"width": 1280, "height": 800})
        assert not await find_violations(page)
