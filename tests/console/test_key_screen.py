"""Keys in a real browser: made, shown once, edited, rotated, revoked, and refused in the words of the gateway."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from console.accessibility import find_violations, scrolls_sideways
from console.browser import open_page
from gateway.config_entries import ASK
from gateway.identity_provider import issuing
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from playwright.async_api import Page, expect

from holodeck.testing import ScriptedModel, say

SECONDS = 120
OPS, FILED, ANN = "hd-ops", "hd-filed", "ann"


@asynccontextmanager
async def _open_keys(folder: Path, browser_url: str, **options: Any) -> AsyncIterator[tuple[RunningGateway, Page, str]]:
    """The screen of keys as the operator has it, and a key of the store. The gateway cannot write its file."""
    async with (
        run_gateway(folder, ScriptedModel(lambda _: say("Hi.")), keys=[FILED], admins=[OPS]) as gateway,
        AsyncExitStack() as stack,
    ):
        gateway.file.chmod(0o400)
        _, made = await gateway.send("POST", "/v1/keys", {"name": ANN}, key=OPS)
        page = await stack.enter_async_context(open_page(browser_url, f"{gateway.url}/#/keys", **options))
        await page.get_by_role("textbox", name="Key").fill(OPS)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("row").filter(has=page.get_by_role("button", name=f"Edit {ANN}"))).to_be_visible()
        yield gateway, page, made["key"]


async def _read_new_key(page: Page) -> str:
    return await page.get_by_role("region", name="New key").locator("code").inner_text()


async def _can_list(gateway: RunningGateway, key: str) -> bool:
    status, _ = await gateway.send("GET", "/v1/models", key=key)
    return status == 200


@async_test(SECONDS)
async def test_a_key_is_made_with_a_scope_and_limits_and_shown_once(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, _):
        await page.get_by_role("button", name="Create a key").click()
        form = page.get_by_role("form", name="Create a key")
        await expect(form.get_by_role("textbox", name="Name of the caller")).to_be_focused()
        await page.keyboard.type("carol")
        await form.get_by_role("textbox", name="Models").fill("small-*, !small-x")
        await form.get_by_role("textbox", name="Requests per minute").fill("5")
        await form.get_by_role("button", name="Create").click()
        key = await _read_new_key(page)
        assert await _can_list(gateway, key)
        await expect(form).to_have_count(0)
        await expect(page.get_by_role("region", name="New key")).to_be_focused()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button", name="Copy key")).to_be_focused()
        await page.get_by_role("button", name="Done").click()
        await expect(page.get_by_role("button", name="Create a key")).to_be_focused()
        row = page.get_by_role("row").filter(has_text="carol")
        await expect(row).to_contain_text("models: small-*, !small-x")
        await expect(row).to_contain_text("requests per minute: 5")
        await page.reload()
        await expect(row).to_be_visible()
        await expect(page.get_by_text(key)).to_have_count(0)


@async_test(SECONDS)
async def test_what_the_gateway_refuses_is_said_in_its_words(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, _):
        await page.get_by_role("button", name="Create a key").click()
        await page.get_by_role("textbox", name="Name of the caller").fill(ANN)
        await page.keyboard.press("Enter")
        _, refused = await gateway.send("POST", "/v1/keys", {"name": ANN}, key=OPS)
        name = page.get_by_role("textbox", name="Name of the caller")
        await expect(name).to_have_accessible_description(refused["error"]["message"])
        await name.fill("dora")
        sockets = page.get_by_role("textbox", name="WebSockets")
        await sockets.fill("many")
        await page.keyboard.press("Enter")
        await expect(sockets).to_have_accessible_description("'sockets' must be a whole number.")
        await expect(sockets).to_be_focused()
        await expect(name).not_to_have_attribute("aria-invalid", "true")
        await page.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name=f"Revoke {ANN}").click()
        await gateway.send("DELETE", f"/v1/keys/{ANN}", key=OPS)
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await expect(page.locator(".alert")).to_contain_text(f"There is no key '{ANN}'")


@async_test(SECONDS)
async def test_a_key_is_edited_and_narrowed_without_a_restart(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, ann):
        row, form = (
            page.get_by_role("row").filter(has=page.get_by_role("button", name=f"Edit {ANN}")),
            page.get_by_role("form", name=f"Edit {ANN}"),
        )
        await page.get_by_role("button", name=f"Edit {ANN}").click()
        await expect(form.get_by_role("combobox", name="Role")).to_be_focused()
        await form.get_by_role("textbox", name="Models").fill("other-*")
        await form.get_by_role("textbox", name="Requests at once").fill("3")
        await page.keyboard.press("Enter")
        await expect(row).to_contain_text("models: other-*")
        await expect(row).to_contain_text("in flight: 3")
        await expect(page.get_by_role("button", name=f"Edit {ANN}")).to_be_focused()
        assert (await gateway.send("POST", "/v1/responses", ASK, key=ann))[0] == 404
        await page.keyboard.press("Enter")
        await expect(form.get_by_role("textbox", name="Models")).to_have_value("other-*")
        await expect(form.get_by_role("textbox", name="Requests at once")).to_have_value("3")
        await form.get_by_role("textbox", name="Models").fill("")
        await form.get_by_role("button", name="Save").click()
        await expect(row).to_contain_text("everything")
        await expect(row).to_contain_text("in flight: 3")
        status, listed = await gateway.send("GET", "/v1/models", key=ann)
        assert (status, [each["id"] for each in listed["data"]]) == (200, [MODEL])


@async_test(SECONDS)
async def test_what_an_edit_is_refused_for_is_said_at_its_field(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, _):
        await page.get_by_role("button", name=f"Edit {ANN}").click()
        form = page.get_by_role("form", name=f"Edit {ANN}")
        tools = form.get_by_role("textbox", name="Tools")
        await tools.fill("read")
        await form.get_by_role("button", name="Save").click()
        await expect(tools).to_have_accessible_description(re.compile("'read' does not name a tool"))
        await expect(tools).to_be_focused()
        assert not await find_violations(page)
        await tools.fill("")
        await form.get_by_role("textbox", name="Amount").fill("5")
        await form.get_by_role("button", name="Save").click()
        budget = form.get_by_role("group", name="Budget")
        await expect(budget.get_by_role("alert")).to_contain_text("a budget needs the price of every model")
        await form.get_by_role("button", name="Cancel").click()
        await gateway.send("DELETE", f"/v1/keys/{ANN}", key=OPS)
        await page.get_by_role("button", name=f"Edit {ANN}").click()
        await form.get_by_role("combobox", name="Role").select_option("operator")
        await form.get_by_role("button", name="Save").click()
        await expect(page.locator(".alert")).to_contain_text(f"There is no key '{ANN}'")


@async_test(SECONDS)
async def test_a_key_is_rotated_with_grace_and_revoked_after_a_question(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, ann):
        row = page.get_by_role("row").filter(has=page.get_by_role("button", name=f"Edit {ANN}"))
        await page.get_by_role("button", name=f"Rotate {ANN}").click()
        await page.get_by_role("dialog").get_by_role("combobox").select_option("is accepted for 1 hour")
        await page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
        key = await _read_new_key(page)
        await expect(page.get_by_role("region", name="New key")).to_be_focused()
        await expect(row).to_contain_text("the key before is accepted until")
        assert await _can_list(gateway, key)
        assert await _can_list(gateway, ann)
        for refusal in ("Escape", "Enter"):
            await page.get_by_role("button", name=f"Revoke {ANN}").click()
            await expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
            await page.keyboard.press(refusal)
            await expect(page.get_by_role("dialog")).to_have_count(0)
            assert await _can_list(gateway, key)
        await page.get_by_role("button", name=f"Revoke {ANN}").click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await expect(row).to_have_count(0)
        assert not await _can_list(gateway, key)


@async_test(SECONDS)
async def test_a_key_is_paused_and_goes_on_and_one_of_the_file_is_only_shown(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, ann):
        await page.get_by_role("button", name=f"Pause {ANN}").click()
        await expect(page.get_by_role("button", name=f"Resume {ANN}")).to_be_visible()
        assert not await _can_list(gateway, ann)
        await page.get_by_role("button", name=f"Edit {ANN}").click()
        form = page.get_by_role("form", name=f"Edit {ANN}")
        await form.get_by_label("Expires").fill("2030-01-31T12:00")
        await form.get_by_role("button", name="Save").click()
        await page.get_by_role("button", name=f"Resume {ANN}").click()
        await expect(page.get_by_role("button", name=f"Pause {ANN}")).to_be_visible()
        assert await _can_list(gateway, ann)
        row = page.get_by_role("row").filter(has=page.get_by_role("button", name=f"Edit {ANN}"))
        await expect(row).to_contain_text(re.compile("expires .*2030"))
        await expect(row).to_contain_text(f"by key:{OPS}")
        filed = page.get_by_role("row").filter(has_text=FILED)
        await expect(filed).to_contain_text("in the file of the gateway")
        await expect(filed.get_by_role("button")).to_have_count(0)


@async_test(SECONDS)
async def test_a_caller_is_paused_exported_and_erased_after_a_question(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, _):
        caller = f"key:{FILED}"
        assert (await gateway.send("POST", "/v1/responses", ASK, key=FILED))[0] == 200
        # Its usage is stored by this.
        assert (await gateway.send("GET", "/v1/usage", key=OPS))[0] == 200
        await page.get_by_text("Callers: pause, export and erase").click()
        await page.get_by_role("button", name=f"Pause the caller {caller}").click()
        await expect(page.get_by_text(f"{caller} is paused.")).to_be_visible()
        assert not await _can_list(gateway, FILED)
        await page.get_by_role("button", name=f"Resume the caller {caller}").click()
        await expect(page.get_by_text(f"{caller} is accepted again.")).to_be_visible()
        assert await _can_list(gateway, FILED)
        async with page.expect_download() as started:
            await page.get_by_role("button", name=f"Export {caller}").click()
        saved = await (await started.value).path()
        assert '"object":"run"' in saved.read_text()
        assert not await find_violations(page)
        await page.get_by_role("button", name=f"Erase {caller}").click()
        await expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert (await gateway.send("GET", "/v1/runs", key=FILED))[1]["data"]
        await page.get_by_role("button", name=f"Erase {caller}").click()
        await page.get_by_role("dialog").get_by_role("button", name="Erase").click()
        await expect(page.get_by_text(f"{caller} is erased.")).to_be_visible()
        assert (await gateway.send("GET", "/v1/runs", key=FILED))[1]["data"] == []


@async_test(SECONDS)
async def test_many_keys_come_in_pages_and_are_found_by_name(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, _):
        for number in range(60):
            await gateway.send("POST", "/v1/keys", {"name": f"team-{number:02}"}, key=OPS)
        await page.reload()
        rows = page.locator(".key-table tbody tr")
        await expect(rows).to_have_count(50)
        await page.get_by_role("button", name="Next").click()
        await expect(rows).to_have_count(13)
        await expect(page.get_by_role("button", name="Next")).to_be_disabled()
        await page.get_by_role("button", name="Previous").click()
        await expect(rows).to_have_count(50)
        await page.get_by_role("searchbox", name="Search names").fill("TEAM-5")
        await expect(rows).to_have_count(10)
        await page.get_by_role("searchbox", name="Search names").fill("nobody")
        await expect(page.get_by_text("No key has this in its name.")).to_be_visible()


@async_test(SECONDS)
async def test_buttons_stay_on_one_line_beside_long_texts(tmp_path: Path, browser_url: str) -> None:
    async with _open_keys(tmp_path, browser_url) as (gateway, page, _):
        limits = {"requests_per_minute": 60, "tokens_per_minute": 1_000_000, "in_flight": 10}
        allow = {"models": ["small-*", "!small-x", "large-*"], "agents": ["support-*", "research-*"]}
        body = {"name": "carol", "allow": allow, "limits": limits}
        status, reply = await gateway.send("POST", "/v1/keys", body, key=OPS)
        assert status == 200, reply
        await gateway.send("POST", "/v1/keys/rotate", {"name": "carol", "grace_seconds": 3_600}, key=OPS)
        await page.reload()
        row = page.get_by_role("row").filter(has_text="carol")
        await expect(row).to_contain_text("the key before is accepted until")
        assert "sha256" not in await row.inner_text()
        tops = [
            await button.evaluate("b => b.getBoundingClientRect().top")
            for button in await row.get_by_role("button").all()
        ]
        assert len(set(tops)) == 1
        for width in (1024, 769, 360):
            await page.set_viewport_size({"width": width, "height": 740})
            assert not await scrolls_sideways(page)


@async_test(SECONDS)
async def test_a_gateway_without_keys_says_how_to_make_the_first(tmp_path: Path, browser_url: str) -> None:
    async with run_gateway(tmp_path) as gateway, open_page(browser_url, f"{gateway.url}/#/keys") as page:
        await expect(page.get_by_role("heading", name="This gateway has no keys")).to_be_visible()
        await expect(page.get_by_text("holodeck keys create ops --role operator")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@async_test(SECONDS)
async def test_axe_finds_nothing_in_the_keys_and_they_fit(tmp_path: Path, browser_url: str, scheme: Any) -> None:
    async with _open_keys(tmp_path, browser_url, color_scheme=scheme) as (_, page, _):
        await page.get_by_role("button", name="Create a key").click()
        assert not await find_violations(page)
        await page.get_by_role("textbox", name="Name of the caller").fill("carol-with-a-name-that-is-long")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("region", name="New key")).to_be_visible()
        assert not await find_violations(page)
        await page.set_viewport_size({"width": 360, "height": 740})
        assert not await scrolls_sideways(page)
        await page.get_by_role("button", name="Create a key").click()
        assert not await scrolls_sideways(page)
        await page.get_by_role("button", name=f"Edit {ANN}").click()
        assert not await find_violations(page)
        assert not await scrolls_sideways(page)
        await page.get_by_role("button", name=f"Rotate {ANN}").click()
        assert not await find_violations(page)


@async_test(SECONDS)
async def test_a_person_of_a_group_makes_keys_and_sees_only_those(tmp_path: Path, browser_url: str) -> None:
    async with issuing() as issuer, run_gateway(tmp_path, ScriptedModel(), admins=[OPS]) as gateway:
        jwt = {**issuer.config, "allow_by_claim": {"claim": "groups"}}
        groups = [{"name": "research", "claim_values": ["researchers"]}]
        assert await gateway.reload(jwt=jwt, groups=groups)
        token = issuer.token_with(sub="anna", groups=["researchers"], scope="")
        await gateway.send("POST", "/v1/keys", {"name": "stranger", "group": "research"}, key=OPS)
        async with open_page(browser_url, f"{gateway.url}/#/keys") as page:
            await page.get_by_role("textbox", name="Key").fill(token)
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="You have no keys yet")).to_be_visible()
            await page.get_by_role("button", name="Create a key").click()
            form = page.get_by_role("form", name="Create a key")
            await expect(form.get_by_role("combobox", name="Role")).to_have_count(0)
            await form.get_by_role("textbox", name="Name of the caller").fill("laptop")
            await form.get_by_role("button", name="Create").click()
            assert await _can_list(gateway, await _read_new_key(page))
            await expect(page.get_by_role("cell", name="research")).to_be_visible()
            await expect(page.get_by_text("stranger")).to_have_count(0)
            assert await find_violations(page) == []
            await page.get_by_role("button", name="Edit laptop").click()
            await page.get_by_role("textbox", name="Models").fill("small")
            await page.get_by_role("button", name="Save").click()
            await expect(page.get_by_role("cell", name="models: small")).to_be_visible()
