"""An operator logs in to an MCP server through the gateway, with a browser on any machine."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import orjson
import pytest
from aiohttp import web
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit
from gateway.config_entries import keys
from gateway.config_entries import server as server_entry
from gateway.login_site import CALLBACK, LOGIN, NAME, LoginSite, run_login_site, wait_login
from gateway.movable_clock import advance_clock, with_movable_clock
from gateway.running_gateway import RunningGateway, run_gateway
from tools.mcp.auth_server import AuthServer
from tools.mcp.resource_server import follow_login

from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.auth.factory import build_login_provider
from holodeck.tools.mcp.auth.redirect import LOGIN_TIMEOUT


@pytest.fixture(autouse=True)
def tokens_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user that runs the gateway has the logins."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path / "settings/holodeck/tokens"


@asynccontextmanager
async def serve(folder: Path, **settings: Any) -> AsyncIterator[tuple[LoginSite, RunningGateway]]:
    """A gateway with one server, which wants a login. `settings`: of the gateway file."""
    async with run_login_site() as site, run_gateway(folder, mcp_servers=[site.entry()], **settings) as gateway:
        yield site, gateway


async def start(gateway: RunningGateway, body: Any = None, **options: Any) -> dict[str, Any]:
    status, login = await gateway.send("POST", LOGIN, body, **options)
    assert status == 200, login
    started: dict[str, Any] = login
    return started


def state_of(login: dict[str, Any]) -> str:
    url: str = login["authorization_url"]
    return parse_qs(urlsplit(url).query)["state"][0]


async def come_back(url: str, **query: str) -> tuple[int, str, dict[str, str]]:
    """A browser at the redirect URI: status, page and headers."""
    address = f"{url}?{urlencode(query)}" if query else url
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        return answer.status, await answer.text(), {name.lower(): value for name, value in answer.headers.items()}


def list_records(folder: Path) -> list[Path]:
    return list(folder.glob("*.json"))


def to_tool(entry: dict[str, Any]) -> MCPTool:
    return MCPTool.model_validate({**entry, "server": "s"})


@async_test
async def test_after_the_login_the_tools_of_the_server_are_there(
    tmp_path: Path, tokens_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with serve(tmp_path, audit={"file": AUDIT_FILE}) as (site, gateway):
        _, server = await gateway.send("POST", f"/v1/mcp/servers/{NAME}/refresh")
        assert "it wants a person to log in" in server["last_error"]
        assert (server["auth"], server["can_log_in"], server["needs_login"]) == ("oauth_authorization_code", True, True)
        login = await start(gateway)
        assert (login["object"], login["server"], login["status"], login["error"]) == (
            "mcp_login",
            NAME,
            "waiting",
            None,
        )
        assert login["redirect_uri"] == f"{gateway.url}{CALLBACK}"
        assert login["authorization_url"].startswith(f"{site.authority.url}/authorize?")
        assert 0 < login["expires_at"] - time.time() <= LOGIN_TIMEOUT
        assert (await gateway.send("GET", LOGIN))[1] == login
        status, page, headers = await come_back(login["authorization_url"])
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "You can close this window" in page
        assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
        assert "<script" not in page
        over = await wait_login(gateway)
        assert over == {**login, "status": "completed", "authorization_url": None}
        _, listed = await gateway.send("GET", "/v1/mcp/servers")
        assert (listed["data"][0]["state"], listed["data"][0]["last_error"]) == ("connected", None)
        _, tools = await gateway.send("GET", f"/v1/mcp/servers/{NAME}/tools")
        assert "add" in [tool["name"] for tool in tools["data"]]
        assert site.authority.registrations[0]["redirect_uris"] == [f"{gateway.url}{CALLBACK}"]
    assert len(list_records(tokens_folder)) == 1
    entries = read_audit(tmp_path, "operator_request", "login_finished")
    assert [entry.get("route", entry.get("outcome")) for entry in entries] == [
        "/v1/mcp/servers/{name}/refresh",
        "/v1/mcp/servers/{name}/login",
        "completed",
    ]
    assert (entries[-1]["caller"], entries[-1]["server"]) == ("local", NAME)
    assert "mcp.login" in caplog.text
    assert not [secret for secret in ("the-code", "token-1", "refresh-1", state_of(login)) if secret in caplog.text]


@async_test
async def test_a_refusal_of_the_authorization_server_is_the_error_of_the_login(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, gateway):
        login = await start(gateway)
        status, page, _ = await come_back(
            login["redirect_uri"], state=state_of(login), error="access_denied", error_description="<b>Not you</b>"
        )
        assert status == 200
        assert "No login" in page
        assert "Not you" not in page
        over = await wait_login(gateway)
        assert over["status"] == "failed"
        assert "gave no permission (access_denied: <b>Not you</b>)" in over["error"]


@async_test
async def test_a_redirect_is_taken_by_its_state_and_only_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        login = await start(gateway)
        answer = {"code": "the-code", "iss": site.authority.url}
        for state in ({"state": "guessed<i>"}, {"state": ""}, {}):
            status, page, headers = await come_back(login["redirect_uri"], **answer, **state)
            assert (status, headers["content-type"]) == (400, "text/html; charset=utf-8")
            assert "guessed" not in page
            assert "the-code" not in page
        assert (await gateway.send("GET", LOGIN))[1]["status"] == "waiting"
        assert (await come_back(login["authorization_url"]))[0] == 200
        assert (await come_back(login["redirect_uri"], state=state_of(login), **answer))[0] == 400
        assert (await wait_login(gateway))["status"] == "completed"
        assert len(site.authority.requests) == 1


@async_test
async def test_a_second_login_replaces_the_first(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        first, second = await start(gateway), await start(gateway)
        assert first["authorization_url"] != second["authorization_url"]
        assert (await come_back(first["authorization_url"]))[0] == 400
        assert (await gateway.send("GET", LOGIN))[1]["status"] == "waiting"
        # The authorization server looks at the latest page that it has shown.
        assert (await come_back(second["authorization_url"]))[0] == 200
        assert (await wait_login(gateway))["status"] == "completed"
        assert len(site.authority.requests) == 1


@async_test
async def test_a_cancelled_login_is_over(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        for method in ("GET", "DELETE"):
            status, missing = await gateway.send(method, LOGIN)
            assert (status, missing["error"]["code"]) == (404, "not_found")
        login = await start(gateway)
        status, cancelled = await gateway.send("DELETE", LOGIN)
        assert (status, cancelled["status"], cancelled["authorization_url"]) == (200, "failed", None)
        assert "the login was cancelled" in cancelled["error"]
        assert (await come_back(login["authorization_url"]))[0] == 400
        assert site.authority.requests == []
        assert (await gateway.send("DELETE", LOGIN))[1] == cancelled
        assert (await come_back((await start(gateway))["authorization_url"]))[0] == 200
        completed = await wait_login(gateway)
        assert (await gateway.send("DELETE", LOGIN))[1] == completed


@with_movable_clock
async def test_a_login_that_nobody_finishes_expires(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        login = await start(gateway)
        await advance_clock(LOGIN_TIMEOUT)
        over = await wait_login(gateway)
        assert (over["status"], "nobody logged in within 300 s" in over["error"]) == ("failed", True)
        assert (await come_back(login["authorization_url"]))[0] == 400
        assert site.authority.requests == []


@async_test
async def test_a_token_that_the_authorization_server_does_not_give_fails_the_login(tmp_path: Path) -> None:
    async def refuse(_: AuthServer, __: web.Request, form: dict[str, str]) -> web.StreamResponse:
        return web.json_response({"error": "invalid_grant", "error_description": f"no {form['code']}"}, status=400)

    async with serve(tmp_path) as (site, gateway):
        site.authority.reply = refuse
        await come_back((await start(gateway))["authorization_url"])
        over = await wait_login(gateway)
        assert over["status"] == "failed"
        assert "invalid_grant: no ***" in over["error"]


@async_test
async def test_a_login_needs_an_operator_who_may_use_the_server(tmp_path: Path) -> None:
    callers: dict[str, Any] = {"keys": ["hd-ann"], "admins": ["hd-ops", "hd-near", "hd-far"]}
    scopes = {"hd-near": {"servers": [NAME]}, "hd-far": {"servers": ["other"]}}
    async with serve(tmp_path, scopes=scopes, **callers) as (_, gateway):
        login = await start(gateway, key="hd-near")
        for method in ("POST", "GET", "DELETE"):
            status, refused = await gateway.send(method, LOGIN, key="hd-far")
            assert (status, refused["error"]["code"]) == (404, "not_found")
            assert (await gateway.send(method, LOGIN, key="hd-ann"))[0] == 403
            assert (await gateway.send(method, LOGIN, key="hd-nobody"))[0] == 401
        assert (await gateway.send("GET", LOGIN, key="hd-ops"))[1] == login
        assert (await come_back(login["authorization_url"]))[0] == 200, "the browser has no key"
        assert (await wait_login(gateway, key="hd-near"))["status"] == "completed"


@async_test
async def test_the_login_of_an_operator_whose_key_is_withdrawn_is_cancelled(tmp_path: Path) -> None:
    async with serve(tmp_path, admins=["hd-left", "hd-ops"]) as (_, gateway):
        login = await start(gateway, key="hd-left")
        assert await gateway.reload(keys=keys("hd-ops", role="operator"))
        over = await wait_login(gateway, key="hd-ops")
        assert (over["status"], "was withdrawn" in over["error"]) == ("failed", True)
        assert (await come_back(login["authorization_url"]))[0] == 400


@async_test
async def test_a_server_without_a_login_says_why(tmp_path: Path) -> None:
    url = "https://mcp.example.com/mcp"
    credentials = {
        "type": "oauth_client_credentials",
        "client_id": "me",
        "client_secret": "${SECRET}",
        "issuer": "https://login.example.com",
    }
    entries = [
        {"name": "process", "command": "npx", "args": ["-y", "some-server"]},
        server_entry("bearer", url, auth={"type": "bearer", "token": "${SECRET}"}),
        server_entry("machine", url, auth=credentials),
        server_entry("header", url, headers={"Authorization": "${SECRET}"}),
        server_entry("bare", url),
    ]
    reasons = {
        "process": "it is a process that the gateway starts",
        "bearer": "its 'auth' is of type 'bearer'",
        "machine": "its 'auth' is of type 'oauth_client_credentials'",
        "header": "its 'headers' have an Authorization",
        "bare": "write 'auth: {type: oauth_authorization_code}' into its definition",
    }
    environ = {"SECRET": "the-secret-of-the-gateway"}
    async with run_gateway(tmp_path, mcp_servers=entries, environ=environ, allow_stdio=True) as gateway:
        for name, reason in reasons.items():
            status, refused = await gateway.send("POST", f"/v1/mcp/servers/{name}/login")
            assert (status, refused["error"]["code"]) == (409, "no_login"), refused
            assert reason in refused["error"]["message"]
        _, listed = await gateway.send("GET", "/v1/mcp/servers")
        assert not any(server["can_log_in"] for server in listed["data"])


@async_test
async def test_a_flow_that_finds_no_login_page_fails_in_its_own_words(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        site.authority.metadata_paths = ()
        status, refused = await gateway.send("POST", LOGIN)
        assert (status, refused["error"]["code"], refused["error"]["type"]) == (
            503,
            "server_unavailable",
            "server_error",
        )
        assert "publishes no metadata" in refused["error"]["message"]
        over = await wait_login(gateway)
        assert (over["status"], over["error"]) == ("failed", refused["error"]["message"])


@async_test
async def test_a_client_that_is_registered_for_another_redirect_is_not_used(tmp_path: Path) -> None:
    async with run_login_site() as site:
        at_the_terminal = build_login_provider(to_tool(site.entry()), show=follow_login)
        await at_the_terminal.login()
        async with run_gateway(tmp_path, mcp_servers=[site.entry()]) as gateway:
            for _ in range(2):
                await come_back((await start(gateway))["authorization_url"])
                assert (await wait_login(gateway))["status"] == "completed"
        await build_login_provider(to_tool(site.entry()), show=follow_login).login()
        clients = [each["client_id"] for each in site.authority.authorizations]
        assert clients == ["client-1", "client-2", "client-2", "client-3"]
        loopback, gateways, again = [each["redirect_uris"][0] for each in site.authority.registrations]
        assert gateways == f"{gateway.url}{CALLBACK}"
        assert urlsplit(loopback).path == urlsplit(again).path == "/callback"
        assert urlsplit(again).port != urlsplit(gateways).port


@async_test
async def test_a_configured_client_logs_in_with_the_address_of_the_gateway(tmp_path: Path) -> None:
    async with (
        run_login_site() as site,
        run_gateway(
            tmp_path,
            mcp_servers=[site.entry(client_id="ours")],
            mcp_endpoint={"public_url": "https://gateway.example.com/tools/"},
        ) as gateway,
    ):
        login = await start(gateway, {"redirect_uri": "http://10.1.2.3/v1/mcp/login/callback"})
        assert login["redirect_uri"] == "https://gateway.example.com/tools/v1/mcp/login/callback"
        query = parse_qs(urlsplit(login["authorization_url"]).query)
        assert (query["client_id"], query["redirect_uri"]) == (["ours"], [login["redirect_uri"]])
        assert site.authority.registrations == []


@async_test
async def test_the_redirect_uri_of_a_page_has_its_origin(tmp_path: Path) -> None:
    async with serve(tmp_path, listen={"port": 0, "allowed_hosts": ["gateway.example.com"]}) as (site, gateway):
        sent = f"https://gateway.example.com/tools{CALLBACK}"
        session = await gateway.http_client()
        page = {"host": "gateway.example.com", "origin": "https://gateway.example.com"}
        async with session.post(LOGIN, json={"redirect_uri": sent}, headers=page) as answer:
            assert (answer.status, (await answer.json())["redirect_uri"]) == (200, sent)
        assert site.authority.registrations[0]["application_type"] == "web"
        own = gateway.url.replace("http:", "https:")
        assert (await start(gateway, {"redirect_uri": f"{own}/x{CALLBACK}"}))["redirect_uri"] == f"{own}/x{CALLBACK}"
        refusals = [
            ({}, f"https://evil.example.com{CALLBACK}"),
            (page, f"{gateway.url}{CALLBACK}"),
            (page, f"http://gateway.example.com{CALLBACK}"),
            (page, f"https://gateway.example.com:8443{CALLBACK}"),
            (page, "https://gateway.example.com/elsewhere"),
            (page, f"https://gateway.example.com/?x={CALLBACK}"),
            (page, f"https://gateway.example.com{CALLBACK}?x=1"),
            (page, f"https://gateway.example.com/#{CALLBACK}"),
            (page, f"https://me@gateway.example.com{CALLBACK}"),
            (page, f"javascript:alert(1)//{CALLBACK}"),
        ]
        for headers, uri in refusals:
            async with session.post(LOGIN, json={"redirect_uri": uri}, headers=headers) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, error["param"], error["code"]) == (400, "redirect_uri", "invalid_url"), uri


@async_test
async def test_a_server_with_a_valid_token_uses_the_new_login_at_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as (site, gateway):
        for token in ("token-1", "token-2"):
            await come_back((await start(gateway))["authorization_url"])
            assert (await wait_login(gateway))["status"] == "completed"
            assert site.latest_token == f"Bearer {token}"


@asynccontextmanager
async def serve_agent(folder: Path) -> AsyncIterator[tuple[LoginSite, RunningGateway]]:
    """A gateway with an agent whose server wants a login, and has no `auth` in its definition."""
    async with run_login_site() as site:
        entry = {key: value for key, value in site.entry().items() if key != "auth"}
        agent = {"name": "helper", "model": {"provider": "rehearsal"}, "instructions": {"inline": "Help."}}
        (folder / "agent.yaml").write_bytes(orjson.dumps({**agent, "tools": [entry]}))
        async with run_gateway(folder, agents=[{"file": "agent.yaml"}]) as gateway:
            yield site, gateway


@pytest.mark.parametrize("serve_kind", [serve, serve_agent])
@async_test
async def test_a_login_at_the_terminal_is_used_by_a_gateway_that_runs(tmp_path: Path, serve_kind: Any) -> None:
    async with serve_kind(tmp_path) as (site, gateway):
        refresh = f"/v1/mcp/servers/{NAME}/refresh"
        _, refused = await gateway.send("POST", refresh)
        assert ("holodeck mcp login" in refused["last_error"], refused["needs_login"]) == (True, True)
        await build_login_provider(to_tool(site.entry()), show=follow_login).login()
        _, server = await gateway.send("POST", refresh)
        assert (server["state"], server["last_error"], server["needs_login"]) == ("connected", None, False)


@async_test
async def test_the_server_of_an_agent_uses_a_login_without_auth_in_its_definition(tmp_path: Path) -> None:
    async with serve_agent(tmp_path) as (_, gateway):
        _, server = await gateway.send("POST", f"/v1/mcp/servers/{NAME}/refresh")
        assert (server["auth"], server["can_log_in"]) == (None, True)
        await come_back((await start(gateway))["authorization_url"])
        assert (await wait_login(gateway))["status"] == "completed"
        _, listed = await gateway.send("GET", "/v1/mcp/servers")
        assert listed["data"][0]["state"] == "connected"


@async_test
async def test_requests_are_not_held_up_while_a_person_logs_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as (site, gateway):
        await come_back((await start(gateway))["authorization_url"])
        await wait_login(gateway)
        await start(gateway)
        # Its token is refused, and renewed, which takes the lock of the stored login.
        site.authority.valid.clear()
        _, server = await gateway.send("POST", f"/v1/mcp/servers/{NAME}/refresh")
        assert (server["state"], server["last_error"]) == ("connected", None)
        assert "mcp.tokens_still_locked" not in caplog.text
        assert (await gateway.send("GET", LOGIN))[1]["status"] == "waiting"
