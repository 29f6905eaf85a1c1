"""A person logs in to the console in a real browser, sees what it may do, and logs out."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import web
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from gateway.login_browser import run_with_login
from loopback_site import serve_site
from playwright.async_api import expect

from holodeck.testing import IdentityProvider, ScriptedModel, say, spend

SECONDS = 120
EDITOR = {"id": "editor", "name": "Editor", "redirect_uris": ["http://127.0.0.1/callback"]}
PRICE = {"input": 1.0, "output": 1.0}
GROUP: dict[str, Any] = {
    "name": "research",
    "allow": {"models": ["demo"], "tools": []},
    "claim_values": ["team"],
    "budget": {"amount": 20, "period": "month"},
}


@pytest.mark.parametrize("like", ["standard", "entra"])
@async_test(SECONDS)
async def test_person_logs_in_asks_makes_a_key_and_logs_out(tmp_path: Path, browser_url: str, like: Any) -> None:
    jwt = {"allow_by_claim": {"claim": "groups"}}
    model = ScriptedModel(lambda _: [say("Hello Anna."), spend(2_000_000, 0)])
    async with (
        IdentityProvider(like) as provider,
        run_with_login(tmp_path, provider, model, jwt=jwt, groups=[GROUP], price=PRICE) as gateway,
    ):
        provider.person = {"sub": "anna", "name": "Anna Example", "groups": ["team"]}
        provider.has_page = True
        async with open_page(browser_url, f"{gateway.url}/#/keys") as page:
            await expect(page.get_by_role("heading", name="Log in, or use a key")).to_be_visible()
            assert not await find_violations(page)
            await page.get_by_role("button", name="Log in").click()
            await page.get_by_role("button", name="Sign in").click()
            # Back at the place where the login was needed.
            await page.get_by_role("button", name="Create a key").click()
            await page.get_by_label("Name").fill("of-anna")
            await page.get_by_role("button", name="Create", exact=True).click()
            await expect(page.get_by_text("of-anna").first).to_be_visible()
            await page.get_by_role("link", name="Playground").click()
            await page.get_by_role("textbox", name="Message").fill("Hi")
            await page.keyboard.press("Enter")
            await expect(page.get_by_text("Hello Anna.")).to_be_visible()
            await page.get_by_role("link", name="Anna Example").click()
            await expect(page.get_by_text("The group 'research': 18.00 left of 20 each month")).to_be_visible()
            await expect(page.get_by_role("list", name="Scopes")).to_contain_text("models demo; tools none")
            assert not await find_violations(page)
            await page.set_viewport_size({"width": 360, "height": 740})
            assert not await scrolls_sideways(page)
            cookies = await page.evaluate("document.cookie")
            assert cookies == ""
            await page.get_by_role("button", name="Log out").click()
            await expect(page.get_by_role("heading", name="Log in, or use a key")).to_be_visible()
            await expect(page.get_by_role("link", name="Anna Example")).to_have_count(0)


@async_test(SECONDS)
async def test_person_lets_a_client_in_and_is_sent_back_to_it(tmp_path: Path, browser_url: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<h1>Back at the client</h1>", content_type="text/html")

    async with (
        serve_site(answer) as client,
        IdentityProvider("entra") as provider,
        run_with_login(tmp_path, provider, mcp_endpoint={"login": {"clients": [EDITOR]}}) as gateway,
        open_page(browser_url) as page,
    ):
        query = {
            "response_type": "code",
            "client_id": "editor",
            "redirect_uri": f"{client}/callback",
            "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            "code_challenge_method": "S256",
        }
        await page.goto(f"{gateway.url}/oauth/authorize?{urlencode(query)}")
        await expect(page.get_by_role("heading", name="Let Editor in?")).to_be_visible()
        await expect(page.get_by_text(f"at {client}/callback")).to_be_visible()
        assert not await find_violations(page)
        await page.get_by_role("button", name="Allow").click()
        await expect(page.get_by_role("heading", name="Back at the client")).to_be_visible()
        assert "code=" in page.url
