"""Persons log in to the console with an identity provider, and are themselves there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.config_entries import ASK
from gateway.login_browser import LoginBrowser, open_browser, run_with_login

from holodeck.testing import IdentityProvider, ScriptedModel, say

LIKE = pytest.mark.parametrize("like", ["standard", "entra"])


def answer_hi() -> ScriptedModel:
    return ScriptedModel(lambda _: [say("Hi.")])


async def find_status(browser: LoginBrowser, path: str = "/v1/me") -> tuple[int, Any]:
    answer = await browser.send("GET", path)
    return answer.status, None if answer.status == 200 else answer.json["error"]["code"]


@LIKE
@pytest.mark.parametrize("secret", [None, "s3cret/+ of the client"])
@async_test(60)
async def test_person_logs_in_uses_the_gateway_and_logs_out(tmp_path: Path, like: Any, secret: str | None) -> None:
    async with (
        IdentityProvider(like, client_secret=secret) as provider,
        run_with_login(tmp_path, provider, answer_hi()) as gateway,
        open_browser(gateway) as browser,
    ):
        assert await find_status(browser) == (401, "invalid_api_key")
        last = await browser.log_in("/v1/login?next=%23/runs")
        assert (last.status, last.location) == (302, f"{gateway.url}/#/runs")
        me = (await browser.send("GET", "/v1/me")).json
        assert (me["id"], me["name"], me["role"], me["allow"]) == ("jwt:anna", "Anna Example", None, None)
        assert (await browser.send("POST", "/v1/responses", ASK)).status == 200
        ended = await browser.send("POST", "/v1/logout")
        assert (ended.status, ended.json["id"]) == (200, me["session"]["id"])
        assert await find_status(browser) == (401, "invalid_api_key")
