"""MCP proxies before the same server: `holodeck serve`, `holodeck mcp serve`, the official SDK's parts and FastMCP's.

Each is a process of its own. Over HTTP the server behind is at a URL, over stdio each proxy starts its own, whose CPU
does not count.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench import fastmcp_proxy
from bench.bare_client import BareClient, open_bare_http, open_bare_pipes
from bench.gateway_targets import KEY, run_holodeck
from bench.processes import ROOT, cpu_seconds, module_command, run_server
from holodeck.testing import FaultyMCPServer, stand_in

Front = Literal["http, legacy", "http, modern", "stdio"]
"""How the client reaches a proxy: the transport, and the era of the protocol."""
FRONTS: tuple[Front, ...] = ("http, legacy", "http, modern", "stdio")
OURS, SDK, FASTMCP, ALONE = "holodeck", "sdk", "fastmcp", "server alone"
_NO_MODEL = "http://127.0.0.1:9"


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A proxy that runs, and a client that is connected to it."""

    client: BareClient
    pid: int
    server_pids: Sequence[int] = ()
    """Of the server behind, if the proxy has started it."""

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid, without=self.server_pids)


@asynccontextmanager
async def run_proxies(front: Front, mode: str, *, has_fastmcp: bool) -> AsyncIterator[dict[str, Proxy]]:
    """All of them, by name; the server alone is one of them."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        start = _start_over_stdio if front == "stdio" else _start_over_http
        yield await start(stack, folder, mode, "modern" if front == "http, modern" else "legacy", has_fastmcp)


def _peer_commands(has_fastmcp: bool) -> dict[str, list[str]]:
    peers = {SDK: module_command("bench.sdk_proxy")}
    if has_fastmcp:
        peers[FASTMCP] = [str(fastmcp_proxy.install()), "-m", "bench.fastmcp_proxy"]
    return peers


async def _start_over_http(
    stack: AsyncExitStack, folder: Path, mode: str, era: Literal["legacy", "modern"], has_fastmcp: bool
) -> dict[str, Proxy]:
    pid, server = stack.enter_context(run_server(FaultyMCPServer.command(mode, transport="http")))
    ours = stack.enter_context(run_holodeck(folder, _NO_MODEL, server))
    urls = {OURS: (ours.pid, f"{ours.url}/mcp")}
    for name, command in _peer_commands(has_fastmcp).items():
        urls[name] = stack.enter_context(run_server([*command, "http", server]))
    proxies: dict[str, Proxy] = {}
    for name, (proxy_pid, url) in urls.items():
        client = await stack.enter_async_context(open_bare_http(url, era=era, key=KEY))
        proxies[name] = Proxy(client=client, pid=proxy_pid)
    # The server itself knows one era; what it takes to answer is the same.
    proxies[ALONE] = Proxy(client=await stack.enter_async_context(open_bare_http(server)), pid=pid)
    return proxies


async def _start_over_stdio(
    stack: AsyncExitStack, folder: Path, mode: str, era: Literal["legacy", "modern"], has_fastmcp: bool
) -> dict[str, Proxy]:
    commands = {
        OURS: module_command("holodeck", "mcp", "serve", str(folder / OURS / "gateway.yaml")),
        **{name: [*command, "stdio"] for name, command in _peer_commands(has_fastmcp).items()},
        ALONE: [],
    }
    proxies: dict[str, Proxy] = {}
    for name, command in commands.items():
        pid_file = folder / name / "pids"
        server = FaultyMCPServer.command(mode, pid_file=pid_file)
        path = stand_in(folder / name, server)
        if name == OURS:
            _write_file(folder / name / "gateway.yaml", path)
        behind = [] if name == OURS else [str(folder / name / "npx")]
        environ = {**os.environ, "HOLODECK_TRUST": "all", "PYTHONPATH": str(ROOT)}
        connecting = open_bare_pipes([*command, *behind], environ=environ)
        client = await stack.enter_async_context(connecting)
        await client.list_tools()
        pids = [int(line) for line in pid_file.read_text().split()]
        proxies[name] = Proxy(client=client, pid=client.pid, server_pids=[] if name == ALONE else pids)
    return proxies


def _write_file(path: Path, environ: Mapping[str, str]) -> None:
    server = {
        "name": "bench",
        "type": "mcp",
        "description": "the tools",
        "command": "npx",
        "args": ["-y", "bench"],
        "env": environ,
        "allow_unsafe_args": True,
    }
    model = {"name": "demo", "model": {"provider": "openai_compatible", "name": "none", "endpoint": _NO_MODEL}}
    path.write_text(json.dumps({"allow_stdio": True, "models": [model], "mcp_servers": [server]}))
