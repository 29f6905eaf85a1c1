"""Every field of the contract's network transports takes effect, from the agent file to what the server receives."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from async_tests import async_test
from real.project import RealProject

from holodeck.lib.errors import MCPTimeoutError
from holodeck.testing import ABANDONED, Fault, FaultyMCPServer

SSE = """
tools:
  - name: cloud_mcp
    description: "Cloud-hosted MCP server"
    type: mcp
    server: "cloud-mcp-service"
    transport: sse
    url: "{url}"
    headers:
      Authorization: "Bearer ${API_TOKEN}"
      X-Custom-Header: "value"
    timeout: 30
    sse_read_timeout: 120
    request_timeout: 60
"""
WEBSOCKET = """
tools:
  - name: realtime_mcp
    description: "Real-time MCP server"
    type: mcp
    server: "realtime-service"
    transport: websocket
    url: "{url}"
    headers:
      Authorization: "Bearer ${API_TOKEN}"
    timeout: 30
    request_timeout: 60
"""
HTTP = """
tools:
  - name: http_mcp
    description: "HTTP MCP server with streaming"
    type: mcp
    server: "http-mcp-service"
    transport: http
    url: "{url}"
    headers:
      Authorization: "Bearer ${API_TOKEN}"
    timeout: 30
    sse_read_timeout: 120
    terminate_on_close: true
    request_timeout: 60
"""
SECRET = {"API_TOKEN": "only-from-the-environment"}
BEARER = "Bearer only-from-the-environment"


@contextmanager
def no_process_accepts(*, is_full: bool) -> Iterator[int]:
    """A port that listens and never talks. A full one does not even let a connection in."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(2 if is_full else 0)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        try:
            yield port
        finally:
            for one in waiting:
                one.close()


def written(text: str, url: str, **changed: object) -> str:
    """The definition with its address, and some of its fields changed."""
    for name, value in changed.items():
        text = re.sub(rf"(?m)^    {name}: .*$", f"    {name}: {value}", text)
    return text.replace("{url}", url)


def sent(remote: FaultyMCPServer, header: str) -> set[str | None]:
    """What the header said, over all that was sent."""
    return {one.headers.get(header) for one in remote.requests if one.method != ABANDONED}


class TestSSE:
    @pytest.mark.proves("000:US6-1", "000:US6-2", "000:FR-005", "000:SC-005", "003:TRANSPORT-2", "004:US3-1")
    @async_test
    async def test_its_headers_are_on_every_request(self, project: RealProject) -> None:
        async with FaultyMCPServer(transport="sse") as remote:
            async with project.open_server(written(SSE, remote.url), SECRET) as server:
                assert (await server.call_tool("echo", text="hello")).text == "hello"
            assert {"GET", "tools/call"} <= {one.method for one in remote.requests}
            assert sent(remote, "authorization") == {BEARER}
            assert sent(remote, "x-custom-header") == {"value"}

    @pytest.mark.proves("000:US6-3", "000:FR-005", "003:TRANSPORT-2")
    @async_test
    async def test_its_timeouts_bound_the_connection_and_a_silent_stream(self, project: RealProject) -> None:
        async with (
            FaultyMCPServer(Fault.NO_ENDPOINT, transport="sse") as remote,
            project.open_server(written(SSE, remote.url, timeout=0.3), SECRET) as server,
        ):
            with pytest.raises(MCPTimeoutError, match=r"within 0\.3 s"):
                await server.connect()
        async with (
            FaultyMCPServer(transport="sse") as remote,
            project.open_server(written(SSE, remote.url, sse_read_timeout=1.5), SECRET) as server,
        ):
            await server.connect()
            silent = await server.call_tool("slow", seconds=30, steps=1)
            assert "silent for 1.5 s ('sse_read_timeout')" in str(silent.error)

    @pytest.mark.proves("000:US5-4", "000:FR-012", "003:TRANSPORT-2")
    @async_test
    async def test_its_request_timeout_ends_a_call(self, project: RealProject) -> None:
        async with (
            FaultyMCPServer(Fault.HANGS, transport="sse", on="tools/call") as remote,
            project.open_server(written(SSE, remote.url, request_timeout=1), SECRET) as server,
        ):
            assert "no answer within 1 s" in str((await server.call_tool("echo", text="x")).error)


class TestWebSocket:
    @pytest.mark.proves("000:US7-1", "000:US7-2", "000:FR-006", "003:TRANSPORT-3")
    @async_test
    async def test_all_calls_go_over_the_one_connection(self, project: RealProject) -> None:
        async with FaultyMCPServer(transport="websocket", era="modern") as remote:
            async with project.open_server(written(WEBSOCKET, remote.url), SECRET) as server:
                for number in range(5):
                    assert (await server.call_tool("echo", text=f"call {number}")).text == f"call {number}"
            assert len(remote.calls("echo")) == 5
            assert [one.method for one in remote.requests].count("server/discover") == 1
            assert sent(remote, "authorization") == {BEARER}

    @pytest.mark.proves("000:US5-4", "000:FR-006", "000:FR-012", "003:TRANSPORT-3")
    @async_test
    async def test_its_timeouts_bound_the_connection_and_a_call(self, project: RealProject) -> None:
        with no_process_accepts(is_full=False) as port:
            async with project.open_server(written(WEBSOCKET, f"ws://127.0.0.1:{port}", timeout=0.3), SECRET) as server:
                with pytest.raises(MCPTimeoutError):
                    await server.connect()
        async with (
            FaultyMCPServer(Fault.HANGS, transport="websocket", on="tools/call") as remote,
            project.open_server(written(WEBSOCKET, remote.url, request_timeout=1), SECRET) as server,
        ):
            assert "no answer within 1 s" in str((await server.call_tool("echo", text="x")).error)


class TestHTTP:
    @pytest.mark.parametrize("era", ["legacy", "modern"])
    @pytest.mark.proves("000:US8-1", "000:US6-2", "000:FR-007", "000:SC-005", "003:TRANSPORT-4", "004:FR-012")
    @async_test
    async def test_its_headers_are_on_every_request(self, project: RealProject, era: str) -> None:
        async with FaultyMCPServer(era="modern" if era == "modern" else "legacy", sse=True) as remote:
            async with project.open_server(written(HTTP, remote.url), SECRET) as server:
                assert (await server.call_tool("echo", text="hello")).text == "hello"
            assert sent(remote, "authorization") == {BEARER}

    @pytest.mark.parametrize("terminate", ["true", "false"])
    @pytest.mark.proves("000:US8-2", "000:FR-007", "003:TRANSPORT-4")
    @async_test
    async def test_the_session_is_ended_at_the_server_if_the_file_says_so(
        self, project: RealProject, terminate: str
    ) -> None:
        async with FaultyMCPServer() as remote:
            async with project.open_server(written(HTTP, remote.url, terminate_on_close=terminate), SECRET) as server:
                assert (await server.call_tool("echo", text="hello")).success
                session = remote.calls("echo")[0].headers["mcp-session-id"]
            ended = [one.headers["mcp-session-id"] for one in remote.requests if one.method == "DELETE"]
            assert ended == ([session] if terminate == "true" else [])

    @pytest.mark.proves("000:US5-4", "000:FR-007", "000:FR-012", "003:TRANSPORT-4")
    @async_test
    async def test_its_timeouts_bound_the_connection_a_silent_stream_and_a_call(self, project: RealProject) -> None:
        with no_process_accepts(is_full=True) as port:
            async with project.open_server(
                written(HTTP, f"http://127.0.0.1:{port}/mcp", timeout=0.3), SECRET
            ) as server:
                with pytest.raises(MCPTimeoutError, match=r"0\.3 s"):
                    await server.connect()
        async with (
            FaultyMCPServer(sse=True) as remote,
            project.open_server(written(HTTP, remote.url, sse_read_timeout=1.5), SECRET) as server,
        ):
            await server.connect()
            silent = await server.call_tool("slow", seconds=30, steps=1)
            assert "silent for 1.5 s ('sse_read_timeout')" in str(silent.error)
        async with (
            FaultyMCPServer(Fault.HANGS, on="tools/call") as remote,
            project.open_server(written(HTTP, remote.url, request_timeout=1), SECRET) as server,
        ):
            assert "no answer within 1 s" in str((await server.call_tool("echo", text="x")).error)
