"""Patterns for tools in a file or a request: one way of matching, and a word about those that match nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, serve_scripted, server_at
from async_tests import async_test
from engine.scripted_agent import offered_tools, open_agent, server_entry, tool_outputs
from gateway.changing_server import ChangingServer
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

SPELLINGS = ["read.file", "read-file", "read.*", "read-*", "files__read-file", "files__read.file", "files__*"]
OTHERS = ["Read.File", "read_file", "read", "other__read-file", "files_*"]


@pytest.mark.parametrize("pattern", SPELLINGS)
@async_test
async def test_an_approval_holds_however_the_tool_is_spelled(tmp_path: Path, pattern: str) -> None:
    model = ScriptedModel(call("read-file"), say("ok"))
    async with ChangingServer("read.file").serve() as files:
        tools = [server_entry("files", files.url, approval={"always": [pattern]})]
        async with open_agent(tmp_path, model, tools) as agent:
            await agent.run("read")
    assert "approval" in tool_outputs(model.requests[1])["call_1"][0]
    assert files.calls == []


@pytest.mark.parametrize("key", ["allowed_tools", "denied_tools", "never"])
@pytest.mark.parametrize("pattern", [*SPELLINGS, *OTHERS])
@async_test
async def test_the_other_lists_know_the_same_spellings(tmp_path: Path, key: str, pattern: str) -> None:
    model = ScriptedModel(call("read-file"), say("ok"))
    rule = {"approval": {"always": ["*"], "never": [pattern]}} if key == "never" else {key: [pattern]}
    async with (
        ChangingServer("read.file").serve() as files,
        open_agent(tmp_path, model, [server_entry("files", files.url, **rule)]) as agent,
    ):
        await agent.run("read")
    is_matched = pattern in SPELLINGS
    assert ("read-file" in offered_tools(model.requests[0])) is (
        True if key == "never" else is_matched is (key[0] == "a")
    )
    assert bool(files.calls) is (is_matched is not (key == "denied_tools"))


@pytest.mark.parametrize("pattern", [*SPELLINGS, *OTHERS])
@async_test
async def test_a_request_chooses_tools_by_the_same_spellings(tmp_path: Path, pattern: str) -> None:
    model = ScriptedModel(call("read-file"), say("ok"), call("read-file"), say("ok"))
    async with ChangingServer("read.file").serve() as files:
        at_files = {"name": "files", "type": "mcp", "description": "d", "transport": "http", "url": files.url}
        async with run_gateway(tmp_path, model, mcp_servers=[at_files]) as running:

            async def ask(**choice: Any) -> list[str]:
                declared = {"type": "mcp", "server_label": "files", **choice}
                body = {"model": MODEL, "input": "Go", "tools": [declared]}
                _, answer = await running.send("POST", "/v1/responses", body)
                return [item["type"] for item in answer["output"]]

            expected = ["mcp_list_tools", "mcp_call", "message"] if pattern in SPELLINGS else None
            await ask(allowed_tools=[pattern], require_approval="never")
            assert len(files.calls) == int(pattern in SPELLINGS)
            assert await ask(require_approval={"never": {"tool_names": [pattern]}}) == (
                expected or ["mcp_list_tools", "mcp_approval_request"]
            )


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("allowed_tools: [ehco]", "allowed_tools"),
        ("denied_tools: [ehco]", "denied_tools"),
        ("idempotent_tools: [ehco]", "idempotent_tools"),
        ("approval: {always: [ehco]}", "approval.always"),
        ("approval: {always: ['*'], never: [ehco]}", "approval.never"),
    ],
)
@async_test(60)
async def test_a_pattern_that_matches_no_tool_is_named_once_with_the_closest(
    tmp_path: Path, rule: str, key: str
) -> None:
    project = AgentProject(tmp_path)
    sentence = f"calc: 'ehco' in '{key}' matches none of its tools. Did you mean 'echo'?"
    async with serve_scripted(say("Hello.")) as model, FaultyMCPServer() as calc:
        project.write(model, server_at("calc", calc.url, more=f", {rule}"))
        for command in (["run", "Hi"], ["mcp", "list"], ["mcp", "doctor"]):
            done = await project.run_holodeck(*command)
            assert (done.stdout + done.stderr).count(sentence) == 1, command


@async_test
async def test_operators_see_patterns_that_match_no_tool_with_the_servers(tmp_path: Path) -> None:
    async with ChangingServer("read.file").serve() as files:
        entry = {"name": "files", "type": "mcp", "description": "d", "transport": "http", "url": files.url}
        servers = [entry | {"allowed_tools": ["read_file", "read.*"]}]
        async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), mcp_servers=servers) as running:
            await running.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
            _, listed = await running.send("GET", "/v1/mcp/servers")
    assert listed["data"][0]["warnings"] == [
        "files: 'read_file' in 'allowed_tools' matches none of its tools. Did you mean 'read.file'?"
    ]


@async_test(60)
async def test_a_tool_that_is_left_out_is_named_once_however_often_the_list_is_fetched(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    async with (
        serve_scripted(call("grow"), say("Hello.")) as model,
        FaultyMCPServer("invalid-tool", era="modern") as calc,
    ):
        project.write(model, server_at("calc", calc.url))
        done = await project.run_holodeck("run", "Hi")
    assert len([one for one in calc.requests if one.method == "tools/list"]) > 1
    assert done.stderr.count("'no_schema' is left out") == 1
