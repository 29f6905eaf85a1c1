"""MCP servers and their tokens behind a proxy: one that refuses is named, and its password goes to no other host."""

from __future__ import annotations

import base64
import traceback

import pytest
from async_tests import async_test
from providers.raw_server import Peer, serve_raw

from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.auth.factory import build_auth_provider
from holodeck.tools.mcp.factory import create_mcp_plugin

DEFINITION = {"name": "tickets", "description": "d", "url": "https://mcp.example/mcp"}
LOGIN = {
    "type": "oauth_client_credentials",
    "client_id": "us",
    "client_secret": "s",
    "token_url": "https://id.example/t",
}


async def refusing(peer: Peer) -> None:
    await peer.read_head()
    await peer.send(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
    await peer.wait_closed()


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("transport", ["http", "sse"])
@async_test
async def test_a_proxy_that_refuses_is_named_without_its_password(env: pytest.MonkeyPatch, transport: str) -> None:
    async with serve_raw(refusing) as proxy:
        env.setenv("HTTPS_PROXY", f"http://us%40er:hidden@127.0.0.1:{proxy.port}")
        plugin = create_mcp_plugin(MCPTool.model_validate({**DEFINITION, "transport": transport}))
        result = await plugin.call_tool("add", a=1, b=2)
        await plugin.disconnect()
        assert f"the proxy at 127.0.0.1:{proxy.port} refused (407 Proxy Authentication Required)" in str(result.error)
        assert "hidden" not in str(result.error)
        sent = proxy.peers[0].header("proxy-authorization") or ""
        assert base64.b64decode(sent.removeprefix("Basic ")).decode() == "us@er:hidden"


@async_test
async def test_a_proxy_that_is_not_there_is_named(env: pytest.MonkeyPatch) -> None:
    async with serve_raw(refusing) as proxy:
        port = proxy.port
    env.setenv("HTTPS_PROXY", f"user:hidden@127.0.0.1:{port}")
    plugin = create_mcp_plugin(MCPTool.model_validate({**DEFINITION, "transport": "http"}))
    result = await plugin.call_tool("add", a=1, b=2)
    await plugin.disconnect()
    assert f"the proxy at 127.0.0.1:{port} cannot be reached: Connection refused" in str(result.error)
    assert "hidden" not in str(result.error)


@async_test
async def test_the_password_of_a_proxy_is_in_no_error_when_no_token_can_be_fetched(env: pytest.MonkeyPatch) -> None:
    async with serve_raw(refusing) as proxy:
        env.setenv("HTTPS_PROXY", f"http://user:hidden@127.0.0.1:{proxy.port}")
        auth = build_auth_provider(MCPTool.model_validate({**DEFINITION, "transport": "http", "auth": LOGIN}))
        with pytest.raises(Exception, match="407") as found:
            await auth.headers()
        assert "hidden" not in "".join(traceback.format_exception(found.value))
