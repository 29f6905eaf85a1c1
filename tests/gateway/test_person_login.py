"""Persons log in to the console with an identity provider, and are themselves there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import ASK
from gateway.login_browser import LoginBrowser, open_browser, rename_cookie, run_with_login
from gateway.test_shared_keys import shared

from holodeck.testing import IdentityProvider, ScriptedModel, say, wait

__all__ = ["shared"]

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


@async_test(60)
async def test_person_has_the_scope_and_the_group_of_a_token_and_makes_keys_within_them(tmp_path: Path) -> None:
    groups = [{"name": "research", "allow": {"models": ["demo"]}, "claim_values": ["team"]}]
    jwt = {"allow_by_claim": {"claim": "groups"}}
    async with (
        IdentityProvider() as provider,
        run_with_login(tmp_path, provider, answer_hi(), jwt=jwt, groups=groups) as gateway,
        open_browser(gateway) as browser,
    ):
        provider.person = {"sub": "anna", "groups": ["team", "other"]}
        await browser.log_in()
        me = (await browser.send("GET", "/v1/me")).json
        assert (me["group"], me["allow"]) == ("research", [[{"models": ["demo"]}]])
        made = (await browser.send("POST", "/v1/keys", {"name": "of-anna"})).json
        assert (made["owner"], made["group"]) == ("jwt:anna", "research")
        assert (await gateway.send("POST", "/v1/responses", ASK, key=made["key"]))[0] == 200
        provider.person = {"sub": "carl"}
        await browser.log_in()
        assert (await browser.send("GET", "/v1/me")).json["allow"] == []
        assert (await browser.send("POST", "/v1/responses", ASK)).status == 404


@async_test(60)
async def test_role_comes_from_a_signed_claim_and_never_from_what_was_asked_for(tmp_path: Path) -> None:
    jwt = {"role_by_scope": {"admin": "operator"}}
    async with IdentityProvider() as provider:
        login = {"client_id": provider.client_id, "scopes": ["openid", "admin"]}
        async with (
            run_with_login(tmp_path, provider, jwt={**jwt, "login": login}) as gateway,
            open_browser(gateway) as browser,
        ):
            await browser.log_in()
            assert (await browser.send("GET", "/v1/config")).status == 403
            provider.person = {"sub": "olga", "scope": "admin"}
            await browser.log_in()
            assert (await browser.send("GET", "/v1/config")).status == 200


@async_test(60)
async def test_session_that_ends_at_one_gateway_ends_at_the_other_with_its_open_stream(
    tmp_path: Path, shared: dict[str, Any]
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    until = wait(asyncio.Event())
    async with (
        IdentityProvider() as provider,
        run_with_login(tmp_path / "one", provider, answer_hi(), **shared) as one,
        run_with_login(tmp_path / "other", provider, ScriptedModel(lambda _: [until]), **shared) as other,
        open_browser(one) as browser,
        open_browser(other) as elsewhere,
    ):
        await browser.log_in()
        cookie = rename_cookie(browser, elsewhere)
        streaming = asyncio.create_task(elsewhere.send("POST", "/v1/responses", {**ASK, "stream": True}, cookie=cookie))
        await until.reached.wait()
        assert (await elsewhere.send("GET", "/v1/me", cookie=cookie)).status == 200
        assert (await browser.send("POST", "/v1/logout")).status == 200
        assert "withdrawn" in (await streaming).text
        answer = await elsewhere.send("GET", "/v1/me", cookie=cookie)
        assert (answer.status, answer.json["error"]["code"]) == (401, "logged_out")


@async_test(60)
async def test_person_ends_another_session_of_its_own_and_none_of_others(tmp_path: Path) -> None:
    async with (
        IdentityProvider() as provider,
        run_with_login(tmp_path, provider) as gateway,
        open_browser(gateway) as browser,
        open_browser(gateway) as lost,
        open_browser(gateway) as carls,
    ):
        await browser.log_in()
        await lost.log_in()
        provider.person = {"sub": "carl"}
        await carls.log_in()
        listed = (await browser.send("GET", "/v1/sessions")).json["data"]
        assert sorted(each["is_current"] for each in listed) == [False, True]
        (other,) = (each["id"] for each in listed if not each["is_current"])
        assert (await carls.send("DELETE", f"/v1/sessions/{other}")).status == 404
        assert (await browser.send("DELETE", f"/v1/sessions/{other}")).status == 200
        assert await find_status(lost) == (401, "logged_out")
        assert await find_status(browser) == (200, None)


@async_test(60)
async def test_login_and_logout_are_in_the_audit_log_without_a_secret(tmp_path: Path) -> None:
    async with (
        IdentityProvider() as provider,
        run_with_login(tmp_path, provider, audit={"file": "audit.jsonl"}) as gateway,
        open_browser(gateway) as browser,
    ):
        await browser.log_in()
        secret = browser.copy_cookies().partition("=")[2]
        await browser.send("POST", "/v1/logout")
    # The entry of a request that has ended its own session is written behind its reply.
    written = (tmp_path / "audit.jsonl").read_text()
    events = [
        (entry["event"], entry["caller"]) for entry in map(orjson.loads, written.splitlines()) if "caller" in entry
    ]
    assert events == [("logged_in", "jwt:anna"), ("logged_out", "jwt:anna")]
    assert secret not in written


@async_test(60)
async def test_header_names_a_person_only_if_a_stated_proxy_sends_it(tmp_path: Path) -> None:
    header = {"name": "X-Forwarded-User", "claim_header": "x-forwarded-groups"}
    jwt = {"allow_by_claim": {"claim": "groups", "values": {"team": {"models": ["demo"]}}}, "login": None}
    async with IdentityProvider() as provider:
        for folder, proxies, expected in (("near", ["127.0.0.0/8"], 200), ("far", ["10.9.8.7"], 401)):
            (tmp_path / folder).mkdir()
            more = {**jwt, "trusted_header": {**header, "proxies": proxies}}
            async with (
                run_with_login(tmp_path / folder, provider, jwt=more) as gateway,
                open_browser(gateway) as browser,
            ):
                sent = {"x_forwarded_user": "dora", "x_forwarded_groups": "team, other"}
                answer = await browser.send("GET", "/v1/me", **sent)
                assert answer.status == expected
                if expected == 200:
                    assert (answer.json["id"], answer.json["allow"]) == ("jwt:dora", [[{"models": ["demo"]}]])
                    refused = await browser.visit("/v1/conversations", "POST", {}, **sent)
                    assert (refused.status, refused.json["error"]["code"]) == (403, "cross_site_request")
                    assert (await browser.send("GET", "/v1/me")).status == 401
