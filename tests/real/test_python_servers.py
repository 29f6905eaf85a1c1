"""The reference servers in Python, started with `uvx`. They speak the newer, stateless protocol."""

from __future__ import annotations

import json
import subprocess

import pytest
from async_tests import async_test
from real.project import MODERN, START_SECONDS, RealProject
from tools.mcp.local_servers import serve_app

from holodeck.tools.mcp.protocol.versions import ProtocolEra

TIME = """
tools:
  - name: clock
    description: Knows what time it is
    type: mcp
    command: uvx
    args: ["mcp-server-time==2026.10.19", "--local-timezone=Europe/Berlin"]
"""
GIT = """
tools:
  - name: git
    description: Reads and writes a repository
    type: mcp
    command: uvx
    args: ["mcp-server-git==2026.10.19", "--repository", "${workspaceFolder}"]
"""
FETCH = """
tools:
  - name: web
    description: Reads a page
    type: mcp
    command: uvx
    args: ["mcp-server-fetch==2026.10.24", "--ignore-robots-txt", "--allow-private-ips"]
"""


@pytest.mark.proves("D-3", "000:US1-1", "000:US1-2", "000:FR-004")
@async_test(START_SECONDS)
async def test_the_clock_converts_between_time_zones(project: RealProject) -> None:
    async with project.open_server(TIME) as server:
        result = await server.call_tool(
            "convert_time", source_timezone="Asia/Tokyo", time="16:30", target_timezone="Asia/Kolkata"
        )
        assert (server.era, server.protocol_version) == (ProtocolEra.MODERN, MODERN)
        assert "13:00" in result.text
        schema = next(info for info in await server.list_tools() if info.name == "get_current_time").input_schema
        assert "Europe/Berlin" in json.dumps(schema)
        lost = await server.call_tool("get_current_time", timezone="Nowhere/Land")
        assert lost.is_error
        assert "Nowhere/Land" in lost.text


@pytest.mark.long
@pytest.mark.proves("D-3", "000:US1-1")
@async_test(START_SECONDS)
async def test_a_repository_is_read_and_changed(project: RealProject) -> None:
    _git(project, "init", "-q")
    _git(project, "config", "user.email", "ada@example.com")
    _git(project, "config", "user.name", "Ada")
    project.write("notes.txt", "one")
    where = str(project.path)
    async with project.open_server(GIT) as server:
        assert "notes.txt" in (await server.call_tool("git_status", repo_path=where)).text
        assert (await server.call_tool("git_add", repo_path=where, files=["notes.txt"])).success
        assert (await server.call_tool("git_commit", repo_path=where, message="By a tool")).success
        assert "By a tool" in (await server.call_tool("git_log", repo_path=where)).text
        assert server.protocol_version == MODERN
    assert "By a tool" in _git(project, "log", "--oneline")


@pytest.mark.long
@pytest.mark.proves("D-3", "000:US1-1", "000:US4-2")
@async_test(START_SECONDS)
async def test_a_page_is_fetched_as_text_and_as_a_prompt(project: RealProject) -> None:
    async def page(scope: object, receive: object, send: object) -> None:
        await _answer(send, b"<html><body><article><h1>Hello</h1><p>Nobody but us.</p></article></body></html>")

    async with serve_app(page) as url, project.open_server(FETCH) as server:
        fetched = await server.call_tool("fetch", url=url, raw=True)
        assert fetched.success, fetched.error
        assert "Nobody but us." in fetched.text
        assert server.protocol_version == MODERN
        assert [info.name for info in await server.list_prompts()] == ["fetch"]
        assert "Nobody but us." in (await server.get_prompt("fetch", url=url)).text


async def _answer(send: object, body: bytes) -> None:
    assert callable(send)
    headers = [(b"content-type", b"text/html")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _git(project: RealProject, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=project.path, capture_output=True, text=True, check=True)
    return done.stdout
