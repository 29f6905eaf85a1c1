"""A server with `per: caller` is called with the login of each caller, and with no other one's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from aiohttp import web
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit
from gateway.login_site import LOGIN, NAME, LoginSite, run_login_site, wait_login
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.test_server_logins import come_back, start
from tools.mcp.auth_server import AuthServer

from holodeck.testing import ScriptedModel, call, say

ALICE, BOB, OPS = "hd-alice", "hd-bob", "hd-ops"
OWN = f"/v1/mcp/logins/{NAME}"
TOOL = {"type": "mcp", "server_label": NAME, "require_approval": "never"}
LINK = "/v1/mcp/login/begin"


def _model() -> ScriptedModel:
    return ScriptedModel(
        lambda got: say("Done.") if got.json["messages"][-1]["role"] == "tool" else call("add", a=1, b=2)
    )


@asynccontextmanager
async def serve(
    folder: Path, storage: dict[str, Any] | None = None, **auth: Any
) -> AsyncIterator[tuple[LoginSite, RunningGateway]]:
    """A gateway whose server wants the login of each caller. An operator has logged in for its list of tools."""
    async with (
        run_login_site() as site,
        run_gateway(
            folder,
            _model(),
            mcp_servers=[site.entry(per="caller", **auth)],
            keys=[ALICE, BOB],
            admins=[OPS],
            audit={"file": AUDIT_FILE},
            **(storage or {}),
        ) as gateway,
    ):
        await come_back((await start(gateway, key=OPS))["authorization_url"])
        assert (await wait_login(gateway, key=OPS))["status"] == "completed"
        yield site, gateway


async def ask(gateway: RunningGateway, key: str) -> dict[str, Any]:
    """The call of a tool that a model makes for a caller."""
    body = {"model": MODEL, "input": "Go", "tools": [TOOL]}
    status, said = await gateway.send("POST", "/v1/responses", body, key=key)
    assert status == 200, said
    (made,) = [item for item in said["output"] if item["type"] == "mcp_call"]
    found: dict[str, Any] = made
    return found


def find_link(item: dict[str, Any]) -> str:
    words = str(item["error"]).split()
    return next(word for word in words if LINK in word)


def find_token(site: LoginSite) -> str:
    """The latest token that is not the operator's, which lists the tools."""
    sent = [headers.get("Authorization", "") for headers in site.resource.request_headers]
    return next(token for token in reversed(sent) if token not in ("", "Bearer token-1"))


class Browser:
    """One browser of a person, with its cookies."""

    def __init__(self) -> None:
        self.cookies: dict[str, str] = {}

    async def send(
        self, method: str, url: str, *, page: Mapping[str, str] | None = None
    ) -> tuple[int, str, dict[str, str]]:
        """Open a URL, or send the form of a page. `page`: what the browser says of it; None: it is of the gateway."""
        headers = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        form = {"decision": "go"} if method == "POST" else None
        if form is not None:
            headers |= {"origin": "{0.scheme}://{0.netloc}".format(urlsplit(url))} if page is None else page
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, data=form, allow_redirects=False) as answer,
        ):
            for name, cookie in answer.cookies.items():
                assert cookie["secure"]
                assert cookie["httponly"]
                assert (cookie["samesite"], cookie["path"], cookie["domain"]) == ("Lax", "/", "")
                self.cookies[name] = cookie.value
            return answer.status, await answer.text(), {key.lower(): text for key, text in answer.headers.items()}

    async def find_page(self, link: str) -> str:
        """Follow a link up to the login page; its address."""
        status, page, _ = await self.send("POST", link)
        assert status == 200, page
        return page.partition('href="')[2].partition('"')[0].replace("&amp;", "&")

    async def log_in(self, link: str) -> tuple[int, str]:
        """Follow a link, log in, and come back."""
        _, _, headers = await self.send("GET", await self.find_page(link))
        status, page, _ = await self.send("GET", headers["location"])
        return status, page


async def wait_own(gateway: RunningGateway, key: str) -> dict[str, Any]:
    while (login := (await gateway.send("GET", OWN, key=key))[1])["status"] == "waiting":
        pass
    found: dict[str, Any] = login
    return found


async def log_in(gateway: RunningGateway, key: str) -> None:
    assert (await Browser().log_in(find_link(await ask(gateway, key))))[0] == 200
    assert (await wait_own(gateway, key))["status"] == "completed"


@async_test(60)
async def test_the_first_call_gives_a_link_and_the_next_one_has_the_caller_s_own_token(
    tmp_path: Path, storage: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with serve(tmp_path, storage) as (site, gateway):
        first = await ask(gateway, ALICE)
        assert first["output"] is None
        assert "you are not logged in. Log in at" in str(first["error"])
        assert find_link(await ask(gateway, ALICE)) == find_link(first), "one login at a time, with one link"
        status, page, headers = await Browser().send("GET", find_link(first))
        assert (status, f"key:{ALICE}" in page, NAME in page) == (200, True, True)
        assert "set-cookie" not in headers
        assert "form-action 'self'" in headers["content-security-policy"]
        tokens = {}
        for key in (ALICE, BOB):
            await log_in(gateway, key)
            assert (await ask(gateway, key))["error"] is None
            tokens[key] = find_token(site)
        assert tokens[ALICE] != tokens[BOB]
        for key in (ALICE, BOB):
            await ask(gateway, key)
            assert find_token(site) == tokens[key]
    secrets = ["the-code", "refresh-", *(token.removeprefix("Bearer ") for token in tokens.values())]
    assert not [secret for secret in secrets if secret in caplog.text]
    entries = read_audit(tmp_path, "login_finished")
    assert [(entry["caller"], entry["outcome"]) for entry in entries] == [
        (f"key:{key}", "completed") for key in (OPS, ALICE, BOB)
    ]


@async_test(60)
async def test_a_caller_that_logs_out_is_logged_out(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with serve(tmp_path, storage) as (_, gateway):
        for key in (ALICE, BOB):
            await log_in(gateway, key)
        assert (await gateway.send("DELETE", OWN, key=ALICE))[0] == 200
        assert "Log in at" in str((await ask(gateway, ALICE))["error"])
        assert (await ask(gateway, BOB))["error"] is None
        assert (await gateway.send("GET", LOGIN, key=OPS))[1]["status"] == "completed"
    outcomes = [(entry["caller"], entry["outcome"]) for entry in read_audit(tmp_path, "login_finished")]
    assert outcomes[-1] == (f"key:{ALICE}", "withdrawn")


@async_test(60)
async def test_a_link_is_followed_once_and_its_answer_belongs_to_that_browser(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        link = find_link(await ask(gateway, ALICE))
        mine, other = Browser(), Browser()
        page = await mine.find_page(link)
        for browser in (mine, other):
            for method in ("GET", "POST"):
                assert (await browser.send(method, link))[0] == 400
        _, _, headers = await mine.send("GET", page)
        back, issued = headers["location"], len(site.authority.requests)
        # Of another browser, of none, with a cookie of another login, and with another state.
        other.cookies = dict.fromkeys(mine.cookies, "guessed")
        assert (await other.send("GET", back))[0] == 400
        assert (await Browser().send("GET", back))[0] == 400
        second = Browser()
        await second.find_page(find_link(await ask(gateway, BOB)))
        assert (await second.send("GET", back))[0] == 400
        state = parse_qs(urlsplit(back).query)["state"][0]
        assert (await mine.send("GET", back.replace(state, "x" + state[1:])))[0] == 400
        assert len(site.authority.requests) == issued, "no code was exchanged"
        assert (await mine.send("GET", back))[0] == 200
        assert (await wait_own(gateway, ALICE))["status"] == "completed"
        assert (await mine.send("GET", back))[0] == 400, "a code and a state are good for one answer"
        assert len(site.authority.requests) == issued + 1
        assert "Log in at" in str((await ask(gateway, BOB))["error"])


@pytest.mark.parametrize(
    "page",
    [
        {},
        {"origin": "null"},
        {"origin": "https://evil.example.com"},
        {"origin": "https://evil.example.com", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
@async_test(60)
async def test_a_page_of_another_site_cannot_send_a_person_through_the_login_of_a_caller(
    tmp_path: Path, page: dict[str, str]
) -> None:
    async with serve(tmp_path) as (site, gateway):
        link, begun = find_link(await ask(gateway, ALICE)), len(site.authority.authorizations)
        person = Browser()
        status, _, headers = await person.send("POST", link, page=page)
        assert (status, "set-cookie" in headers, person.cookies) == (403, False, {})
        assert len(site.authority.authorizations) == begun
        assert (await Browser().log_in(link))[0] == 200, "the link is not used up"


@async_test(60)
async def test_a_call_while_its_person_logs_in_names_the_login_page_and_does_not_end_the_login(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, gateway):
        browser = Browser()
        page = await browser.find_page(find_link(await ask(gateway, ALICE)))
        assert page in str((await ask(gateway, ALICE))["error"])
        _, _, headers = await browser.send("GET", page)
        assert (await browser.send("GET", headers["location"]))[0] == 200
        assert (await wait_own(gateway, ALICE))["status"] == "completed"
        assert (await ask(gateway, ALICE))["error"] is None


@async_test(60)
async def test_the_tokens_of_a_caller_end_with_its_key(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with serve(tmp_path, storage) as (_, gateway):
        _, made = await gateway.send("POST", "/v1/keys", {"name": "carol"}, key=OPS)
        store = gateway.service.store.server_logins
        await log_in(gateway, made["key"])
        known = gateway.service.stored_keys.find_key("carol")
        assert known is not None
        caller_id = known.key.caller_id
        assert await store.find_flow(caller_id, NAME) is not None
        _, rotated = await gateway.send("POST", "/v1/keys/rotate", {"name": "carol"}, key=OPS)
        assert (await ask(gateway, rotated["key"]))["error"] is None
        assert (await gateway.send("DELETE", "/v1/keys/carol", key=OPS))[0] == 200
        while await store.find_flow(caller_id, NAME) is not None:
            pass
        assert await store.delete_logins_of([caller_id]) == []


@async_test(60)
async def test_a_request_that_lets_servers_ask_goes_on_after_the_login(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, gateway):
        body = {"model": MODEL, "input": "Go", "tools": [TOOL], "background": True, "elicitation": "ask"}
        _, made = await gateway.send("POST", "/v1/responses", body, key=ALICE)
        path = f"/v1/responses/{made['id']}"
        while not (asked := (await gateway.send("GET", f"{path}/elicitations", key=ALICE))[1]["data"]):
            pass
        assert (asked[0]["mode"], asked[0]["server_label"]) == ("url", NAME)
        assert (await Browser().log_in(asked[0]["url"]))[0] == 200
        answer = f"{path}/elicitations/{asked[0]['id']}"
        assert (await gateway.send("POST", answer, {"action": "accept"}, key=ALICE))[0] == 200
        while (said := (await gateway.send("GET", path, key=ALICE))[1])["status"] in ("queued", "in_progress"):
            pass
        (call_item,) = [item for item in said["output"] if item["type"] == "mcp_call"]
        assert call_item["error"] is None


@async_test(60)
async def test_an_answer_of_another_issuer_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        browser, issued = Browser(), len(site.authority.requests)
        _, _, headers = await browser.send("GET", await browser.find_page(find_link(await ask(gateway, ALICE))))
        query = parse_qs(urlsplit(headers["location"]).query)
        mixed = {"code": "the-code", "state": query["state"][0], "iss": "https://evil.example.com"}
        assert (await browser.send("GET", f"{gateway.url}/v1/mcp/login/callback?{urlencode(mixed)}"))[0] == 200
        login = await wait_own(gateway, ALICE)
        assert (login["status"], "does not come from the issuer" in login["error"]) == ("failed", True)
        assert len(site.authority.requests) == issued


@async_test(60)
async def test_a_login_without_pkce_does_not_begin(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        link = find_link(await ask(gateway, ALICE))
        site.authority.metadata = {"code_challenge_methods_supported": ["plain"]}
        asked = len(site.authority.authorizations)
        assert (await Browser().send("POST", link))[0] == 502
        assert len(site.authority.authorizations) == asked
        assert "does not know PKCE" in (await wait_own(gateway, ALICE))["error"]


@async_test(60)
async def test_a_link_leads_nowhere_else(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, gateway):
        link = find_link(await ask(gateway, ALICE))
        elsewhere = f"{link}&redirect_uri=https://evil.example.com&next=https://evil.example.com"
        status, page, headers = await Browser().send("POST", elsewhere)
        assert (status, "evil" in page, "location" in headers) == (200, False, False)


@async_test(60)
async def test_a_changed_issuer_does_not_get_the_tokens_of_the_one_before(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        await log_in(gateway, ALICE)
        assert (await ask(gateway, ALICE))["error"] is None
        token = find_token(site)
        sent = len(site.resource.request_headers)
        assert await gateway.reload(mcp_servers=[site.entry(per="caller", issuer="https://login.example.com")])
        body = {"model": MODEL, "input": "Go", "tools": [TOOL]}
        await gateway.send("POST", "/v1/responses", body, key=ALICE)
        headers = site.resource.request_headers[sent:]
        assert not [each for each in headers if each.get("Authorization") in (token, "Bearer token-1")]


@async_test(60)
async def test_a_caller_whose_tokens_were_taken_back_gets_a_new_link(tmp_path: Path) -> None:
    async def refuse(_: AuthServer, __: web.Request, form: dict[str, str]) -> web.StreamResponse:
        return web.json_response({"error": "invalid_grant"}, status=400)

    async with serve(tmp_path) as (site, gateway):
        await log_in(gateway, ALICE)
        assert (await ask(gateway, ALICE))["error"] is None
        site.authority.valid.discard(find_token(site).removeprefix("Bearer "))
        site.authority.reply = refuse
        assert (await ask(gateway, ALICE))["error"] is not None
        again = await ask(gateway, ALICE)
        site.authority.reply = None
        assert (await Browser().log_in(find_link(again)))[0] == 200
        assert (await wait_own(gateway, ALICE))["status"] == "completed"
        assert (await ask(gateway, ALICE))["error"] is None
