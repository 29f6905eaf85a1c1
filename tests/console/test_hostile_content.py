"""What models, servers and files say is text: it runs nothing, loads nothing and leads nowhere by itself."""

from __future__ import annotations

from pathlib import Path

from async_tests import async_test
from console.browser import open_page
from console.playground_page import PlaygroundPage
from gateway.running_gateway import run_gateway
from playwright.async_api import Page, expect

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

SECONDS = 90
ATTACK = "window.attacked = true"
HOSTILE = f"""
<script>{ATTACK}</script>
<img src=x onerror="{ATTACK}">
<svg onload="{ATTACK}"><a xlink:href="javascript:{ATTACK}"><text>svg</text></a></svg>
<iframe srcdoc="<script>parent.{ATTACK}</script>"></iframe>
<form action="https://evil.example"><button>Approve</button></form>
<a href="javascript:{ATTACK}">html link</a>
<style>body {{ display: none }}</style>

[a javascript link](javascript:{ATTACK}) [a data link](data:text/html,<script>{ATTACK}</script>)
[split](java&#10;script:{ATTACK}) [a fine link](https://fine.example/page) [a route](#/keys) [a path](/v1/models)
![a picture](https://evil.example/pixel.png) ![inline](data:image/svg+xml,<svg onload="{ATTACK}"/>)
![quotes" onerror="{ATTACK}](https://evil.example/" onerror="{ATTACK}")

<details open ontoggle="{ATTACK}">

| a | b |
|---|---|
| <img src=x onerror={ATTACK}> | `</code><script>{ATTACK}</script>` |
"""


async def _check_harmless(page: Page, elsewhere: list[str]) -> None:
    await page.wait_for_load_state("networkidle")
    assert await page.evaluate("window.attacked") is None
    found = page.locator("main :is(script, iframe, svg, form:not(.composer, .question), style, object, embed, base)")
    assert await found.count() == 0
    hrefs = await page.eval_on_selector_all(
        "main .markdown a, main pre a", "links => links.map(link => link.getAttribute('href'))"
    )
    assert all(href is None or href.startswith(("https://", "http://", "mailto:")) for href in hrefs), hrefs
    attributes = await page.evaluate(
        "[...document.querySelectorAll('main *')].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
    )
    assert attributes == []
    assert elsewhere == []


def _watch_requests(page: Page, own: str) -> list[str]:
    elsewhere: list[str] = []
    page.on("request", lambda request: elsewhere.append(request.url) if not request.url.startswith(own) else None)
    return elsewhere


@async_test(SECONDS)
async def test_an_answer_with_scripts_and_pictures_from_elsewhere_is_harmless(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say(HOSTILE))) as gateway, open_page(browser_url) as page:
        elsewhere = _watch_requests(page, gateway.url)
        await page.goto(gateway.url)
        exchange = await PlaygroundPage(page).ask(HOSTILE)
        await _check_harmless(page, elsewhere)
        fine = exchange.get_by_role("link", name="a fine link")
        assert await fine.get_attribute("href") == "https://fine.example/page"
        assert await fine.get_attribute("target") == "_blank"
        assert "noopener" in (await fine.get_attribute("rel") or "")
        # A picture from elsewhere is a link to it; HTML is shown as it was written.
        await expect(exchange.get_by_role("link", name="[picture: a picture]")).to_be_visible()
        await expect(exchange.locator(".answer")).to_contain_text(f"<script>{ATTACK}</script>")
        for name in ("a javascript link", "a data link", "split", "a route", "a path"):
            await expect(exchange.get_by_role("link", name=name)).to_have_count(0)


@async_test(SECONDS)
async def test_the_name_the_arguments_and_the_result_of_a_call_are_text(tmp_path: Path, browser_url: str) -> None:
    model = ScriptedModel(
        [call("echo", text=HOSTILE), call(f"<img src=x onerror={ATTACK}>", **{f"<b>{ATTACK}": HOSTILE})], say("Done.")
    )
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"echoes": server}) as gateway,
        open_page(browser_url) as page,
    ):
        elsewhere = _watch_requests(page, gateway.url)
        await page.goto(gateway.url)
        playground = PlaygroundPage(page)
        exchange = await playground.ask("Go")
        shown = await playground.open_call(exchange, "echo")
        await expect(shown.locator("pre").last).to_contain_text(f"<script>{ATTACK}</script>")
        await _check_harmless(page, elsewhere)
        await page.reload()
        await expect(playground.exchanges).to_have_count(1)
        await _check_harmless(page, elsewhere)
