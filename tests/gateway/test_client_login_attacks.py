"""Attacks on the login of MCP clients, each of which the gateway refuses."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from aiohttp import web
from async_tests import async_test
from gateway.login_browser import LoginBrowser, open_browser
from gateway.test_client_login import REDIRECT_URI, STATIC, click_through, decide, serve
from loopback_site import serve_site

VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def ask(**changes: str | None) -> str:
    """The path of an authorization request. None: without this parameter."""
    usual = {
        "response_type": "code",
        "client_id": "editor",
        "redirect_uri": REDIRECT_URI,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "s",
    }
    return "/oauth/authorize?" + urlencode(
        {key: each for key, each in {**usual, **changes}.items() if each is not None}
    )


def read_answer(location: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


async def get_code(browser: LoginBrowser, **changes: str | None) -> str:
    return read_answer(await click_through(browser, ask(**changes)))["code"]


async def exchange(browser: LoginBrowser, sent_code: str, **changes: str) -> tuple[int, dict[str, Any]]:
    form = {
        "grant_type": "authorization_code",
        "code": sent_code,
        "redirect_uri": REDIRECT_URI,
        "client_id": "editor",
        "code_verifier": VERIFIER,
        **changes,
    }
    answer = await browser.submit("/oauth/token", form)
    return answer.status, answer.json


async def renew(browser: LoginBrowser, tokens: dict[str, Any], **changes: str) -> tuple[int, dict[str, Any]]:
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": "editor", **changes}
    answer = await browser.submit("/oauth/token", form)
    return answer.status, answer.json


async def use(browser: LoginBrowser, token: str, path: str = "/mcp") -> int:
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    return (await browser.visit(path, "POST", PING, **headers)).status


@async_test(60)
async def test_code_that_is_used_twice_ends_what_it_has_opened(tmp_path: Path) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (_, browser, _):
        code = await get_code(browser)
        status, tokens = await exchange(browser, code)
        assert (status, await use(browser, tokens["access_token"])) == (200, 200)
        status, refused = await exchange(browser, code)
        assert (status, refused["error"]) == (400, "invalid_grant")
        assert await use(browser, tokens["access_token"]) == 401
        assert (await renew(browser, tokens))[0] == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"code_verifier": "w" * 43},
        {"code_verifier": ""},
        {"code_verifier": CHALLENGE},
        {"client_id": "other"},
        {"redirect_uri": "http://127.0.0.1:33419/callback"},
        {"resource": "https://elsewhere.example/mcp"},
        {"code": "hd2.AAAA"},
    ],
    ids=str,
)
@async_test(60)
async def test_stolen_code_gives_no_token_and_is_still_good_for_its_client(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    async with serve(tmp_path, clients=[STATIC, {**STATIC, "id": "other"}]) as (_, browser, _):
        code = await get_code(browser)
        status, refused = await exchange(browser, code, **changes)
        assert (status, "access_token" in refused) == (400, False)
        assert (await exchange(browser, code))[0] == 200


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
    ],
    ids=str,
)
@async_test(60)
async def test_request_without_pkce_or_for_another_resource_is_sent_back(
    tmp_path: Path, changes: dict[str, str | None], error: str
) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (gateway, browser, _):
        await browser.log_in()
        answer = await browser.visit(ask(**changes))
        assert read_answer(answer.location) | {"error_description": ""} == {
            "error": error,
            "error_description": "",
            "state": "s",
            "iss": gateway.url,
        }


@pytest.mark.parametrize(
    "changes",
    [
        {"redirect_uri": "https://evil.example/callback"},
        {"redirect_uri": "http://127.0.0.1:33418/callback/../evil"},
        {"redirect_uri": "http://127.0.0.1:33418@evil.example/callback"},
        {"redirect_uri": "http://127.0.0.1:33418/callback?next=x"},
        {"redirect_uri": "javascript:alert(1)"},
        {"redirect_uri": None},
        {"client_id": "nobody"},
        {"client_id": "reg-hd2.AAAA"},
        {"client_id": "https://127.0.0.1:1/client.json"},
        {"client_id": "http://169.254.169.254/client.json"},
    ],
    ids=str,
)
@async_test(60)
async def test_browser_is_sent_nowhere_that_the_client_has_not_named(
    tmp_path: Path, changes: dict[str, str | None]
) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (_, browser, _):
        await browser.log_in()
        answer = await browser.visit(ask(**changes))
        assert (answer.status, "location" in answer.headers) == (400, False)


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "http://evil.example/",
        "https://a b/",
        "https://x.example/#f",
        "https://[::1].evil.example/",
        "//x",
        "https://x.example/\nset-cookie: a=b",
    ],
)
@async_test(60)
async def test_client_that_registers_itself_cannot_be_sent_where_a_browser_acts(tmp_path: Path, uri: str) -> None:
    async with serve(tmp_path) as (_, browser, _):
        answer = await browser.visit("/oauth/register", "POST", {"redirect_uris": [uri]})
        assert (answer.status, answer.json["error"]) == (400, "invalid_redirect_uri")


@async_test(60)
async def test_person_that_is_logged_in_is_asked_each_time_and_sees_where_it_leads(tmp_path: Path) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (_, browser, _):
        said = {"client_name": "<img src=x onerror=alert(1)>", "redirect_uris": ["cursor://x.y/callback"]}
        client_id = (await browser.visit("/oauth/register", "POST", said)).json["client_id"]
        await browser.log_in()
        for _ in range(2):
            page = await browser.visit(ask(client_id=client_id, redirect_uri="cursor://x.y/callback"))
            assert page.status == 200
            assert "<img" not in page.text
            assert "cursor://x.y/callback" in page.text
            assert "proves nothing" in page.text
            assert "form-action 'self' cursor:;" in page.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            denied = await decide(browser, page, "deny")
            assert read_answer(denied.location)["error"] == "access_denied"


@async_test(60)
async def test_page_of_another_site_cannot_press_the_button(tmp_path: Path) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (gateway, browser, provider), open_browser(gateway) as attacker:
        await browser.log_in()
        page = await browser.visit(ask())
        for sent in ({"sec_fetch_site": "cross-site"}, {"origin": "https://evil.example"}):
            assert (await decide(browser, page, **sent)).status == 403
        # A question that was put to an attacker, in the browser of a victim.
        provider.person = {"sub": "mallory"}
        await attacker.log_in()
        assert (await decide(browser, await attacker.visit(ask()))).status == 400


@async_test(60)
async def test_renewal_that_is_used_twice_ends_the_session(tmp_path: Path) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (_, browser, _):
        _, first = await exchange(browser, await get_code(browser))
        assert (await renew(browser, first, client_id="other"))[0] == 400
        status, second = await renew(browser, first)
        assert (status, await use(browser, second["access_token"])) == (200, 200)
        assert (await renew(browser, first))[1]["error"] == "invalid_grant"
        assert await use(browser, second["access_token"]) == 401
        assert (await renew(browser, second))[0] == 400


@async_test(60)
async def test_token_is_for_its_resource_and_ends_with_its_session(tmp_path: Path) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (gateway, browser, _):
        code = await get_code(browser, resource=f"{gateway.url}/mcp/sums")
        _, tokens = await exchange(browser, code)
        for path, status in (("/mcp/sums", 200), ("/mcp", 401), ("/mcp/sums-not", 401), ("/v1/responses", 401)):
            assert await use(browser, tokens["access_token"], path) == status
        # Neither is what renews it, nor the cookie, a token; nor the token a cookie.
        assert await use(browser, tokens["refresh_token"]) == 401
        listed = (await browser.send("GET", "/v1/sessions")).json["data"]
        (program,) = (each["id"] for each in listed if each["kind"] == "program")
        assert (await browser.send("DELETE", f"/v1/sessions/{program}")).status == 200
        assert await use(browser, tokens["access_token"], "/mcp/sums") == 401
        assert (await renew(browser, tokens))[0] == 400


@async_test(60)
async def test_client_ends_its_session_itself(tmp_path: Path) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (_, browser, _):
        for name in ("access_token", "refresh_token"):
            _, tokens = await exchange(browser, await get_code(browser))
            for token in ("unknown", tokens[name]):
                assert (await browser.submit("/oauth/revoke", {"token": token})).status == 200
            assert await use(browser, tokens["access_token"]) == 401


@async_test(60)
async def test_code_is_worth_nothing_after_the_person_has_logged_out(tmp_path: Path) -> None:
    async with serve(tmp_path, clients=[STATIC]) as (_, browser, _):
        code = await get_code(browser)
        await browser.send("POST", "/v1/logout")
        assert (await exchange(browser, code))[1]["error"] == "invalid_grant"


@async_test(60)
async def test_document_of_another_client_or_behind_a_redirect_is_refused(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/moved":
            raise web.HTTPFound("/client")
        said = {"client_id": "https://bank.example/client", "redirect_uris": [REDIRECT_URI]}
        return web.json_response(said)

    documents = {"allow_private_hosts": ["127.0.0.1"], "allow_insecure_hosts": ["127.0.0.1"]}
    async with serve_site(answer) as site, serve(tmp_path, documents=documents) as (_, browser, _):
        await browser.log_in()
        for path in ("/client", "/moved"):
            assert (await browser.visit(ask(client_id=site + path))).status == 400


@async_test(60)
async def test_gateway_without_such_logins_has_none_of_these_addresses(tmp_path: Path) -> None:
    async with serve(tmp_path) as (gateway, browser, provider):
        assert await gateway.reload(mcp_endpoint={})
        for path in ("/.well-known/oauth-authorization-server", ask()):
            assert (await browser.visit(path)).status == 404
        said = (await browser.visit("/.well-known/oauth-protected-resource/mcp")).json
        assert said["authorization_servers"] == [provider.issuer]
