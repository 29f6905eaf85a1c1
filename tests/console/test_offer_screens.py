"""Prompts and resources of servers in a real browser: arguments, messages, texts, pictures, files, hostile servers."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from gateway.changing_server import ChangingServer
from gateway.config_entries import server as server_entry
from gateway.running_gateway import run_gateway
from installed_servers import PACKAGES
from playwright.async_api import Locator, Page, ViewportSize, expect

from holodeck.testing import FaultyMCPServer
from holodeck.testing.mcp.tools import BLOB

SECONDS = 120
PHONE: ViewportSize = {"width": 360, "height": 740}
EVERYTHING = PACKAGES / "@modelcontextprotocol/server-everything/dist"
# The smallest picture: one transparent dot.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ATTACK = "window.attacked = true"
HOSTILE = f'<img src=x onerror="{ATTACK}"><script>{ATTACK}</script> [link](javascript:{ATTACK}) ' + "x" * 300
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{ATTACK}"><script>{ATTACK}</script></svg>'
SHOWN_CHARACTERS = 200_000


@asynccontextmanager
async def _open_server(folder: Path, browser_url: str, *entries: Any, **config: Any) -> AsyncIterator[Page]:
    """The screen of the server `offers`, which is connected."""
    async with (
        run_gateway(folder, mcp_servers=list(entries), **config) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers/offers") as page,
    ):
        await page.get_by_role("button", name="Connect", exact=True).click()
        yield page


async def _open(page: Page, name: str, verb: str) -> tuple[Locator, Locator]:
    """Open something that the server offers: its form, and where its outcome is."""
    details = page.locator("details.server-tool").filter(has=page.locator("summary").get_by_text(name, exact=True))
    await details.locator("summary").first.click()
    form = page.get_by_role("form", name=f"{verb} {name}", exact=True)
    await expect(form).to_be_visible()
    return form, details.locator(".tool-outcome")


@async_test(SECONDS)
async def test_prompts_of_a_real_server_are_got_with_their_arguments(tmp_path: Path, browser_url: str) -> None:
    command = {"command": "node", "args": [str(EVERYTHING / "index.js")]}
    entry = {"name": "offers", "type": "mcp", "description": "Everything", **command}
    async with _open_server(tmp_path, browser_url, entry, allow_stdio=True, allowed_commands=["node"]) as page:
        form, outcome = await _open(page, "args-prompt", "Get")
        await expect(form).to_contain_text("Name of the city")
        await form.get_by_role("button", name="Get").click()
        city = form.get_by_role("textbox", name="city")
        await expect(city).to_be_focused()
        await expect(city).to_have_accessible_description(re.compile("This is needed"))
        await city.fill("Ulm")
        await form.get_by_role("button", name="Get").click()
        message = outcome.get_by_role("group", name="Message 1")
        await expect(message.get_by_role("heading")).to_have_text("user")
        await expect(message.locator("pre")).to_have_text("What's weather in Ulm?")
        form, outcome = await _open(page, "resource-prompt", "Get")
        await form.get_by_role("textbox", name="resourceType").fill("Text")
        await form.get_by_role("textbox", name="resourceId").fill("7")
        await form.get_by_role("button", name="Get").click()
        embedded = outcome.get_by_role("group", name="Message 2")
        await expect(embedded).to_contain_text("demo://resource/dynamic/text/7")
        await expect(embedded.locator("pre")).to_contain_text("Resource 7: This is a plaintext resource")
        await form.get_by_role("textbox", name="resourceType").fill("Nothing")
        await form.get_by_role("button", name="Get").click()
        await expect(outcome.locator(".alert")).to_contain_text("Invalid resourceType: Nothing. Must be Text or Blob.")


@async_test(SECONDS)
async def test_resources_of_a_real_server_are_read_also_by_a_template(tmp_path: Path, browser_url: str) -> None:
    command = {"command": "node", "args": [str(EVERYTHING / "index.js")]}
    entry = {"name": "offers", "type": "mcp", "description": "Everything", **command}
    async with _open_server(tmp_path, browser_url, entry, allow_stdio=True, allowed_commands=["node"]) as page:
        form, outcome = await _open(page, "demo://resource/static/document/features.md", "Read")
        await form.get_by_role("button", name="Read").click()
        document = (EVERYTHING / "docs/features.md").read_text()
        assert await outcome.locator("pre").text_content() == document
        await expect(outcome).to_contain_text("text/markdown")
        form, outcome = await _open(page, "demo://resource/dynamic/blob/{resourceId}", "Read")
        await form.get_by_role("button", name="Read").click()
        variable = form.get_by_role("textbox", name="resourceId")
        await expect(variable).to_be_focused()
        await variable.fill("3")
        await expect(form.get_by_role("status", name="URI")).to_have_text("demo://resource/dynamic/blob/3")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        # The server says that its bytes are text.
        await expect(outcome.locator("pre")).to_contain_text("Resource 3: This is a base64 blob")


@async_test(SECONDS)
async def test_texts_pictures_and_files_are_shown_as_what_they_are(tmp_path: Path, browser_url: str) -> None:
    async with FaultyMCPServer(era="modern") as server:
        await server.put_resource("test://dot.png", blob=PIXEL, mime_type="image/png")
        await server.put_resource(
            "test://logo.svg", blob=base64.b64encode(SVG.encode()).decode(), mime_type="image/svg+xml"
        )
        await server.put_resource("test://broken", blob="no base64!", mime_type="image/png")
        await server.put_resource("test://long", text="ä" * SHOWN_CHARACTERS + "end of it")
        async with _open_server(tmp_path, browser_url, server_entry("offers", server.url)) as page:
            form, outcome = await _open(page, "test://dot.png", "Read")
            await form.get_by_role("button", name="Read").click()
            picture = outcome.get_by_role("img", name="Picture of the resource (image/png)")
            assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
            form, outcome = await _open(page, "test://logo.svg", "Read")
            await form.get_by_role("button", name="Read").click()
            await expect(outcome.locator("pre")).to_have_text(SVG)
            form, outcome = await _open(page, "test://broken", "Read")
            await form.get_by_role("button", name="Read").click()
            await expect(outcome).to_contain_text("not valid base64")
            form, outcome = await _open(page, "test://long", "Read")
            await form.get_by_role("button", name="Read").click()
            await expect(outcome).to_contain_text("9 more characters are not shown.")
            assert await outcome.locator("pre").text_content() == "ä" * SHOWN_CHARACTERS
            form, outcome = await _open(page, "test://data.bin", "Read")
            await form.get_by_role("button", name="Read").click()
            bytes_of_it = base64.b64decode(BLOB)
            await expect(outcome).to_contain_text(f"application/octet-stream, {len(bytes_of_it)} B")
            async with page.expect_download() as started:
                await outcome.get_by_role("button", name=f"Download ({len(bytes_of_it)} B)").click()
            download = await started.value
            assert download.suggested_filename == "data.bin"
            await download.save_as(tmp_path / "saved")
            assert (tmp_path / "saved").read_bytes() == bytes_of_it
            assert await page.evaluate("window.attacked") is None


@async_test(SECONDS)
async def test_a_template_has_a_field_for_each_variable_and_failures_are_the_servers_words(
    tmp_path: Path, browser_url: str
) -> None:
    async with (
        FaultyMCPServer() as server,
        _open_server(tmp_path, browser_url, server_entry("offers", server.url)) as page,
    ):
        form, outcome = await _open(page, "test://pages/{topic}/{page}", "Read")
        await form.get_by_role("textbox", name="topic").fill("plans")
        await form.get_by_role("textbox", name="page").fill("3/4")
        await expect(form.get_by_role("status", name="URI")).to_have_text("test://pages/plans/3%2F4")
        await form.get_by_role("button", name="Read").click()
        await expect(outcome.locator(".alert")).to_have_text("Unknown resource: test://pages/plans/3%2F4")
        await form.get_by_role("textbox", name="page").fill("3")
        await form.get_by_role("button", name="Read").click()
        await expect(outcome.locator("pre")).to_have_text("plans, page 3")


@async_test(SECONDS)
async def test_a_resource_that_needs_an_approval_asks_the_person(tmp_path: Path, browser_url: str) -> None:
    async with FaultyMCPServer(era="modern") as server:
        entry = {**server_entry("offers", server.url), "approval": {"always": ["read_resource"]}}
        async with _open_server(tmp_path, browser_url, entry) as page:
            form, outcome = await _open(page, "test://notes.txt", "Read")
            await form.get_by_role("button", name="Read").click()
            question = page.get_by_role("form", name="The call asks")
            await expect(question).to_contain_text('"uri": "test://notes.txt"')
            await question.get_by_role("button", name="Decline").click()
            await expect(outcome.locator(".alert")).to_contain_text("it was not given")
            await form.get_by_role("button", name="Read").click()
            await question.get_by_role("button", name="Accept").click()
            await expect(outcome.locator("pre")).to_have_text("notes")


class _HostileServer(ChangingServer):
    """Says what no server should, in every place where a server says something."""

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        about = {"title": HOSTILE, "description": HOSTILE, "mimeType": HOSTILE}
        arguments = [{"name": HOSTILE, "description": HOSTILE, "required": True}] * 2 + [{"name": "__proto__"}]
        blocks: list[Any] = [
            {"type": "text", "text": HOSTILE},
            {"type": "text", "text": {"nested": HOSTILE}},
            {"type": "image", "mimeType": "image/svg+xml", "data": base64.b64encode(SVG.encode()).decode()},
            {"type": "image", "mimeType": f'image/png" onerror="{ATTACK}', "data": "AAAA"},
            {"type": "resource", "resource": {"uri": f"javascript:{ATTACK}", "mimeType": "text/html", "text": HOSTILE}},
            {"type": "resource", "resource": {"uri": HOSTILE, "mimeType": "text/html", "blob": "%%%"}},
            {"type": "resource_link", "uri": f"javascript:{ATTACK}", "name": HOSTILE},
            {"type": HOSTILE},
        ]
        contents = [block["resource"] for block in blocks if block["type"] == "resource"]
        answers: dict[str, Any] = {
            "prompts/list": {"prompts": [{"name": "say", "arguments": arguments, **about}]},
            "prompts/get": {
                "description": HOSTILE,
                "messages": [{"role": HOSTILE, "content": each} for each in blocks],
            },
            "resources/list": {"resources": [{"uri": "bad://one", "name": HOSTILE, **about}]},
            "resources/templates/list": {
                "resourceTemplates": [{"uriTemplate": "bad://{no such expression}/x", "name": HOSTILE, **about}]
            },
            "resources/read": {"contents": contents},
        }
        if method == "initialize":
            answer = super()._result(method, params)
            answer["result"]["capabilities"] |= {"prompts": {}, "resources": {}}
            return answer
        return {"result": answers[method]} if method in answers else super()._result(method, params)


@async_test(SECONDS)
async def test_what_a_hostile_server_has_to_read_is_text(tmp_path: Path, browser_url: str) -> None:
    elsewhere: list[str] = []
    async with (
        _HostileServer("look").serve() as server,
        _open_server(tmp_path, browser_url, server_entry("offers", server.url)) as page,
    ):
        page.on("request", lambda request: elsewhere.append(request.url))
        form, outcome = await _open(page, "say", "Get")
        await form.get_by_role("textbox").first.fill(HOSTILE)
        await form.get_by_role("button", name="Get").click()
        await expect(outcome.get_by_role("group", name=re.compile("Message"))).to_have_count(8)
        await expect(outcome.get_by_role("group", name="Message 1").locator("pre")).to_have_text(HOSTILE)
        await expect(outcome.get_by_role("group", name="Message 2").locator("pre")).to_contain_text('{"nested":')
        form, outcome = await _open(page, "bad://one", "Read")
        await form.get_by_role("button", name="Read").click()
        await expect(outcome.locator("pre")).to_have_text(HOSTILE)
        form, outcome = await _open(page, "bad://{no such expression}/x", "Read")
        await form.get_by_role("textbox", name="URI").fill(f"javascript:{ATTACK}")
        await form.get_by_role("button", name="Read").click()
        await expect(outcome.locator("pre")).to_have_text(HOSTILE)
        assert await page.evaluate("window.attacked") is None
        assert await page.locator("main :is(script, iframe, object, img, svg, style)").count() == 0
        assert await page.locator("main a[href^='javascript']").count() == 0
        origin = page.url.partition("/#")[0]
        assert all(url.startswith((origin, "data:")) for url in elsewhere)
        await page.set_viewport_size(PHONE)
        assert not await scrolls_sideways(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_what_is_read_and_it_fits(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with (
        FaultyMCPServer(era="modern") as server,
        run_gateway(tmp_path, mcp={"offers": server}) as gateway,
        open_page(browser_url, f"{gateway.url}/#/servers/offers", color_scheme=scheme) as page,
    ):
        await page.get_by_role("button", name="Connect", exact=True).click()
        form, outcome = await _open(page, "review", "Get")
        await form.get_by_role("textbox", name="code").fill("f()")
        await form.get_by_role("button", name="Get").click()
        await expect(outcome.locator("pre")).to_contain_text("f()")
        form, outcome = await _open(page, "test://far.pdf", "Read")
        await form.get_by_role("button", name="Read").click()
        await expect(outcome.get_by_role("button", name="Download")).to_be_visible()
        form, _ = await _open(page, "test://pages/{topic}/{page}", "Read")
        await form.get_by_role("button", name="Read").click()
        await expect(form).to_contain_text("This is needed.")
        assert not await find_violations(page)
        await page.set_viewport_size(PHONE)
        assert not await find_violations(page)
        assert not await scrolls_sideways(page)
