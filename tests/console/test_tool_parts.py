"""Pictures, sounds and files that tools return, in a real browser: in the conversation and in the run."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from console.playground_page import PlaygroundPage
from gateway.config_entries import server as server_entry
from gateway.described_server import DescribedServer
from gateway.running_gateway import run_gateway
from playwright.async_api import Locator, Page, ViewportSize, expect

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.mcp.tools import tool_entry

SECONDS = 120
PHONE: ViewportSize = {"width": 360, "height": 740}
ATTACK = "window.attacked = true"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{ATTACK}"><script>{ATTACK}</script></svg>'
PAGE = f"<script>{ATTACK}</script>"
HOSTILE_TYPES = ("image/svg+xml", "text/html", f'image/png" onerror="{ATTACK}', "image/png,<svg/onload=alert(1)>")


def encode_png(width: int, height: int) -> str:
    """A grey picture of this size, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + b"\x80" * width) * height
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def picture_block(data: str, mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": mime_type}


def drawing_server(content: Sequence[dict[str, Any]]) -> DescribedServer:
    """A server whose tool `draw` returns this content."""
    return DescribedServer(tool_entry("draw", "Draws."), content=content)


async def natural_size(picture: Locator) -> list[int]:
    """The size of a picture once it is decoded; an error if it cannot be."""
    script = "async picture => { await picture.decode(); return [picture.naturalWidth, picture.naturalHeight] }"
    return list(await picture.evaluate(script))


def count_traces(page: Page) -> list[str]:
    """The traces that a page reads, from now on."""
    read: list[str] = []
    page.on("request", lambda request: read.append(request.url) if request.url.endswith("/trace") else None)
    return read


@async_test(SECONDS)
async def test_a_picture_of_a_tool_is_seen_in_the_conversation_and_in_its_run(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(call("draw"), say("Drawn."), say("Gladly."))
    content = [{"type": "text", "text": "a wall"}, picture_block(encode_png(37, 900))]
    async with drawing_server(content).serve() as server:
        entry = server_entry("art", server.url)
        async with run_gateway(tmp_path, model, mcp_servers=[entry]) as gateway, open_page(browser_url) as page:
            read = count_traces(page)
            await page.goto(gateway.url)
            playground = PlaygroundPage(page)
            exchange = await playground.ask("Draw a wall")
            picture = exchange.get_by_role("img", name="Picture from draw of art")
            await expect(picture).to_be_visible()
            assert await natural_size(picture) == [37, 900]
            box = await picture.bounding_box()
            assert box is not None
            assert box["height"] <= 400
            await expect(exchange.locator("details.call")).not_to_have_attribute("open", "")
            # One that answers without pictures needs no trace.
            await playground.ask("Thanks")
            assert len(read) == 1
            await page.reload()
            assert await natural_size(picture) == [37, 900]
            await exchange.get_by_role("link", name="Run").click()
            await page.get_by_role("option", name="art draw").click()
            shown = page.get_by_role("region", name="Step: draw").get_by_role("img", name="Picture from draw of art")
            assert await natural_size(shown) == [37, 900]


@async_test(SECONDS)
async def test_the_picture_of_an_approved_call_is_seen(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(call("draw"), say("Drawn."))
    async with drawing_server([picture_block(encode_png(5, 3))]).serve() as server:
        entry = {**server_entry("art", server.url), "approval": "always"}
        async with (
            run_gateway(tmp_path, model, mcp_servers=[entry]) as gateway,
            open_page(browser_url, gateway.url) as page,
        ):
            playground = PlaygroundPage(page)
            exchange = await playground.ask("Draw")
            await exchange.get_by_role("button", name="Approve").click()
            drawn = await playground.wait_done(2)
            assert await natural_size(drawn.get_by_role("img", name="Picture from draw of art")) == [5, 3]


@async_test(SECONDS)
async def test_svg_and_hostile_types_are_files_and_never_pictures(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(call("draw"), say("Drawn."))
    data = [base64.b64encode(text.encode()).decode() for text in (SVG, PAGE, PAGE, SVG)]
    content = [picture_block(*each) for each in zip(data, HOSTILE_TYPES, strict=True)]
    page_name = f'<img src=x onerror="{ATTACK}">.html'
    resource = {"uri": f"test://a/{page_name}", "mimeType": "image/svg+xml", "blob": data[0]}
    async with drawing_server([*content, {"type": "resource", "resource": resource}]).serve() as server:
        entry = server_entry("bad", server.url)
        async with run_gateway(tmp_path, model, mcp_servers=[entry]) as gateway, open_page(browser_url) as page:
            await page.goto(gateway.url)
            exchange = await PlaygroundPage(page).ask("Draw")
            await _check_files(page, exchange)
            await exchange.get_by_role("link", name="Run").click()
            await page.get_by_role("option", name="bad draw").click()
            await _check_files(page, page.get_by_role("region", name="Step: draw"))


async def _check_files(page: Page, place: Locator) -> None:
    files = place.locator(".tool-file")
    await expect(files).to_have_count(len(HOSTILE_TYPES) + 1)
    for number, kind in enumerate(HOSTILE_TYPES):
        await expect(files.nth(number)).to_contain_text(kind.lower())
    hostile = page.locator("main :is(img, svg, audio, video, object, embed, iframe, script, style)")
    assert await hostile.count() == 0
    assert await page.evaluate("window.attacked") is None


@async_test(SECONDS)
async def test_a_sound_can_be_played_and_a_file_saved(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(call("many_blocks"), say("Many."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"mix": server}) as gateway,
        open_page(browser_url, gateway.url, accept_downloads=True) as page,
    ):
        exchange = await PlaygroundPage(page).ask("Give me all")
        await expect(exchange.get_by_role("img", name="Picture from many_blocks of mix, part 1")).to_be_visible()
        sound = exchange.locator("audio")
        await expect(sound).to_have_attribute("aria-label", "Sound from many_blocks of mix, part 2")
        await expect(exchange.locator(".tool-file")).to_have_text(["data.bin application/octet-stream, 6 B Save"])
        async with page.expect_download() as downloading:
            await exchange.get_by_role("button", name="Save data.bin").click()
        download = await downloading.value
        assert download.suggested_filename == "data.bin"
        path = tmp_path / "data.bin"
        await download.save_as(path)
        assert path.read_bytes() == bytes([0, 1, 2, 3, 4, 255])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_what_tools_return_and_it_fits(
    tmp_path: Path, browser_url: str, scheme: Any
) -> None:
    model = ScriptedModel(call("draw"), say("Drawn."))
    blob = {"uri": f"test://{'long' * 40}.bin", "mimeType": "application/x-long", "blob": "AAECAwT/"}
    content = [picture_block(encode_png(1600, 900)), {"type": "resource", "resource": blob}]
    async with drawing_server(content).serve() as server:
        entry = server_entry("art", server.url)
        async with (
            run_gateway(tmp_path, model, mcp_servers=[entry]) as gateway,
            open_page(browser_url, gateway.url, color_scheme=scheme) as page,
        ):
            exchange = await PlaygroundPage(page).ask("Draw")
            await expect(exchange.get_by_role("img")).to_be_visible()
            assert not await find_violations(page)
            await page.set_viewport_size(PHONE)
            assert not await scrolls_sideways(page)
            assert not await find_violations(page)
