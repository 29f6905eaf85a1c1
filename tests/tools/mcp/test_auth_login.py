"""The login of a user: once, by browser, with PKCE; then silent renewals, also after a restart and beside others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from aiohttp import web
from async_tests import async_test
from loopback_site import serve_site
from memory_tokens import MemoryTokens
from tools.mcp.auth_server import AuthServer, run_auth_server
from tools.mcp.dpop_servers import BoundResource, issue_bound
from tools.mcp.resource_server import ResourceServer, follow_login, request_with_auth, run_resource_server

from holodeck.lib.clock import wall_clock
from holodeck.lib.errors import MCPConfigError, MCPConnectionError
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.auth.auth_http import AuthHTTPClient
from holodeck.tools.mcp.auth.authorization_code import AuthorizationCode
from holodeck.tools.mcp.auth.factory import build_auth_provider, build_login_provider
from holodeck.tools.mcp.auth.oauth_flow import ShowLoginPage
from holodeck.tools.mcp.auth.provider import AuthRefusal
from holodeck.tools.mcp.auth.token_store import FileTokenStore, TokenStore


def tool(url: str, **auth: Any) -> MCPTool:
    settings = {"type": "oauth_authorization_code", **auth}
    definition = {"name": "tickets", "transport": "http", "url": url, "description": "d", "server": "s"}
    return MCPTool.model_validate({**definition, "auth": settings})


def provider(
    server: ResourceServer,
    store: TokenStore,
    *,
    show: ShowLoginPage | None = follow_login,
    clock: Callable[[], float] = wall_clock,
    **auth: Any,
) -> AuthorizationCode:
    return build_login_provider(tool(server.mcp, **auth), show=show, store=store, clock=clock)


@asynccontextmanager
async def world(**settings: Any) -> AsyncIterator[tuple[AuthServer, ResourceServer]]:
    async with run_auth_server(**settings) as authority, run_resource_server(authority) as server:
        yield authority, server


@async_test
async def test_the_first_refusal_registers_logs_in_with_pkce_and_the_call_works(tmp_path: Path) -> None:
    async with world() as (authority, server):
        assert await request_with_auth(provider(server, FileTokenStore(tmp_path), scopes=["read"]), server.mcp) == 200
        [registration], [login], [request] = authority.registrations, authority.authorizations, authority.requests
        assert registration["client_name"] == "HoloDeck"
        assert "refresh_token" in registration["grant_types"]
        assert login["redirect_uri"] == registration["redirect_uris"][0]
        assert login["redirect_uri"].startswith("http://127.0.0.1:")
        assert (login["code_challenge_method"], login["resource"], login["scope"]) == ("S256", server.mcp, "read")
        assert request.form["grant_type"] == "authorization_code"
        assert request.form["resource"] == server.mcp
        assert len(request.form["code_verifier"]) >= 43


@async_test
async def test_tokens_outlive_the_process_and_no_other_user_can_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "tokens"
    async with world() as (authority, server):
        await request_with_auth(provider(server, FileTokenStore(folder)), server.mcp)
        assert await request_with_auth(provider(server, FileTokenStore(folder), show=None), server.mcp) == 200
        assert len(authority.requests) == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@async_test
async def test_twenty_calls_at_once_open_one_browser() -> None:
    async with world() as (authority, server):
        auth = provider(server, MemoryTokens())
        assert await asyncio.gather(*(request_with_auth(auth, server.mcp) for _ in range(20))) == [200] * 20
        assert len(authority.authorizations) == 1
        assert len(authority.requests) == 1


@async_test
async def test_a_token_is_renewed_before_it_expires_at_its_own_authorization_server_also_after_a_restart() -> None:
    now = [1_000_000.0]
    store = MemoryTokens()
    async with world() as (authority, server):
        await request_with_auth(provider(server, store, clock=lambda: now[0]), server.mcp)
        now[0] += 3600 - 30
        again = provider(server, store, show=None, clock=lambda: now[0])
        assert await asyncio.gather(*(request_with_auth(again, server.mcp) for _ in range(10))) == [200] * 10
        [_, renewal] = authority.requests
        assert renewal.form["grant_type"] == "refresh_token"
        assert renewal.form["refresh_token"] == "refresh-1"
        assert renewal.form["resource"] == server.mcp
        assert "/token" not in server.paths


@async_test
async def test_a_token_that_was_taken_back_is_renewed_without_a_person() -> None:
    store = MemoryTokens()
    async with world() as (authority, server):
        await request_with_auth(provider(server, store), server.mcp)
        authority.valid.clear()
        auth = provider(server, store, show=None)
        assert await asyncio.gather(*(request_with_auth(auth, server.mcp) for _ in range(10))) == [200] * 10
        assert [each.form["grant_type"] for each in authority.requests] == ["authorization_code", "refresh_token"]


async def _invalid_grant(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    return web.json_response({"error": "invalid_grant"}, status=400)


@async_test
async def test_without_a_person_a_missing_login_says_which_command_to_run_and_registers_nothing() -> None:
    async with world() as (authority, server):
        with pytest.raises(MCPConnectionError, match="Run: holodeck mcp login tickets"):
            await request_with_auth(provider(server, MemoryTokens(), show=None), server.mcp)
        assert authority.paths == []


@async_test
async def test_without_a_person_a_refused_renewal_says_which_command_to_run() -> None:
    store = MemoryTokens()
    async with world() as (authority, server):
        await request_with_auth(provider(server, store), server.mcp)
        authority.valid.clear()
        authority.reply = _invalid_grant
        auth = provider(server, store, show=None)
        for _ in range(2):
            with pytest.raises(MCPConnectionError, match="Run: holodeck mcp login tickets"):
                await request_with_auth(auth, server.mcp)
        assert len(authority.requests) == 2


@async_test
async def test_with_a_person_a_refused_renewal_leads_to_a_new_login_of_the_same_client() -> None:
    async with world() as (authority, server):
        auth = provider(server, MemoryTokens())
        await request_with_auth(auth, server.mcp)
        authority.valid.clear()
        refusals = iter([_invalid_grant])

        async def once(a: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
            a.reply = None
            return await next(refusals)(a, request, form)

        authority.reply = once
        assert await request_with_auth(auth, server.mcp) == 200
        assert len(authority.authorizations) == 2
        assert len(authority.registrations) == 1
        assert len({login["redirect_uri"] for login in authority.authorizations}) == 1


@async_test
async def test_a_server_that_refuses_everything_ends_in_an_error_after_one_login() -> None:
    async with world(refresh_tokens=False) as (authority, server):

        async def never(request: web.Request) -> web.StreamResponse:
            return server.unauthorized()

        server.judge = never
        with pytest.raises(MCPConnectionError, match=r"'tickets'.*refused a token from a login just made"):
            await request_with_auth(provider(server, MemoryTokens()), server.mcp)
        assert len(authority.authorizations) == 1


@async_test
async def test_a_wider_scope_is_requested_once() -> None:
    async with world() as (authority, server):
        enough: list[str] = []

        async def judge(request: web.Request) -> web.StreamResponse | None:
            token = request.headers.get("Authorization", "").partition(" ")[2]
            if token in authority.valid and token not in enough:
                needs = f'Bearer error="insufficient_scope", scope="admin", {server.challenge.partition(" ")[2]}'
                return web.Response(status=403, headers={"WWW-Authenticate": needs})
            return None

        server.judge = judge
        enough.append("token-2")
        auth = provider(server, MemoryTokens(), scopes=["read"])
        assert await request_with_auth(auth, server.mcp) == 200
        assert [login["scope"] for login in authority.authorizations] == ["read", "read admin"]
        enough.clear()
        with pytest.raises(MCPConnectionError, match="needs the scope 'admin'"):
            await request_with_auth(auth, server.mcp)
        assert len(authority.authorizations) == 2


@async_test
async def test_a_client_of_the_file_is_not_registered_and_its_secret_goes_to_the_pinned_issuer_only() -> None:
    async with world() as (authority, server):
        pinned: dict[str, Any] = {"client_id": "me", "client_secret": "s3cr3t", "issuer": authority.issuer_url}
        assert await request_with_auth(provider(server, MemoryTokens(), **pinned), server.mcp) == 200
        assert authority.registrations == []
        assert authority.requests[0].basic == ("me", "s3cr3t")


@async_test
async def test_a_server_that_names_another_authorization_server_than_the_pinned_one_is_refused() -> None:
    touched: list[str] = []

    async def thief(request: web.Request) -> web.StreamResponse:
        touched.append(request.path)
        return web.Response(status=404)

    async with world() as (authority, server), serve_site(thief) as evil:
        server.authorization_servers = [evil]
        pinned: dict[str, Any] = {"client_id": "me", "client_secret": "s3cr3t", "issuer": authority.issuer_url}
        with pytest.raises(MCPConnectionError, match="is pinned"):
            await request_with_auth(provider(server, MemoryTokens(), **pinned), server.mcp)
        assert touched == []
        assert authority.requests == []


def test_a_secret_without_a_pinned_issuer_is_refused() -> None:
    with pytest.raises(MCPConfigError, match="pinned 'issuer'"):
        build_login_provider(tool("https://mcp.example", client_id="me", client_secret="s3cr3t"), show=None)


@async_test
async def test_an_answer_with_another_state_is_turned_away_and_the_login_goes_on() -> None:
    pages: list[tuple[int, str]] = []

    async def attacked(url: str) -> None:
        back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        async with aiohttp.ClientSession() as session:
            for path in (f"{back}?code=stolen&state=guess", f"{back}?code=stolen", f"{back}/other", back):
                async with session.get(path) as response:
                    pages.append((response.status, await response.text()))
            async with session.get(url) as response:
                pages.append((response.status, await response.text()))

    async with world() as (authority, server):
        assert await request_with_auth(provider(server, MemoryTokens(), show=attacked), server.mcp) == 200
        assert [status for status, _ in pages] == [400, 400, 404, 400, 200]
        assert "You can close this window" in pages[-1][1]
        assert authority.requests[0].form["code"] == "the-code"


@async_test
async def test_a_refused_login_is_an_error_with_the_text_of_the_authorization_server() -> None:
    async def denies(url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        back = {"error": "access_denied", "error_description": "not today", "state": query["state"][0]}
        async with aiohttp.ClientSession() as session, session.get(query["redirect_uri"][0], params=back) as response:
            assert "No login" in await response.text()

    async with world() as (authority, server):
        with pytest.raises(MCPConnectionError, match=r"access_denied: not today"):
            await request_with_auth(provider(server, MemoryTokens(), show=denies), server.mcp)
        assert authority.requests == []


@async_test
async def test_a_failed_exchange_shows_no_secret() -> None:
    async def quoting(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        return web.Response(status=400, text=f"bad client s3cr3t {form}\x1b[2J")

    async with world(reply=quoting) as (authority, server):
        pinned: dict[str, Any] = {"client_id": "me", "client_secret": "s3cr3t", "issuer": authority.issuer_url}
        with pytest.raises(MCPConnectionError, match=r"the token endpoint .* answered 400") as caught:
            await request_with_auth(provider(server, MemoryTokens(), **pinned), server.mcp)
        assert "s3cr3t" not in str(caught.value)
        assert "\x1b" not in str(caught.value)


@async_test
async def test_login_asks_again_whatever_is_stored_and_logout_forgets() -> None:
    store = MemoryTokens()
    async with world() as (authority, server):
        await provider(server, store).login()
        await provider(server, store).login()
        assert len(authority.authorizations) == 2
        assert len(authority.registrations) == 1
        assert await request_with_auth(provider(server, store, show=None), server.mcp) == 200
        await provider(server, store).logout()
        with pytest.raises(MCPConnectionError, match="holodeck mcp login"):
            await request_with_auth(provider(server, store, show=None), server.mcp)


@async_test
async def test_a_pinned_redirect_port_that_is_taken_is_named() -> None:
    async with world() as (_, server):
        taken = int(server.url.rpartition(":")[2])
        with pytest.raises(MCPConnectionError, match=f"port {taken} .* is taken"):
            await request_with_auth(provider(server, MemoryTokens(), redirect_port=taken), server.mcp)


@async_test
async def test_a_token_that_another_process_has_renewed_is_taken_over() -> None:
    now = [1_000_000.0]
    store = MemoryTokens()
    async with world() as (authority, server):
        one = provider(server, store, clock=lambda: now[0])
        await request_with_auth(one, server.mcp)
        two = provider(server, store, show=None, clock=lambda: now[0])
        await request_with_auth(two, server.mcp)
        now[0] += 3600 - 30
        await request_with_auth(one, server.mcp)
        await request_with_auth(two, server.mcp)
        assert len(authority.requests) == 2
        assert server.request_headers[-1]["Authorization"] == "Bearer token-2"


@async_test
async def test_a_token_bound_by_dpop_is_proved_anew_for_every_request_also_by_another_process(tmp_path: Path) -> None:
    async with world(reply=issue_bound) as (authority, server):
        resource = BoundResource(server)
        store = FileTokenStore(tmp_path)
        auth = provider(server, store, dpop=True)
        assert [await request_with_auth(auth, server.mcp) for _ in range(3)] == [200] * 3
        later = provider(server, store, show=None, dpop=True)
        assert await request_with_auth(later, server.mcp) == 200
        assert len(set(resource.proofs)) == 4, "no proof is used twice"
        assert len(resource.keys) == 1, "the token is bound to one key"
        assert len(authority.authorizations) == 1


@async_test
async def test_a_server_that_ignores_proofs_gives_a_plain_token(tmp_path: Path) -> None:
    async with world() as (_, server):
        store = FileTokenStore(tmp_path)
        for auth in (provider(server, store, dpop=True), provider(server, store, show=None, dpop=True)):
            assert await request_with_auth(auth, server.mcp) == 200
            assert server.request_headers[-1]["Authorization"] == "Bearer token-1"


@async_test
async def test_a_server_without_auth_in_its_file_is_shown_a_login_only_where_the_person_asks() -> None:
    store = MemoryTokens()
    async with world() as (authority, server):
        bare = tool(server.mcp).model_copy(update={"auth": None})
        mine = build_auth_provider(bare, store=store, use_logins=True)
        assert await request_with_auth(mine, server.mcp) == 401
        await build_login_provider(bare, show=follow_login, store=store).login()
        mine = build_auth_provider(bare, store=store, use_logins=True)
        assert await request_with_auth(mine, server.mcp) == 200
        authority.valid.clear()
        assert await request_with_auth(mine, server.mcp) == 200
        assert await request_with_auth(build_auth_provider(bare, store=store), server.mcp) == 401
        assert [each.form["grant_type"] for each in authority.requests] == ["authorization_code", "refresh_token"]


@async_test
async def test_a_login_works_for_this_run_where_nothing_can_be_stored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with world() as (authority, server):
        auth = provider(server, FileTokenStore(tmp_path / "file" / "tokens"))
        assert [await request_with_auth(auth, server.mcp) for _ in range(2)] == [200, 200]
        assert len(authority.authorizations) == 1


@async_test
async def test_a_pinned_issuer_is_used_also_when_the_server_publishes_nothing() -> None:
    async with world() as (authority, server):
        server.publishes = False
        pinned: dict[str, Any] = {"client_id": "me", "client_secret": "s3cr3t", "issuer": authority.issuer_url}
        assert await request_with_auth(provider(server, MemoryTokens(), **pinned), server.mcp) == 200
        assert authority.requests[0].basic == ("me", "s3cr3t")


@async_test
async def test_a_login_page_with_a_query_of_its_own_keeps_it() -> None:
    async with world() as (authority, server):
        authority.metadata = {"authorization_endpoint": f"{authority.url}/authorize?tenant=blue"}
        assert await request_with_auth(provider(server, MemoryTokens()), server.mcp) == 200
        [login] = authority.authorizations
        assert (login["tenant"], login["response_type"]) == ("blue", "code")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"registration_endpoint": None}, "registers no clients. Give 'client_id'"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not know PKCE with S256"),
        ({"authorization_endpoint": None}, "has no login page"),
        ({"authorization_endpoint": "http://login.example/"}, "the login page http://login.example.* is refused"),
        ({"issuer": "https://other.example"}, "metadata are of the issuer 'https://other.example'"),
        ({"token_endpoint": None}, "name no token endpoint"),
    ],
)
@async_test
async def test_an_authorization_server_that_cannot_be_used_is_named_before_the_login(
    metadata: dict[str, Any], reason: str
) -> None:
    async with world(metadata=metadata) as (authority, server):
        with pytest.raises(MCPConnectionError, match=reason):
            await request_with_auth(provider(server, MemoryTokens()), server.mcp)
        assert authority.authorizations == []
        assert authority.requests == []


@async_test
async def test_an_answer_that_comes_from_another_issuer_is_not_exchanged() -> None:
    async def mixed_up(url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        back = {"code": "the-code", "state": query["state"][0], "iss": "https://other.example"}
        async with aiohttp.ClientSession() as session, session.get(query["redirect_uri"][0], params=back):
            pass

    async with world() as (authority, server):
        with pytest.raises(MCPConnectionError, match="does not come from the issuer"):
            await request_with_auth(provider(server, MemoryTokens(), show=mixed_up), server.mcp)
        assert authority.requests == []


@async_test
async def test_a_registration_is_not_shown_to_another_authorization_server() -> None:
    store = MemoryTokens()
    async with run_auth_server() as first, run_auth_server() as second, run_resource_server(first) as server:
        await request_with_auth(provider(server, store), server.mcp)
        server.auth, first.valid = second, set()
        assert await request_with_auth(provider(server, store), server.mcp) == 200
        assert len(second.registrations) == 1
        assert second.requests[0].form["grant_type"] == "authorization_code"


PUBLIC = "https://8.8.8.8/mcp"  # an address that no test dials: only what it names is


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
@async_test
async def test_a_public_server_does_not_lead_a_login_to_a_private_address(host: str) -> None:
    """Its resource metadata, what that names, and what is named there: all are requested under the same IP policy."""
    requested_paths: list[str] = []

    async def private(request: web.Request) -> web.Response:
        requested_paths.append(request.path)
        return web.json_response({})

    async with serve_site(private) as origin:
        named = f"http://{host}:{urlsplit(origin).port}/latest/meta-data"
        refusal = AuthRefusal(status=401, url=PUBLIC, www_authenticate=f'Bearer resource_metadata="{named}"')
        login = build_login_provider(tool(PUBLIC), show=follow_login, store=MemoryTokens())
        door = AuthHTTPClient("tickets", server_url=PUBLIC)
        with pytest.raises(MCPConnectionError, match="not a public one"):
            await door("GET", named)
        with pytest.raises(MCPConnectionError):
            await login.refused(refusal)
        assert not requested_paths


@pytest.mark.parametrize(
    "settings",
    [
        {"server_url": "http://127.0.0.2/mcp"},
        {"server_url": PUBLIC, "issuer": "http://127.0.0.1/tenant"},
        {"server_url": PUBLIC, "allow_insecure_hosts": ["127.0.0.1"]},
        {},
    ],
    ids=["private server", "pinned issuer", "allowed host", "operator names all"],
)
@async_test
async def test_a_private_address_is_dialled_when_the_operator_or_a_private_server_names_it(settings: Any) -> None:
    async def private(_: web.Request) -> web.Response:
        return web.json_response({})

    async with serve_site(private) as origin:
        assert (await AuthHTTPClient("tickets", **settings)("GET", f"{origin}/metadata")).status == 200
