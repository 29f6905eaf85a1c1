"""Servers over every transport and in both eras: the replay has the same events, and the server is gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject
from async_tests import async_test
from cassettes.recorded_agent import RecordedAgent

from holodeck.runtime import People
from holodeck.testing import Era, FaultyMCPServer, Transport, call, say

TRANSPORTS: tuple[Transport, ...] = ("http", "sse", "websocket")
ERAS = [
    (transport, era)
    for transport in TRANSPORTS
    for era in ("legacy", "modern")
    if (transport, era) != ("sse", "modern")
]


def tool_lines(transport: str, url: str, more: str = "") -> str:
    return f'  - {{type: mcp, name: calc, description: d, transport: {transport}, url: "{url}"{more}}}'


@pytest.mark.parametrize(("transport", "era"), ERAS)
@async_test(60)
async def test_a_replay_over_a_network_transport_has_the_same_events(
    transport: Transport, era: Era, tmp_path: Path
) -> None:
    async with FaultyMCPServer(era=era, transport=transport) as server:
        agent = RecordedAgent(tmp_path, tool_lines(transport, server.url))
        turns = ([call("add", a=1, b=2), call("fail", message="no"), call("many_blocks")], say("It is 3."))
        recorded = await agent.record(*turns)
    assert "It is 3." in recorded[-1]
    assert await agent.replay() == recorded


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test(60)
async def test_a_replay_of_a_process_starts_none(era: Era, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = AgentProject(tmp_path)
    agent = RecordedAgent(project.path, project.npx_server("calc", era=era))
    monkeypatch.setenv("PATH", project.env["PATH"])
    recorded = await agent.record(call("add", a=1, b=2), say("It is 3."))
    started = project.pids()
    assert '"3' in "".join(recorded)
    assert await agent.replay() == recorded
    assert project.pids() == started


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test(60)
async def test_progress_and_log_messages_come_in_their_place(era: Era, tmp_path: Path) -> None:
    async with FaultyMCPServer(era=era) as server:
        agent = RecordedAgent(tmp_path, tool_lines("http", server.url))
        recorded = await agent.record(call("slow", seconds=0, steps=3), say("Done."))
    progressed = [line for line in recorded if '"tool.progressed"' in line]
    assert len(progressed) >= 3
    assert await agent.replay() == recorded


async def answer_name(_server: str, _params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["http", "websocket"])
@async_test(60)
async def test_questions_of_a_server_are_asked_again_in_their_place(
    era: Era, transport: Transport, tmp_path: Path
) -> None:
    more = ", sampling: allow, roots: [data]"
    async with FaultyMCPServer(era=era, transport=transport) as server:
        agent = RecordedAgent(tmp_path, tool_lines(transport, server.url, more), people=People(elicit=answer_name))
        turns = (call("ask_sampling"), say("Four."), call("ask_elicitation"), call("ask_roots"), say("Thanks."))
        recorded = await agent.record(*turns)
    outputs = "".join(recorded)
    for words in ("Four.", "Ada", "Thanks."):
        assert words in outputs
    assert str(tmp_path) not in agent.text
    assert await agent.replay() == recorded


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test(60)
async def test_a_list_that_changes_during_a_run_changes_in_the_replay(era: Era, tmp_path: Path) -> None:
    async with FaultyMCPServer(era=era) as server:
        agent = RecordedAgent(tmp_path, tool_lines("http", server.url))
        recorded = await agent.record(call("grow"), call("add", a=1, b=2), say("Done."))
    assert await agent.replay() == recorded


@pytest.mark.parametrize("mode", ["dies-mid-call", "http-500", "protocol-error", "not-a-result", "error-result"])
@async_test(60)
async def test_failures_of_a_server_are_replayed(mode: str, tmp_path: Path) -> None:
    async with FaultyMCPServer(mode, on="tools/call", times=1) as server:
        agent = RecordedAgent(tmp_path, tool_lines("http", server.url))
        recorded = await agent.record(call("add", a=1, b=2), call("add", a=1, b=2), say("Done."))
    assert '"is_error": true' in "".join(recorded)
    assert await agent.replay() == recorded


@async_test(60)
async def test_a_process_that_dies_dies_again_in_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = AgentProject(tmp_path)
    agent = RecordedAgent(project.path, project.npx_server("calc", "dies-mid-call", times=1))
    monkeypatch.setenv("PATH", project.env["PATH"])
    recorded = await agent.record(call("add", a=1, b=2), call("add", a=1, b=2), say("It is 3."))
    assert "outcome" in "".join(recorded)
    assert await agent.replay() == recorded


@async_test(60)
async def test_a_server_that_cannot_be_started_is_missing_in_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = AgentProject(tmp_path)
    agent = RecordedAgent(project.path, project.npx_server("calc", "dies-at-start"))
    monkeypatch.setenv("PATH", project.env["PATH"])
    recorded = await agent.record(say("I have no tools."))
    assert '"missing_servers": [{"name": "calc"' in recorded[-1]
    assert await agent.replay() == recorded


@async_test(60)
async def test_a_task_is_polled_as_often_as_it_was(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        agent = RecordedAgent(tmp_path, tool_lines("http", server.url))
        recorded = await agent.record(call("task", polls=2, text="found"), say("Done."))
    assert "found" in "".join(recorded)
    assert await agent.replay() == recorded
