"""Attacks on the login of persons, each of which a gateway refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from async_tests import async_test
from gateway.login_browser import Answer, LoginBrowser, open_browser, run_with_login
from gateway.running_gateway import RunningGateway
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from yarl import URL

from holodeck.testing import IdentityProvider


@asynccontextmanager
async def serve(folder: Path, **config: Any) -> AsyncIterator[tuple[IdentityProvider, RunningGateway, LoginBrowser]]:
    async with (
        IdentityProvider(client_secret="s3cret") as provider,
        run_with_login(folder, provider, **config) as gateway,
        open_browser(gateway) as browser,
    ):
        yield provider, gateway, browser


async def require_no_login(browser: LoginBrowser, answer: Answer, status: int = 400) -> None:
    assert answer.status == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert (await browser.send("GET", "/v1/me")).status == 401


@async_test(60)
async def test_answer_of_the_identity_provider_is_accepted_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, _, browser):
        answered = await browser.reach_callback()
        assert (await browser.visit(answered)).status == 302
        await browser.send("POST", "/v1/logout")
        await require_no_login(browser, await browser.visit(answered))


@async_test(60)
async def test_link_to_the_end_of_an_attackers_login_logs_nobody_in_as_the_attacker(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, gateway, attacker), open_browser(gateway) as victim:
        answered = await attacker.reach_callback()
        await require_no_login(victim, await victim.visit(answered))
        # Nor while a login of the victim itself is under way.
        await victim.reach_callback()
        await require_no_login(victim, await victim.visit(answered))


@async_test(60)
async def test_stolen_cookie_is_worth_nothing_after_the_logout(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, gateway, browser), open_browser(gateway) as thief:
        await browser.log_in()
        stolen = browser.copy_cookies()
        assert (await thief.send("GET", "/v1/me", cookie=stolen)).status == 200
        await browser.send("POST", "/v1/logout")
        assert (await thief.send("GET", "/v1/me", cookie=stolen)).status == 401


@async_test(60)
async def test_session_that_was_planted_in_a_browser_ends_with_the_login(tmp_path: Path) -> None:
    async with serve(tmp_path) as (provider, gateway, attacker), open_browser(gateway) as victim:
        provider.person = {"sub": "mallory"}
        await attacker.log_in()
        planted = attacker.copy_cookies()
        provider.person = {"sub": "anna"}
        answered = await victim.reach_callback()
        name, _, value = next(each for each in planted.split("; ") if "session" in each).partition("=")
        victim.session.cookie_jar.update_cookies({name: value}, response_url=URL(victim.url))
        assert (await victim.visit(answered)).status == 302
        assert (await victim.send("GET", "/v1/me")).json["id"] == "jwt:anna"
        assert victim.copy_cookies() != planted
        assert (await attacker.send("GET", "/v1/me")).status == 401


@pytest.mark.parametrize("iss", ["https://evil.example", None])
@async_test(60)
async def test_code_of_another_issuer_is_sent_nowhere(tmp_path: Path, iss: str | None) -> None:
    async with serve(tmp_path) as (provider, _, browser):
        provider.response_parameters = {"iss": iss}
        await require_no_login(browser, await browser.log_in())
        assert provider.token_requests == []


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another-client"},
        {"aud": ["holodeck", "another-client"]},
        {"azp": "another-client"},
        {"iss": "https://evil.example"},
        {"exp": 1_000_000_000},
    ],
    ids="-".join,
)
@async_test(60)
async def test_id_token_that_is_not_for_this_login_is_refused(tmp_path: Path, claims: dict[str, Any]) -> None:
    async with serve(tmp_path) as (provider, _, browser):
        provider.id_claims = claims
        await require_no_login(browser, await browser.log_in())


@async_test(60)
async def test_every_login_has_pkce_with_s256_and_its_own_values(tmp_path: Path) -> None:
    async with serve(tmp_path) as (provider, _, browser):
        for _ in range(2):
            await browser.log_in()
        for name in ("state", "nonce", "code_challenge"):
            values = {query[name] for query in provider.authorizations}
            assert len(values) == 2
            assert min(map(len, values)) >= 43
        assert {query["code_challenge_method"] for query in provider.authorizations} == {"S256"}
        # The verifier is of no use to one that has seen everything in the address bar.
        assert all(form["code_verifier"] not in str(provider.authorizations) for form in provider.token_requests)


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.example",
        "//evil.example",
        "/%5Cevil.example",
        "javascript:alert(1)",
        "%23/%0d%0aset-cookie:x=y",
        "@e",
    ],
)
@async_test(60)
async def test_login_leads_to_the_console_only(tmp_path: Path, place: str) -> None:
    async with serve(tmp_path) as (_, gateway, browser):
        answer = await browser.log_in(f"/v1/login?next={place}")
        assert (answer.status, answer.location) == (302, f"{gateway.url}/")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"origin": "https://app.example"},
    ],
    ids=str,
)
@async_test(60)
async def test_page_of_another_site_changes_nothing_with_the_cookie(tmp_path: Path, headers: dict[str, str]) -> None:
    async with serve(tmp_path, cors_origins=["https://app.example"]) as (_, gateway, browser):
        await browser.log_in()
        for path in ("/v1/logout", "/v1/conversations"):
            answer = await browser.visit(path, "POST", {}, **headers)
            assert answer.status == 403
            assert "access-control-allow-credentials" not in answer.headers
        url = f"{gateway.url.replace('http', 'ws')}/v1/responses"
        sent = {"cookie": browser.copy_cookies(), **{name.replace("_", "-"): value for name, value in headers.items()}}
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=sent).__aenter__()
        assert refused.value.response.status_code == 403
        assert (await browser.send("GET", "/v1/me")).status == 200


@async_test(60)
async def test_cookies_are_for_the_gateway_alone_and_not_for_scripts(tmp_path: Path) -> None:
    async with IdentityProvider() as provider:
        endpoint = {"public_url": "https://gateway.example.com"}
        async with (
            run_with_login(tmp_path, provider, mcp_endpoint=endpoint) as gateway,
            open_browser(gateway) as browser,
        ):
            begun = await browser.visit("/v1/login")
            assert parse_qs(urlsplit(begun.location).query)["redirect_uri"] == [
                "https://gateway.example.com/v1/login/callback"
            ]
            cookie = begun.headers["set-cookie"]
            back = urlsplit((await browser.visit(begun.location)).location)
            ended = await browser.visit(f"{back.path}?{back.query}", cookie=cookie.partition(";")[0])
            assert ended.location == "https://gateway.example.com/"
            for each in (cookie, ended.headers["set-cookie"]):
                name, _, attributes = each.partition("=")
                assert name in ("__Host-holodeck_login", "__Host-holodeck_session")
                assert {"Path=/", "HttpOnly", "SameSite=Lax", "Secure"} <= set(attributes.split("; "))
                assert "Domain" not in attributes


@async_test(60)
async def test_login_over_plain_http_is_refused_but_on_loopback(tmp_path: Path) -> None:
    async with serve(tmp_path, listen={"port": 0, "allowed_hosts": ["gateway.example.com"]}) as (_, _, browser):
        answer = await browser.visit("/v1/login", host="gateway.example.com")
        assert (answer.status, "set-cookie" in answer.headers) == (400, False)


@async_test(60)
async def test_cookie_without_its_prefix_is_ignored_at_a_public_name(tmp_path: Path) -> None:
    async with serve(tmp_path, listen={"port": 0, "allowed_hosts": ["gateway.example.com"]}) as (_, _, browser):
        await browser.log_in()
        value = next(each for each in browser.copy_cookies().split("; ") if "session" in each).partition("=")[2]
        for name, status in (("__Host-holodeck_session", 200), ("holodeck_session_80", 401), ("holodeck_session", 401)):
            answer = await browser.visit("/v1/me", host="gateway.example.com", cookie=f"{name}={value}")
            assert answer.status == status


@async_test(60)
async def test_secret_of_a_session_is_no_key(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, gateway, browser):
        await browser.log_in()
        value = browser.copy_cookies().rpartition("=")[2]
        assert (await gateway.send("GET", "/v1/me", key=value))[0] == 401


@async_test(60)
async def test_person_that_says_no_is_not_logged_in_and_the_page_repeats_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path) as (provider, _, browser):
        provider.person = None
        provider.response_parameters = {"error_description": "<script>alert(1)</script>"}
        answer = await browser.log_in()
        assert "script" not in answer.text
        await require_no_login(browser, answer, status=403)
