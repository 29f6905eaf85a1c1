"""A replay is the recorded run again: the same answers and events, with no network and no process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from async_tests import async_test
from cassettes.recorded_agent import RecordedAgent
from no_network import without_network
from real.everything_server import serve_everything
from real.project import START_SECONDS

import holodeck
from holodeck.cassettes.opened_cassette import OpenedCassette
from holodeck.lib.errors import CassetteMismatchError, ConfigError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, cassette, say, spend, think

TESTS = Path(__file__).parents[1]
FILES = """  - type: mcp
    name: files
    description: Read the files in the data folder
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem", "${workspaceFolder}/data"]"""
MEMORY = """
  - type: mcp
    name: memory
    description: A graph of notes
    command: npx
    args: ["-y", "@modelcontextprotocol/server-memory"]
    env: {MEMORY_FILE_PATH: "${workspaceFolder}/memory.json"}"""


def make_data(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data/notes.md").write_text("The launch is on Friday.\n")


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.long)])
@async_test(START_SECONDS)
async def test_replays_are_equal_and_open_no_socket_and_start_no_process(tmp_path: Path, count: int) -> None:
    make_data(tmp_path)
    agent = RecordedAgent(tmp_path, FILES + MEMORY)
    recorded = await agent.record(
        [think("I look."), say("Let me look. "), call("read_text_file", path="notes.md"), call("read_graph")],
        [call("list_directory", path="."), spend(120, 7)],
        say("On Friday, says notes.md."),
    )
    (tmp_path / "data/notes.md").unlink()
    done = await asyncio.to_thread(
        subprocess.run,
        without_network(sys.executable, str(TESTS / "cassettes/replay_program.py"), str(tmp_path), str(count)),
        capture_output=True,
        text=True,
        env={"PATH": "/nowhere", "HOME": str(tmp_path), "PYTHONPATH": str(TESTS)},
        check=False,
    )
    *replays, opened = map(json.loads, done.stdout.splitlines() or ["null"])
    assert opened == [], done.stderr
    assert len(replays) == count
    assert all(replay == recorded for replay in replays)


@async_test(START_SECONDS)
async def test_a_real_server_over_streamable_http_is_replayed_without_it(tmp_path: Path) -> None:
    with serve_everything("http", tmp_path) as running:
        agent = RecordedAgent(
            tmp_path, f"  - {{type: mcp, name: everything, description: d, transport: http, url: '{running.url}'}}"
        )
        recorded = await agent.record(
            [call("echo", message="grüß dich, 世界"), call("get-tiny-image")],
            call("trigger-long-running-operation", duration=1, steps=2),
            say("Done."),
        )
    assert "Echo: grüß dich, 世界" in "".join(recorded)
    assert await agent.replay() == recorded
    assert "bytes: " in agent.text, "binary data is written with its size"


@async_test(60)
async def test_a_cassette_replays_in_another_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    make_data(first)
    agent = RecordedAgent(first, FILES)
    await agent.record(call("list_allowed_directories"), say("That is all."))
    assert str(tmp_path) not in agent.text
    first.rename(second)
    replayed = "".join(await RecordedAgent(second, None).replay())
    assert f"{second}/data" in replayed


@async_test(60)
async def test_an_agent_in_code_is_recorded_and_replayed(tmp_path: Path) -> None:
    seen: list[str] = []

    def shout(text: str) -> str:
        seen.append(text)
        return text.upper()

    async def ask() -> str:
        model = ScriptedModel(call("shout", text="hello"), say("It is loud."))
        result = await holodeck.Agent(model, tools=[shout]).run("Shout.")
        return result.text

    async with cassette(tmp_path / "x.yaml"):
        assert await ask() == "It is loud."
    async with cassette(tmp_path / "x.yaml", record="never"):
        assert await ask() == "It is loud."
    assert seen == ["hello", "hello"], "functions of the program run in a replay, too"


def test_run_sync_and_asyncio_run_use_the_cassette(tmp_path: Path) -> None:
    agent = holodeck.Agent(ScriptedModel(say("One."), say("Two.")))
    with cassette(tmp_path / "x.yaml"):
        assert agent.run_sync("A").text == "One."
        assert asyncio.run(agent.run("B")).text == "Two."
    silent = holodeck.Agent(ScriptedModel())
    with cassette(tmp_path / "x.yaml", record="never") as opened:
        assert silent.run_sync("A").text == "One."
        assert asyncio.run(silent.run("B")).text == "Two."
    assert opened.unused == []


def test_a_missing_cassette_is_recorded_here_and_an_error_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(ConfigError, match=r"there is no such cassette(.|\n)*Record it on your machine"):
        cassette(tmp_path / "x.yaml")
    monkeypatch.delenv("CI")
    with pytest.raises(ConfigError, match="there is no such cassette"):
        cassette(tmp_path / "x.yaml", record="never")
    with cassette(tmp_path / "x.yaml"):
        holodeck.Agent(ScriptedModel(say("Hi."))).run_sync("A")
    monkeypatch.setenv("CI", "true")
    with cassette(tmp_path / "x.yaml"):
        assert holodeck.Agent(ScriptedModel()).run_sync("A").text == "Hi."


def test_a_block_that_fails_writes_no_cassette(tmp_path: Path) -> None:
    def use(error: Exception) -> None:
        with cassette(tmp_path / "x.yaml"):
            holodeck.Agent(ScriptedModel(say("Hi."))).run_sync("A")
            raise error

    with pytest.raises(OSError, match="disk"):
        use(OSError("disk"))
    assert not (tmp_path / "x.yaml").exists()
    with pytest.raises(AssertionError):
        use(AssertionError())
    assert (tmp_path / "x.yaml").exists(), "a failed assertion is about a run that was recorded whole"


@async_test(60)
async def test_tracks_are_recorded_and_replayed_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"

    async def ask(question: str, *answers: str) -> str:
        return (await holodeck.Agent(ScriptedModel(*map(say, answers))).run(question)).text

    with OpenedCassette(path) as opened:
        for name in ("one", "two"):
            with opened.track(name):
                await ask(f"Question {name}", f"Answer {name}")
    with OpenedCassette(path, "never") as opened:
        with opened.track("two"):
            assert await ask("Question two") == "Answer two"
        with pytest.raises(CassetteMismatchError, match="track 'one', entry 1"), opened.track("one"):
            await ask("Another question")
    with OpenedCassette(path) as opened, opened.track("three"):
        await ask("Question three", "Answer three")
    with OpenedCassette(path, "never") as opened:
        for name in ("one", "two", "three"):
            with opened.track(name):
                assert await ask(f"Question {name}") == f"Answer {name}"
        with pytest.raises(ConfigError, match="no track 'four'"), opened.track("four"):
            await ask("Question four")


@async_test(60)
async def test_recording_anew_says_which_tools_have_changed(tmp_path: Path) -> None:
    agent = RecordedAgent(tmp_path, None)

    async def record(mode: str) -> dict[str, list[str]]:
        async with FaultyMCPServer(mode) as server:
            agent.write(f"  - {{type: mcp, name: calc, description: d, transport: http, url: '{server.url}'}}")
            async with ScriptedModel(say("Hi.")).serve() as model, OpenedCassette(agent.cassette, "always") as opened:
                await agent.run({"ENDPOINT": model.url})
        return {name: [f"{each.tool} {each.kind}" for each in drift] for name, drift in opened.drift.items()}

    assert await record("normal") == {}
    assert await record("normal") == {}
    assert "tool_999 new" in (await record("thousand-tools"))["calc"]
    assert "tool_999 missing" in (await record("normal"))["calc"]


def test_importing_the_plugin_imports_nothing_of_ours() -> None:
    program = (
        "import sys, holodeck.testing.pytest_plugin; print([n for n in sys.modules if n.startswith('holodeck') "
        "and n not in ('holodeck', 'holodeck.testing', 'holodeck.testing.pytest_plugin')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ), check=True
    )
    assert done.stdout.strip() == "[]"
