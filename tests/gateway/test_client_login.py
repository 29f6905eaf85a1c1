"""MCP clients log in at a gateway with its identity provider, whether or not that knows any clients."""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from re import search
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from aiohttp import web
from async_tests import async_test
from gateway.config_entries import server as server_entry
from gateway.login_browser import Answer, LoginBrowser, open_browser, run_with_login
from gateway.running_gateway import RunningGateway
from installed_servers import PACKAGES
from loopback_site import serve_site
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from holodeck.testing import FaultyMCPServer, IdentityProvider

REDIRECT_URI = "http://127.0.0.1:33418/callback"
STATIC = {"id": "editor", "name": "Editor", "redirect_uris": ["http://127.0.0.1/callback"]}


class Tokens:
    """What a client remembers."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def serve(
    folder: Path, like: Any = "standard", **login: Any
) -> AsyncIterator[tuple[RunningGateway, LoginBrowser, IdentityProvider]]:
    """A gateway with one MCP server at which clients log in. `login`: of `mcp_endpoint.login`."""
    async with (
        FaultyMCPServer(era="modern") as server,
        IdentityProvider(like) as provider,
        run_with_login(
            folder, provider, mcp_servers=[server_entry("sums", server.url)], mcp_endpoint={"login": login}
        ) as gateway,
        open_browser(gateway) as browser,
    ):
        yield gateway, browser, provider


async def decide(browser: LoginBrowser, page: Answer, decision: str = "allow", **headers: str) -> Answer:
    """Press a button of the page that asks."""
    assert page.status == 200, page.text
    found = search('name="question" value="([^"]*)"', page.text)
    assert found is not None
    sent = {"origin": browser.url, "sec_fetch_site": "same-origin", **headers}
    form = {"question": unescape(found[1]), "decision": decision}
    return await browser.submit("/oauth/authorize", form, **sent)


async def click_through(browser: LoginBrowser, url: str, decision: str = "allow") -> str:
    """Log in where that is needed, and allow the client. Returns where the browser is sent at the end."""
    answer = await browser.visit(url)
    while answer.status == 302:
        answer = await browser.visit(answer.location)
    return (await decide(browser, answer, decision)).location


@asynccontextmanager
async def connect(
    gateway: RunningGateway, browser: LoginBrowser, tokens: Tokens, **options: Any
) -> AsyncIterator[Client]:
    """The official SDK's client, whose person is at this browser."""
    come_back: list[str] = []

    async def show(url: str) -> None:
        come_back.append(await click_through(browser, url))

    async def wait_result() -> AuthorizationCodeResult:
        query = {name: values[0] for name, values in parse_qs(urlsplit(come_back[-1]).query).items()}
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))

    metadata = OAuthClientMetadata(client_name="A <b>client</b>", redirect_uris=[AnyUrl(REDIRECT_URI)])
    auth = OAuthClientProvider(f"{gateway.url}/mcp", metadata, tokens, show, wait_result)
    async with httpx2.AsyncClient(auth=auth, timeout=60) as http:
        transport = streamable_http_client(f"{gateway.url}/mcp", http_client=http)
        async with Client(transport, read_timeout_seconds=60) as client:
            yield client


@pytest.mark.parametrize("like", ["standard", "entra"])
@async_test(60)
async def test_client_of_the_sdk_registers_logs_in_and_calls(tmp_path: Path, like: Any) -> None:
    async with serve(tmp_path, like) as (gateway, browser, _):
        tokens = Tokens()
        async with connect(gateway, browser, tokens) as client:
            assert "add" in [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert not result.is_error
        assert tokens.tokens is not None
        # The token is for the MCP endpoint alone.
        for path, status in (("/v1/me", 401), ("/v1/models", 401)):
            assert (await gateway.send("GET", path, key=tokens.tokens.access_token))[0] == status
        listed = (await browser.send("GET", "/v1/sessions")).json["data"]
        assert [(each["kind"], each["about"]) for each in listed if each["kind"] == "program"] == [
            ("program", "A <b>client</b>")
        ]


@async_test(60)
async def test_client_of_the_file_and_one_with_a_document_log_in_without_registration(tmp_path: Path) -> None:
    async def describe(request: web.Request) -> web.Response:
        return web.json_response(
            {"client_id": str(request.url), "client_name": "Documented", "redirect_uris": [REDIRECT_URI]}
        )

    async with serve_site(describe) as site:
        url = f"{site}/client.json"
        documents = {"allow_private_hosts": ["127.0.0.1"], "allow_insecure_hosts": ["127.0.0.1"]}
        async with serve(tmp_path, clients=[STATIC], documents=documents, registration=False) as (gateway, browser, _):
            for client_id in ("editor", url):
                tokens = Tokens()
                tokens.client = OAuthClientInformationFull(client_id=client_id, redirect_uris=[AnyUrl(REDIRECT_URI)])
                async with connect(gateway, browser, tokens) as client:
                    assert (await client.list_tools()).tools


@pytest.mark.parametrize("like", ["standard", "entra"])
@async_test(120)
async def test_client_of_the_sdk_for_typescript_logs_in_and_calls(tmp_path: Path, like: Any) -> None:
    program = tmp_path / "log_in.mjs"
    shutil.copy(Path(__file__).parent / "clients/log_in.mjs", program)
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    async with serve(tmp_path, like) as (gateway, browser, _):
        process = await asyncio.create_subprocess_exec(
            "node", str(program), f"{gateway.url}/mcp", REDIRECT_URI, stdin=PIPE, stdout=PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        page = (await process.stdout.readline()).decode().strip()
        location = await click_through(browser, page)
        output, _ = await process.communicate(f"{location}\n".encode())
        assert process.returncode == 0
        assert "3" in output.decode()
