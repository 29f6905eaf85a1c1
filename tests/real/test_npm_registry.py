"""The first start on a machine: `npx -y` fetches the package from the registry, and we wait for it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from aiohttp import web
from async_tests import async_test
from loopback_site import serve_site
from real.project import START_SECONDS, RealProject

MEMORY = """
tools:
  - name: memory
    description: Remembers
    type: mcp
    command: npx
    args: ["-y", "@modelcontextprotocol/server-memory@2026.8.31"]
    env:
      MEMORY_FILE_PATH: "${workspaceFolder}/notes.jsonl"
"""


@pytest.mark.long
@pytest.mark.proves("000:US1-1", "000:US1-2")
@async_test(START_SECONDS)
async def test_a_package_that_is_not_here_is_fetched_and_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first run of all downloads; later ones find the package where npx itself keeps it.
    monkeypatch.setenv("npm_config_prefix", str(tmp_path / "nothing-installed"))
    project = RealProject(tmp_path)
    async with project.open_server(MEMORY) as server:
        assert "create_entities" in {info.name for info in await server.list_tools()}
        assert (await server.call_tool("read_graph")).success


TINY = """
tools:
  - {name: tiny, description: Says hello, type: mcp, command: npx, args: ["-y", tiny-server]}
"""
TINY_SERVER = """#!/usr/bin/env node
const answers = {
  initialize: {protocolVersion: "2025-06-18", capabilities: {tools: {}}, serverInfo: {name: "tiny", version: "1"}},
  "tools/list": {tools: [{name: "hello", inputSchema: {type: "object"}}]},
};
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method} = JSON.parse(line);
  const answer = answers[method] ? {result: answers[method]} : {error: {code: -32601, message: "no such method"}};
  if (id !== undefined) console.log(JSON.stringify({jsonrpc: "2.0", id, ...answer}));
});
"""


def pack(files: dict[str, str]) -> bytes:
    """A package as npm stores it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


@async_test(START_SECONDS)
async def test_a_package_that_npx_has_fetched_starts_without_a_question_to_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = {"name": "tiny-server", "version": "1.0.0", "bin": "server.js"}
    archive = pack({"package.json": json.dumps(manifest), "server.js": TINY_SERVER})
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(archive).digest()).decode()}"
    requested: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requested.append(request.path)
        if request.path.endswith(".tgz"):
            return web.Response(body=archive)
        tarball = {"tarball": f"{request.url.origin()}/tiny-server.tgz", "integrity": integrity}
        versions = {"1.0.0": {**manifest, "dist": tarball}}
        document = {"name": "tiny-server", "dist-tags": {"latest": "1.0.0"}, "versions": versions}
        # Stale at once, as a real answer of the registry is after some minutes.
        return web.json_response(document, headers={"cache-control": "max-age=0"})

    async with serve_site(answer) as registry:
        monkeypatch.delenv("npm_config_prefer_offline")
        monkeypatch.setenv("npm_config_prefix", str(tmp_path / "nothing-installed"))
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
        monkeypatch.setenv("npm_config_registry", registry)
        project = RealProject(tmp_path)
        for start in ("first", "second"):
            async with project.open_server(TINY) as server:
                assert [info.name for info in await server.list_tools()] == ["hello"]
            assert bool(requested) is (start == "first")
            requested.clear()
