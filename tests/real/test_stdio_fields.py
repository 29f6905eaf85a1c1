"""Every field of the contract's stdio transport takes effect in the process of a real server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from async_tests import async_test
from real.project import LEGACY, START_SECONDS, RealProject

from holodeck.testing import FaultyMCPServer, Journal, stand_in

FULL = """
tools:
  - name: everything
    description: "Everything that a server can do"
    type: mcp
    server: "@modelcontextprotocol/server-everything"
    transport: stdio
    command: npx
    args:
      - "-y"
      - "@modelcontextprotocol/server-everything"
    env:
      API_KEY: "${MY_API_KEY}"
    envFile: "server.env"
    encoding: "utf-8"
    config:
      allowed_directories:
        - "${workspaceFolder}/data"
      depth: 3
    request_timeout: 60
    {load}
"""


@pytest.mark.proves("000:US2-1", "000:US2-2", "000:US2-3", "000:FR-004", "000:FR-008", "000:FR-009", "000:FR-011")
@pytest.mark.proves("000:SC-005", "003:TRANSPORT-1", "003:RULE-9", "D-11")
@async_test(START_SECONDS)
async def test_its_variables_and_its_config_reach_the_process_and_ours_do_not(
    project: RealProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "ours-and-nobody-elses")
    project.write("server.env", "DATABASE_URL=postgres://localhost/db\n")
    project.write("data/.keep", "")
    async with project.open_server(FULL.replace("{load}", ""), {"MY_API_KEY": "a-value"}) as server:
        environment = json.loads((await server.call_tool("get-env")).text)
    assert environment["API_KEY"] == "a-value"
    assert environment["DATABASE_URL"] == "postgres://localhost/db"
    assert json.loads(environment["MCP_CONFIG"]) == {
        "allowed_directories": [str(project.path / "data")],
        "depth": 3,
    }
    assert "OPENAI_API_KEY" not in environment
    assert environment["PWD"] == str(project.path)


@pytest.mark.proves("000:US5-4", "000:FR-012", "003:TRANSPORT-1")
@async_test(START_SECONDS)
async def test_its_request_timeout_ends_a_call(project: RealProject) -> None:
    project.write("server.env", "")
    text = FULL.replace("request_timeout: 60", "request_timeout: 1").replace("{load}", "")
    async with project.open_server(text, {"MY_API_KEY": "x"}) as server:
        await server.connect()
        late = await server.call_tool("trigger-long-running-operation", duration=30, steps=1)
        assert "no answer within 1 s" in str(late.error)
        assert (await server.call("echo", {"message": "still here"}, timeout=60)).success


@pytest.mark.proves("000:US4-1", "000:FR-013", "000:FR-014")
@async_test(START_SECONDS)
async def test_tools_and_prompts_are_not_loaded_if_the_file_says_so(project: RealProject) -> None:
    project.write("server.env", "")
    text = FULL.replace("{load}", "load_tools: false\n    load_prompts: false")
    async with project.open_server(text, {"MY_API_KEY": "x"}) as server:
        await server.connect()
        assert server.protocol_version == LEGACY
        assert await server.list_tools() == []
        assert await server.list_prompts() == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.proves("000:US2-2", "000:FR-011", "D-11")
@async_test(START_SECONDS)
async def test_its_config_is_in_the_capabilities_that_it_receives(
    project: RealProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    journal = Journal(tmp_path / "journal")
    command = FaultyMCPServer.command(era="modern" if era == "modern" else "legacy", journal=journal.path)
    monkeypatch.setenv("PATH", stand_in(tmp_path / "bin", command)["PATH"])
    project.write("server.env", "")
    async with project.open_server(FULL.replace("{load}", ""), {"MY_API_KEY": "x"}) as server:
        assert (await server.call_tool("echo", text="x")).success
    answered_requests = [one for one in journal.requests if "id" in one.message]
    if era == "modern":
        said = [one.params["_meta"]["io.modelcontextprotocol/clientCapabilities"] for one in answered_requests]
        assert all(each["extensions"]["dev.holodeck/config"]["depth"] == 3 for each in said)
    else:
        (hello,) = [one for one in answered_requests if one.method == "initialize"]
        assert hello.params["capabilities"]["experimental"]["dev.holodeck/config"]["depth"] == 3


@pytest.mark.proves("000:US2-4", "000:FR-004", "003:TRANSPORT-1")
@async_test(START_SECONDS)
async def test_its_encoding_is_that_of_its_pipes(
    project: RealProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, str(Path(__file__).with_name("latin_server.py"))]
    monkeypatch.setenv("PATH", stand_in(tmp_path / "bin", command)["PATH"])
    project.write("server.env", "")
    text = FULL.replace("{load}", "").replace('encoding: "utf-8"', 'encoding: "latin-1"')
    async with project.open_server(text, {"MY_API_KEY": "x"}) as server:
        assert (await server.call_tool("echo", text="Grüße, señor")).text == "Grüße, señor"
