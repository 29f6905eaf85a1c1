"""An agent that does something else than what was recorded fails, with the difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_of_file import load_runner
from async_tests import async_test
from cassettes.recorded_agent import RecordedAgent

import holodeck
from holodeck.cassettes.opened_cassette import OpenedCassette
from holodeck.lib.errors import CassetteMismatchError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, cassette, say


def calc(url: str, name: str = "calc") -> str:
    return f'  - {{type: mcp, name: {name}, description: d, transport: http, url: "{url}"}}'


@async_test(60)
async def test_another_question_fails_with_the_difference(tmp_path: Path) -> None:
    agent = RecordedAgent(tmp_path, "  []", more="instructions: Be short.")
    await agent.record(say("Hi."), question="How are you?")
    agent.write("  []", more="instructions: Be long.")
    with pytest.raises(CassetteMismatchError) as caught:
        await agent.replay(question="How are you?")
    error = caught.value
    assert (error.file, error.entry) == (str(agent.cassette), 1)
    for words in (
        "agent.cassette.yaml, entry 1: ",
        "-  instructions: Be short.",
        "+  instructions: Be long.",
        "record",
    ):
        assert words in str(error)


@async_test(60)
async def test_another_call_fails_the_run_and_is_no_error_for_the_model(tmp_path: Path) -> None:
    seen: list[int] = []

    def pick() -> int:
        return seen[-1]

    async with FaultyMCPServer() as server:
        server_tool = holodeck.MCPServer.http(server.url, name="calc")

        async def ask(*turns: Any) -> holodeck.RunResult:
            return await holodeck.Agent(ScriptedModel(*turns), tools=[pick, server_tool]).run("Go.")

        seen.append(1)
        with cassette(tmp_path / "x.yaml"):
            await ask(call("pick"), call("add", a=1, b=2), say("It is 3."))
        seen.append(2)
        opened, results = cassette(tmp_path / "x.yaml", record="never"), list[holodeck.RunResult]()
        with pytest.raises(CassetteMismatchError, match=r"(?s)-.*text: .1.*\+.*text: .2") as caught, opened:
            results.append(await ask())
    assert caught.value is opened.mismatch
    (result,) = results
    assert result.status == "failed"
    assert result.error is not None
    assert "something else" in result.error.message
    assert [item.type for item in result.items] == ["function_call", "function_call_output"], "the model saw no error"


@async_test(60)
async def test_a_call_with_other_arguments_is_shown_beside_the_recorded_one(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        agent = RecordedAgent(tmp_path, calc(server.url))
        await agent.record(call("add", a=1, b=2), say("It is 3."))
    text = agent.text
    agent.cassette.write_text(text.replace("""arguments: '{"a":1,"b":2}'""", """arguments: '{"a":1,"b":5}'"""))
    with pytest.raises(CassetteMismatchError) as caught:
        await agent.replay()
    for words in ("(tools/call)", "-    b: 2", "+    b: 5"):
        assert words in str(caught.value)


@async_test(60)
async def test_a_server_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        agent = RecordedAgent(tmp_path, calc(server.url))
        await agent.record(say("Hi."))
        agent.write(calc(server.url) + "\n" + calc(server.url, "other"))
    with pytest.raises(CassetteMismatchError, match="MCP server 'other', which was not used then"):
        await agent.replay()


@async_test(60)
async def test_entries_that_are_not_used_fail_the_block(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        agent = RecordedAgent(tmp_path, calc(server.url))
        await agent.record(call("add", a=1, b=2), say("It is 3."))

    async def list_only() -> None:
        with OpenedCassette(agent.cassette, "never"):
            async with load_runner(agent.file, environ={"ENDPOINT": "http://x.example"}, home=tmp_path) as runner:
                await runner.mcp.specs()

    with pytest.raises(CassetteMismatchError, match=r"did not ask what was recorded: .*tools/call add of calc"):
        await list_only()


def test_one_question_more_than_recorded_fails(tmp_path: Path) -> None:
    with cassette(tmp_path / "x.yaml"):
        holodeck.Agent(ScriptedModel(say("Hi."))).run_sync("A")
    agent = holodeck.Agent(ScriptedModel())

    def ask_twice() -> None:
        with cassette(tmp_path / "x.yaml"):
            assert agent.run_sync("A").text == "Hi."
            agent.run_sync("A")

    with pytest.raises(CassetteMismatchError, match="no such request is left"):
        ask_twice()


def test_a_failed_assertion_shows_the_mismatch_that_caused_it(tmp_path: Path) -> None:
    with cassette(tmp_path / "x.yaml"):
        holodeck.Agent(ScriptedModel(say("Hi."))).run_sync("A")
    with pytest.raises(CassetteMismatchError) as caught, cassette(tmp_path / "x.yaml"):
        assert holodeck.Agent(ScriptedModel()).run_sync("B").text == "Hi."
    assert isinstance(caught.value.__cause__, AssertionError)
