"""MCP over HTTP on the client that models use: connections, cookies, packed answers, proxies, TLS and headers."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from providers.certificates import Authority
from providers.raw_server import Peer, both_loops, serve_raw
from providers.test_model_proxy import Tunnel

from holodeck.lib.secret import Secret
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin

TOOL = {"name": "say", "inputSchema": {"type": "object"}}
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "raw"}}
RESULTS = {
    "server/discover": DISCOVERED,
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "hello"}]},
}
Pack = Callable[[bytes], bytes]


class RawMCPServer:
    """Answers every request of a modern client, with these headers and packed in this way."""

    def __init__(self, *headers: str, pack: Pack = bytes, kind: str = "application/json") -> None:
        self.heads: list[str] = []
        self.headers = headers
        self._pack = pack
        self._kind = kind

    async def __call__(self, peer: Peer) -> None:
        while True:
            message = await peer.read_request()
            self.heads.append(peer.heads[-1])
            answer = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[message["method"]]})
            body = self._pack(answer if self._kind == "application/json" else b"data: " + answer + b"\n\n")
            head = [f"Content-Type: {self._kind}", f"Content-Length: {len(body)}", *self.headers]
            await peer.send("\r\n".join(("HTTP/1.1 200 OK", *head, "", "")).encode() + body)

    def sent(self, name: str) -> list[str | None]:
        """The values of a header in all requests so far."""
        found = []
        for head in self.heads:
            lines = [line.partition(": ") for line in head.split("\r\n")[1:]]
            values = [value for key, _, value in lines if key.lower() == name]
            assert len(values) <= 1
            found.append(values[0] if values else None)
        return found


@asynccontextmanager
async def open_plugin(url: str, **fields: Any) -> AsyncIterator[MCPPlugin]:
    definition = {"name": "raw", "description": "d", "transport": "http", "url": url, "load_prompts": False, **fields}
    async with create_mcp_plugin(MCPTool.model_validate(definition)) as plugin:
        yield plugin


async def say(plugin: MCPPlugin) -> str:
    result = await plugin.call_tool("say")
    if result.error is not None:
        raise result.error
    return result.text


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@both_loops
async def test_calls_one_after_the_other_share_a_connection_and_calls_at_once_do_not() -> None:
    async with serve_raw(RawMCPServer()) as server, open_plugin(server.url) as plugin:
        assert [await say(plugin) for _ in range(5)] == ["hello"] * 5
        assert len(server.peers) == 1
        assert await asyncio.gather(*(say(plugin) for _ in range(20))) == ["hello"] * 20
        assert 1 < len(server.peers) <= 20


@both_loops
async def test_a_connection_that_the_server_closed_while_it_was_idle_costs_no_call() -> None:
    async with serve_raw(RawMCPServer()) as server, open_plugin(server.url) as plugin:
        assert await say(plugin) == "hello"
        server.peers[0].writer.close()
        await server.peers[0].writer.wait_closed()
        assert await say(plugin) == "hello"
        assert len(server.peers) == 2


@both_loops
async def test_cookies_go_back_to_the_server_until_they_expire() -> None:
    raw = RawMCPServer(
        "Set-Cookie: node=7; Path=/; Expires=Wed, 01 Jan 2098 00:00:00 GMT", 'Set-Cookie: b="x"; path=/v1'
    )
    async with serve_raw(raw) as server, open_plugin(server.url) as plugin:
        await say(plugin)
        raw.headers = ("Set-Cookie: node=8; Max-Age=0", "Set-Cookie: c=1; Secure", "Set-Cookie: d=1; Path=/v10")
        await say(plugin)
        await say(plugin)
    *_, before, after = raw.sent("cookie")
    assert raw.sent("cookie")[0] is None
    assert (before, after) == ('node=7; b="x"', 'b="x"')


@both_loops
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)]
)
async def test_a_compressed_answer_is_decoded(encoding: str, pack: Pack, kind: str) -> None:
    raw = RawMCPServer(f"Content-Encoding: {encoding}", pack=pack, kind=kind)
    async with serve_raw(raw) as server, open_plugin(server.url) as plugin:
        assert [await say(plugin), await say(plugin)] == ["hello", "hello"]
        assert len(server.peers) == 1
    assert set(raw.sent("accept-encoding")) == {"gzip, deflate"}


@both_loops
async def test_a_call_goes_through_the_proxy_of_the_environment(env: pytest.MonkeyPatch) -> None:
    raw = RawMCPServer()
    async with serve_raw(raw) as proxy:
        env.setenv("http_proxy", f"http://user:pw@127.0.0.1:{proxy.port}")
        async with open_plugin("http://mcp.example/mcp", allow_insecure_hosts=["mcp.example"]) as plugin:
            assert await say(plugin) == "hello"
    assert all(head.startswith("POST http://mcp.example/mcp HTTP/1.1\r\n") for head in raw.heads)
    assert set(raw.sent("host")) == {"mcp.example"}
    assert set(raw.sent("proxy-authorization")) == {"Basic dXNlcjpwdw=="}


@both_loops
async def test_a_call_behind_tls_goes_through_a_tunnel_of_the_proxy(
    env: pytest.MonkeyPatch, authority: Authority
) -> None:
    raw = RawMCPServer()
    tls = authority.server_context("mcp.example")
    async with serve_raw(raw, tls=tls) as server, serve_raw(Tunnel(server.port)) as proxy:
        env.setenv("HTTPS_PROXY", f"http://user:pw@127.0.0.1:{proxy.port}")
        headers = {"Authorization": Secret("Bearer only-for-the-server")}
        async with open_plugin("https://mcp.example/mcp", headers=headers) as plugin:
            assert [await say(plugin), await say(plugin)] == ["hello", "hello"]
        assert [peer.heads[0].split("\r\n")[0] for peer in proxy.peers] == ["CONNECT mcp.example:443 HTTP/1.1"]
        assert "only-for-the-server" not in proxy.peers[0].heads[0]
    assert set(raw.sent("authorization")) == {"Bearer only-for-the-server"}
    assert set(raw.sent("proxy-authorization")) == {None}


@both_loops
async def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    async with serve_raw(RawMCPServer(), tls=authority.server_context("other.example")) as server:
        async with open_plugin(server.url.replace("http:", "https:")) as plugin:
            result = await plugin.call_tool("say")
        assert f"the certificate of https://127.0.0.1:{server.port} is not trusted" in str(result.error)


@both_loops
async def test_a_header_of_the_file_replaces_ours_in_any_case_of_its_name() -> None:
    raw = RawMCPServer()
    headers = {"user-agent": Secret("mine"), "HOST": Secret("virtual.example"), "X-Name": Secret("jürgen")}
    async with serve_raw(raw) as server, open_plugin(server.url, headers=headers) as plugin:
        assert await say(plugin) == "hello"
    assert set(raw.sent("user-agent")) == {"mine"}
    assert set(raw.sent("host")) == {"virtual.example"}


@both_loops
async def test_a_header_that_would_be_two_is_an_error_and_is_not_sent() -> None:
    raw = RawMCPServer()
    headers = {"X-Key": Secret("a\r\nX-Injected: hidden")}
    async with serve_raw(raw) as server, open_plugin(server.url, headers=headers) as plugin:
        result = await plugin.call_tool("say")
        assert "a header has a line break" in str(result.error)
        assert "hidden" not in str(result.error)
        assert raw.heads == []
