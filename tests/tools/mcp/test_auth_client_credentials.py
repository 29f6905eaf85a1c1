"""OAuth client credentials, against a real authorization server that checks what it received."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from async_tests import async_test
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from loopback_site import serve_site
from patience import patience
from tools.mcp.auth_server import AuthServer, run_auth_server
from tools.mcp.dpop_servers import BoundResource, issue_bound
from tools.mcp.resource_server import request_with_auth, run_resource_server

from holodeck.lib.clock import wall_clock
from holodeck.lib.errors import MCPConfigError, MCPConnectionError
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.auth.auth_http import MAX_AUTH_BODY_BYTES
from holodeck.tools.mcp.auth.factory import build_auth_provider
from holodeck.tools.mcp.auth.provider import AuthRefusal, MCPAuthProvider

SECRET = "s3cr3t/with+signs&more"


def tool(auth: Mapping[str, Any], **more: Any) -> MCPTool:
    url = "https://mcp.example/mcp"
    definition = {"name": "tickets", "transport": "http", "url": url, "description": "d", "server": "s"}
    settings = {"type": "oauth_client_credentials", "client_id": "holodeck", **auth}
    return MCPTool.model_validate({**definition, "auth": settings, **more})


def provider(server: AuthServer, *, clock: Callable[[], float] = wall_clock, **auth: Any) -> MCPAuthProvider:
    return build_auth_provider(tool({"token_url": server.token_url, "client_secret": SECRET, **auth}), clock=clock)


def unauthorized(sent: Mapping[str, str], *, attempt: int = 1, status: int = 401) -> AuthRefusal:
    return AuthRefusal(status=status, url="https://mcp.example/mcp", sent=sent, attempt=attempt)


@pytest.mark.proves("004:US5-1", "004:FR-013", "004:FR-011")
@async_test
async def test_a_token_is_fetched_with_the_grant_the_file_describes_and_then_reused() -> None:
    async with run_auth_server() as server:
        auth = provider(server, scopes=["read", "write"], resource="https://mcp.example/mcp")
        assert await auth.headers() == {"Authorization": "Bearer token-1"}
        assert await auth.headers() == {"Authorization": "Bearer token-1"}
        [request] = server.requests
        assert request.basic == ("holodeck", SECRET)
        assert request.form == {
            "grant_type": "client_credentials",
            "scope": "read write",
            "resource": "https://mcp.example/mcp",
        }


@async_test
async def test_client_secret_post_sends_the_secret_in_the_form_only() -> None:
    async with run_auth_server() as server:
        await provider(server, auth_method="client_secret_post").headers()
        [request] = server.requests
        assert request.basic is None
        assert request.form["client_id"] == "holodeck"
        assert request.form["client_secret"] == SECRET


@async_test
async def test_the_metadata_of_a_pinned_issuer_names_endpoint_and_method() -> None:
    path = "/.well-known/oauth-authorization-server/tenant"
    methods = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    async with run_auth_server(path="/tenant", metadata_paths=(path,), metadata=methods) as server:
        auth = build_auth_provider(tool({"issuer": server.issuer_url, "client_secret": SECRET}))
        assert await auth.headers() == {"Authorization": "Bearer token-1"}
        assert server.paths == [path, "/tenant/token"]
        assert server.requests[0].form["client_secret"] == SECRET


@async_test
async def test_an_issuer_that_only_speaks_openid_connect_is_found() -> None:
    path = "/tenant/.well-known/openid-configuration"
    async with run_auth_server(path="/tenant", metadata_paths=(path,)) as server:
        auth = build_auth_provider(tool({"issuer": server.issuer_url, "client_secret": SECRET}))
        assert await auth.headers() == {"Authorization": "Bearer token-1"}
        assert server.requests[0].basic == ("holodeck", SECRET)


@async_test
async def test_metadata_that_claims_another_issuer_gets_no_secret() -> None:
    async with run_auth_server(issuer="https://attacker.example") as server:
        auth = build_auth_provider(tool({"issuer": server.issuer_url, "client_secret": SECRET}))
        with pytest.raises(MCPConnectionError, match=r"'tickets'.*attacker\.example.*not of"):
            await auth.headers()
        assert server.requests == []


@pytest.mark.parametrize("kind", ["ES256", "RS256"])
@async_test
async def test_private_key_jwt_signs_for_the_issuer_and_sends_no_secret(tmp_path: Path, kind: str) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = ec.generate_private_key(ec.SECP256R1()) if kind == "ES256" else rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)

    async with run_auth_server() as server:
        settings = {"issuer": server.issuer_url, "private_key_file": "key.pem", "signing_algorithm": kind}
        await build_auth_provider(tool(settings), base_dir=tmp_path).headers()
        form = server.requests[0].form
        assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        claims = jwt.decode(form["client_assertion"], key.public_key(), [kind], audience=server.issuer_url)
        assert (claims["iss"], claims["sub"]) == ("holodeck", "holodeck")
        assert "client_secret" not in form


@async_test
async def test_a_key_that_does_not_fit_its_algorithm_is_an_error_without_the_key(tmp_path: Path) -> None:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "key.pem").write_bytes(pem)

    async with run_auth_server() as server:
        settings = {"token_url": server.token_url, "private_key_file": "key.pem", "signing_algorithm": "RS256"}
        with pytest.raises(MCPConnectionError, match="cannot sign with RS256") as caught:
            await build_auth_provider(tool(settings), base_dir=tmp_path).headers()
        assert pem.decode().splitlines()[1] not in str(caught.value)


@pytest.mark.proves("D-30")
@async_test
async def test_fifty_callers_at_once_cause_one_token_request() -> None:
    async with run_auth_server() as server:
        auth = provider(server)
        got = await asyncio.gather(*(auth.headers() for _ in range(50)))
        assert got == [{"Authorization": "Bearer token-1"}] * 50
        assert len(server.requests) == 1


@pytest.mark.proves("004:US5-2", "004:FR-014")
@async_test
async def test_a_token_is_renewed_before_it_expires() -> None:
    now = [1000.0]
    async with run_auth_server(expires_in=3600) as server:
        auth = provider(server, clock=lambda: now[0])
        await auth.headers()
        now[0] += 3600 - 61
        assert await auth.headers() == {"Authorization": "Bearer token-1"}
        now[0] += 2
        got = await asyncio.gather(*(auth.headers() for _ in range(50)))
        assert got == [{"Authorization": "Bearer token-2"}] * 50
        assert len(server.requests) == 2


@pytest.mark.parametrize(("expires_in", "fresh_for"), [(20, 14), ("20", 14), (None, 10**9), (-1, 10**9), (0, 10**9)])
@async_test
async def test_a_short_life_and_a_senseless_one_still_give_a_token_that_is_used_more_than_once(
    expires_in: Any, fresh_for: int
) -> None:
    now = [1000.0]
    async with run_auth_server(expires_in=expires_in) as server:
        auth = provider(server, clock=lambda: now[0])
        await auth.headers()
        now[0] += fresh_for
        await auth.headers()
        assert len(server.requests) == 1


@async_test
async def test_a_renewal_that_fails_while_the_token_still_works_fails_no_call() -> None:
    async def down(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        return web.Response(status=503)

    now = [1000.0]
    async with run_auth_server(expires_in=3600) as server:
        auth = provider(server, clock=lambda: now[0])
        await auth.headers()
        server.reply = down
        now[0] += 3600 - 30
        assert await auth.headers() == {"Authorization": "Bearer token-1"}
        now[0] += 31
        with pytest.raises(MCPConnectionError, match="503"):
            await auth.headers()
        server.reply = None
        assert "Bearer token-" in (await auth.headers())["Authorization"]


@pytest.mark.proves("D-30")
@async_test
async def test_a_refused_token_is_renewed_once_for_all_callers_and_a_second_refusal_names_the_server() -> None:
    async with run_auth_server() as server:
        auth = provider(server)
        old = await auth.headers()
        assert await asyncio.gather(*(auth.refused(unauthorized(old)) for _ in range(20))) == [True] * 20
        new = await auth.headers()
        assert (old, new) == ({"Authorization": "Bearer token-1"}, {"Authorization": "Bearer token-2"})
        assert len(server.requests) == 2
        with pytest.raises(MCPConnectionError, match=r"Server 'tickets' \(authorize\).*refused") as caught:
            await auth.refused(unauthorized(new, attempt=2))
        assert caught.value.server == "tickets"
        assert caught.value.details["status"] == 401


@async_test
async def test_a_forbidden_answer_asks_for_no_other_token() -> None:
    async with run_auth_server() as server:
        auth = provider(server)
        sent = await auth.headers()
        assert await auth.refused(unauthorized(sent, status=403)) is False
        assert len(server.requests) == 1


@pytest.mark.proves("D-30")
@async_test
async def test_a_cancelled_caller_does_not_cancel_the_renewal_of_the_others() -> None:
    async with run_auth_server(token_gate=asyncio.Event()) as server:
        auth = provider(server)
        first = asyncio.create_task(_headers(auth))
        await server.arrived.wait()
        others = [asyncio.create_task(_headers(auth)) for _ in range(5)]
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert server.token_gate is not None
        server.token_gate.set()
        assert await asyncio.gather(*others) == [{"Authorization": "Bearer token-1"}] * 5
        assert len(server.requests) == 1


@async_test
async def test_when_every_caller_is_cancelled_the_next_one_still_gets_the_token() -> None:
    async with run_auth_server(token_gate=asyncio.Event()) as server:
        auth = provider(server)
        caller = asyncio.create_task(_headers(auth))
        await server.arrived.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert server.token_gate is not None
        server.token_gate.set()
        assert await auth.headers() == {"Authorization": "Bearer token-1"}


async def _headers(auth: MCPAuthProvider) -> Mapping[str, str]:
    return await auth.headers()


async def _bounded(auth: MCPAuthProvider) -> Mapping[str, str]:
    async with asyncio.timeout(patience(20)):
        return await auth.headers()


def test_a_provider_outlives_the_event_loop_that_first_used_it() -> None:
    async def interrupted() -> MCPAuthProvider:
        async with run_auth_server(token_gate=asyncio.Event()) as server:
            auth = provider(server)
            caller = asyncio.create_task(_headers(auth))
            await server.arrived.wait()
            caller.cancel()
            return auth

    auth = asyncio.run(interrupted())
    with pytest.raises(MCPConnectionError, match="cannot be reached"):
        asyncio.run(_bounded(auth))


async def _garbage(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    return web.Response(text="<html>welcome</html>", content_type="text/html")


async def _no_token(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    return web.json_response({"token": "x"})


async def _poisoned(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    return web.json_response({"access_token": "x\r\nX-Evil: 1"})


async def _strange(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    return server.issue(token_type="mac")


async def _broken(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    return web.Response(status=500, text="oops " + SECRET)


async def _endless(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    return web.Response(body=b" " * (MAX_AUTH_BODY_BYTES + 10))


async def _elsewhere(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect("/stolen")


async def _quoting(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    description = f"no such client: {request.headers.get('Authorization')} {form} {SECRET}\x1b[2J"
    return web.json_response({"error": "invalid_client", "error_description": description}, status=401)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (_garbage, "not a JSON object"),
        (_no_token, "without a usable 'access_token'"),
        (_poisoned, "without a usable 'access_token'"),
        (_strange, "not of the kind 'bearer'"),
        (_broken, "answered 500"),
        (_endless, "more than"),
        (_elsewhere, "answered 307"),
        (_quoting, r"answered 401 \(invalid_client"),
    ],
)
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
@async_test
async def test_an_error_says_what_the_endpoint_did_and_never_the_secret(reply: Any, reason: str, method: str) -> None:
    async with run_auth_server(reply=reply) as server:
        auth = provider(server, auth_method=method)
        with pytest.raises(MCPConnectionError, match=reason) as caught:
            await auth.headers()
        text = f"{caught.value} {caught.value.details} {caught.value!r} {auth!r}"
        assert "Server 'tickets' (authorize)" in text
        assert server.url in text or reason == "more than"
        assert "/token" not in text
        assert SECRET not in text
        assert "s3cr3t" not in text
        assert "\x1b" not in text
        assert "/stolen" not in server.paths


@async_test
async def test_a_token_bound_by_dpop_is_proved_anew_for_every_request() -> None:
    async with run_auth_server(reply=issue_bound) as server, run_resource_server(server) as protected:
        resource = BoundResource(protected)
        auth = provider(server, dpop=True)
        assert [await request_with_auth(auth, protected.mcp) for _ in range(3)] == [200] * 3
        assert (len(set(resource.proofs)), len(resource.keys)) == (3, 1)
        assert len(server.requests) == 2, "once without, once with the nonce"


@async_test
async def test_a_workload_presents_the_assertion_of_its_platform_and_reads_it_again(tmp_path: Path) -> None:
    now = [1_000_000.0]
    assertion = tmp_path / "token"
    assertion.write_text("first.jwt.signature\n")
    async with run_auth_server() as server:
        settings = {"issuer": server.issuer_url, "assertion_file": "token", "scopes": ["read"]}
        auth = build_auth_provider(tool(settings), base_dir=tmp_path, clock=lambda: now[0])
        assert await auth.headers() == {"Authorization": "Bearer token-1"}
        assertion.write_text("second.jwt.signature\n")
        now[0] += 3600
        assert await auth.headers() == {"Authorization": "Bearer token-2"}
        assert [request.form for request in server.requests] == [
            {
                "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "assertion": f"{turn}.jwt.signature",
                "scope": "read",
                "client_id": "holodeck",
            }
            for turn in ("first", "second")
        ]
        assertion.unlink()
        now[0] += 3600
        with pytest.raises(MCPConnectionError, match=r"the assertion .* cannot be read: No such file"):
            await auth.headers()


@async_test
async def test_a_silent_token_endpoint_fails_in_time() -> None:
    from holodeck.tools.mcp.auth.auth_http import AuthHTTPClient
    from holodeck.tools.mcp.auth.client_authentication import PublicClient
    from holodeck.tools.mcp.auth.client_credentials import ClientCredentials, TokenEndpoint
    from holodeck.tools.mcp.auth.token import TokenGrantAuth

    async with run_auth_server(token_gate=asyncio.Event()) as server:
        door = AuthHTTPClient("tickets", timeout=0.05)
        endpoint = TokenEndpoint(server="tickets", http=door, token_url=server.token_url)
        auth = TokenGrantAuth("tickets", ClientCredentials(endpoint, lambda _: PublicClient("holodeck")))
        with pytest.raises(MCPConnectionError, match=r"did not answer within 0\.05 s"):
            await auth.headers()


@async_test
async def test_a_token_endpoint_that_is_down_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    auth = build_auth_provider(tool({"token_url": f"http://127.0.0.1:{port}/token?key=abc", "client_secret": SECRET}))
    with pytest.raises(MCPConnectionError, match="cannot be reached: Connection refused") as caught:
        await auth.headers()
    assert f"http://127.0.0.1:{port} " in str(caught.value)
    assert "abc" not in str(caught.value)


@pytest.mark.proves("D-30")
@async_test
async def test_a_hostile_server_that_names_another_authorization_server_gets_nothing() -> None:
    touched: list[str] = []

    async def thief(request: web.Request) -> web.StreamResponse:
        touched.append(request.path)
        return web.json_response({"access_token": "gotcha"})

    async with run_auth_server() as server, serve_site(thief) as evil:
        auth = provider(server)
        sent = await auth.headers()
        asks = f'Bearer resource_metadata="{evil}/.well-known/oauth-protected-resource"'
        refusal = AuthRefusal(status=401, url=f"{evil}/mcp", www_authenticate=asks, sent=sent)
        assert await auth.refused(refusal)
        assert len(server.requests) == 2
    assert touched == []


@pytest.mark.proves("D-30")
@pytest.mark.parametrize(
    ("auth", "reason"),
    [
        ({"client_secret": SECRET}, "need a pinned 'token_url' or 'issuer'"),
        ({"token_url": "https://as.example/token"}, "'private_key_file' or an 'assertion_file'"),
        (
            {"issuer": "https://as.example", "assertion_file": "f", "auth_method": "client_secret_post"},
            "need a 'client_secret'",
        ),
        ({"token_url": "http://as.example/token", "client_secret": SECRET}, "'token_url' must use https://"),
        ({"issuer": "http://localhost.evil", "client_secret": SECRET}, "'issuer' must use https://"),
        ({"issuer": "https://as.example", "auth_method": "private_key_jwt"}, "needs a 'private_key_file'"),
    ],
)
def test_a_definition_that_cannot_work_or_would_leak_is_refused(auth: dict[str, Any], reason: str) -> None:
    with pytest.raises(MCPConfigError) as caught:
        build_auth_provider(tool(auth))
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.proves("004:SC-003")
@async_test
async def test_headers_of_the_file_are_sent_and_auth_has_the_last_word() -> None:
    async with run_auth_server() as server:
        settings = {"token_url": server.token_url, "client_secret": SECRET}
        headers = {"X-Api-Key": "k", "authorization": "Bearer old"}
        assert await build_auth_provider(tool(settings, headers=headers)).headers() == {
            "X-Api-Key": "k",
            "Authorization": "Bearer token-1",
        }
        plain = tool({}, headers=headers).model_copy(update={"auth": None})
        assert await build_auth_provider(plain).headers() == headers
