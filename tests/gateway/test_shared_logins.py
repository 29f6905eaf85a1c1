"""Logins at MCP servers are those of all gateways of a database: started, ended and renewed at any of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit
from gateway.config_entries import keys
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from gateway.login_site import LOGIN, NAME, LoginSite, run_login_site
from gateway.mcp_endpoint.sdk_client import connect, text_of
from gateway.test_caller_logins import LINK, Browser, find_token
from storage.postgres_server import PostgresServer

OPS = {"authorization": "Bearer hd-ops"}
_SERVER = f"/v1/mcp/servers/{NAME}"
_SECRET = "a seal key that both gateways have"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@asynccontextmanager
async def run_two(folder: Path, database: str, site: LoginSite, **auth: Any) -> AsyncIterator[list[GatewayProcess]]:
    """Two gateway processes with one database, each with a home and a file of its own. `auth`: of the server."""
    files, environs = [], []
    for name in ("one", "other"):
        (folder / name).mkdir()
        config = {
            "mcp_servers": [site.entry(**auth)],
            "keys": [*keys("hd-ops", role="operator"), *keys("hd-ann")],
            "storage": {"url": "${DATABASE_URL}"},
            "seal_key": "${SEAL_KEY}",
            "audit": {"file": AUDIT_FILE},
        }
        files.append(write_gateway_file(folder / name, "http://127.0.0.1:9/v1", **config))
        home = {"XDG_CONFIG_HOME": str(folder / name / "settings")}
        environs.append({"DATABASE_URL": database, "SEAL_KEY": _SECRET, **home})
    async with (
        run_gateway_process(files[0], environ=environs[0]) as one,
        run_gateway_process(files[1], environ=environs[1]) as other,
    ):
        yield [one, other]


async def send(gateway: GatewayProcess, method: str, path: str) -> Any:
    status, said, _ = await gateway.send(method, path, headers=OPS)
    assert status == 200, said
    return said


async def find_redirect(login: dict[str, Any]) -> str:
    """Where the authorization server sends the browser, without the address of the gateway."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(login["authorization_url"], allow_redirects=False) as answer,
    ):
        parts = urlsplit(answer.headers["location"])
        return f"{parts.path}?{parts.query}"


async def wait_over(gateway: GatewayProcess) -> Any:
    while (login := await send(gateway, "GET", LOGIN))["status"] == "waiting":
        pass
    return login


async def log_in(start: GatewayProcess, end: GatewayProcess) -> None:
    """Log in at one gateway, with a browser that comes back to another one."""
    login = await send(start, "POST", LOGIN)
    assert await send(end, "GET", LOGIN) == login
    path = await find_redirect(login)
    assert (await end.send("GET", path))[0] == 200
    assert (await wait_over(end))["status"] == "completed"
    for gateway in (start, end):
        assert (await gateway.send("GET", path))[0] == 400, "a state is good for one answer"


def find_tokens(folder: Path) -> list[Path]:
    return list(folder.rglob("tokens/*"))


def read_files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())


@async_test(120)
async def test_a_login_that_comes_back_to_another_gateway_is_that_of_both(tmp_path: Path, database: str) -> None:
    async with run_login_site() as site, run_two(tmp_path, database, site) as (one, other):
        for start, end in ((one, other), (other, one)):
            await log_in(start, end)
            for gateway in (one, other):
                assert (await send(gateway, "POST", f"{_SERVER}/refresh"))["state"] == "connected"
        assert [each.form["grant_type"] for each in site.authority.requests] == ["authorization_code"] * 2
    for name in ("one", "other"):
        assert not find_tokens(tmp_path / name), "nothing is left with the user"
    stored = read_files(tmp_path)
    assert not [secret for secret in (b"token-1", b"refresh-1", b"the-code") if secret in stored]
    outcomes = [
        entry["outcome"] for name in ("one", "other") for entry in read_audit(tmp_path / name, "login_finished")
    ]
    assert outcomes == ["completed"] * 2


@async_test(120)
async def test_a_token_is_renewed_once_for_both_gateways(tmp_path: Path, database: str) -> None:
    async with run_login_site() as site, run_two(tmp_path, database, site) as (one, other):
        await log_in(one, other)
        await send(other, "POST", f"{_SERVER}/refresh")
        for _ in range(3):
            site.authority.valid.clear()
            site.authority.token_gate, site.authority.arrived = asyncio.Event(), asyncio.Event()
            both = [asyncio.create_task(send(each, "POST", f"{_SERVER}/refresh")) for each in (one, other)]
            await site.authority.arrived.wait()
            site.authority.token_gate.set()
            assert [(await each)["state"] for each in both] == ["connected"] * 2
        used = [each.form["refresh_token"] for each in site.authority.requests if "refresh_token" in each.form]
        assert len(used) == len(set(used)) == 3


@async_test(120)
async def test_a_login_is_cancelled_at_another_gateway(tmp_path: Path, database: str) -> None:
    async with run_login_site() as site, run_two(tmp_path, database, site) as (one, other):
        path = await find_redirect(await send(one, "POST", LOGIN))
        cancelled = await send(other, "DELETE", LOGIN)
        assert (cancelled["status"], "the login was cancelled" in cancelled["error"]) == ("failed", True)
        assert await send(one, "GET", LOGIN) == cancelled
        for gateway in (one, other):
            assert (await gateway.send("GET", path))[0] == 400
        assert site.authority.requests == []


@async_test(120)
async def test_a_login_ends_with_the_gateway_that_runs_it(tmp_path: Path, database: str) -> None:
    async with run_login_site() as site, run_two(tmp_path, database, site) as (one, other):
        path = await find_redirect(await send(one, "POST", LOGIN))
        one.stop()
        await one.wait_exit()
        over = await send(other, "GET", LOGIN)
        assert (over["status"], "interrupted" in over["error"]) == ("failed", True)
        assert (await other.send("GET", path))[0] == 400
        await log_in(other, other)


@async_test(120)
async def test_a_caller_s_link_of_one_gateway_works_at_the_other_and_so_do_its_tokens(
    tmp_path: Path, database: str
) -> None:
    async with run_login_site() as site, run_two(tmp_path, database, site, per="caller") as (one, other):
        await log_in(one, one)
        async with connect(one.url, key="hd-ann") as here, connect(other.url, key="hd-ann") as there:
            refused = text_of(await here.call_tool("add", {"a": 1, "b": 2}))
            link = next(word for word in refused.split() if LINK in word)
            browser = Browser()
            page = await browser.find_page(link.replace(one.url, other.url))
            assert (await browser.send("POST", link))[0] == 400, "the other gateway has begun this login"
            _, _, headers = await browser.send("GET", page)
            back = headers["location"].replace(other.url, one.url)
            assert (await Browser().send("GET", back))[0] == 400
            assert (await browser.send("GET", back))[0] == 200
            for client in (here, there):
                while text_of(await client.call_tool("add", {"a": 1, "b": 2})) != "3":
                    pass
                assert find_token(site) == "Bearer token-2"
            status, _, _ = await other.send(
                "DELETE", f"/v1/mcp/logins/{NAME}", headers={"authorization": "Bearer hd-ann"}
            )
            assert status == 200
            for client in (there, here):
                # The other gateway knows it within a second.
                while LINK not in text_of(await client.call_tool("add", {"a": 1, "b": 2})):
                    pass
