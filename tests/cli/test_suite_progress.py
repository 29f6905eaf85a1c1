"""`holodeck test` while it runs: the progress line of a terminal, Ctrl-C in the middle, and changes of files."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from agent_project import AgentProject, serve_scripted
from async_tests import async_test
from cli.running_command import start_command
from pty_terminal import CTRL_C, TypingTerminal

from holodeck.testing.mcp.journal import Journal
from holodeck.testing.model.script import Wait, call, say

CASES = """test_cases:
  - {name: quick one, input: one, contains: "3"}
  - {name: wrong one, input: two, contains: "5"}
  - {name: slow one, input: three}
"""


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


@async_test(90)
async def test_a_terminal_shows_counts_and_the_cases_that_run(project: AgentProject) -> None:
    release = asyncio.Event()
    async with serve_scripted(say("3"), say("4"), [Wait(until=release), say("5")]) as model:
        project.write(model, more=CASES)
        async with TypingTerminal("test", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("FAIL  wrong one")
            await terminal.wait_for("2/3 done, 1 passed, 1 failed; running: slow one")
            release.set()
            await terminal.wait_for("2 passed, 1 failed")
            assert await terminal.wait_exit() == 1


@async_test(90)
async def test_ctrl_c_shows_and_writes_what_is_known_and_leaves_no_process(project: AgentProject) -> None:
    async with serve_scripted(say("3"), say("4"), call("slow", seconds=600)) as model:
        project.write(model, project.npx_server("calc"), more=CASES)
        reports = ("--report", "out.json", "--report", "out.xml", "--report", "out.html")
        async with TypingTerminal("test", *reports, cwd=project.path, env=project.env) as terminal:
            await Journal(project.journal).received("tools/call", within=45)
            terminal.type_text(CTRL_C)
            await terminal.wait_for("Stopped: 2 of 3 runs have ended.")
            await terminal.wait_for("1 passed, 1 failed")
            assert await terminal.wait_exit() == 130
            assert "Traceback" not in terminal.text
    await project.wait_servers_gone()
    report = json.loads((project.path / "out.json").read_text())
    assert (report["is_complete"], report["has_passed"], report["planned"]) == (False, False, 3)
    assert [len(case["runs"]) for case in report["suites"][0]["cases"]] == [1, 1, 0]
    suite = ET.parse(project.path / "out.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert "This report is not complete" in (project.path / "out.html").read_text()


@async_test(90)
async def test_sigint_without_a_terminal_still_prints_the_report_as_json(project: AgentProject) -> None:
    async with serve_scripted(*2 * [call("slow", seconds=600)]) as model:
        project.write(model, project.npx_server("calc"), more=CASES)
        async with start_command(project, "test", "--json", "--jobs", "2") as command:
            for _ in range(2):
                await command.wait_stderr(r"> calc\.slow")
                command.stderr_text = ""
            code, out, err = await command.wait_exit(signal.SIGINT)
    assert code == 130
    report = json.loads(out)
    assert (report["passed"], report["failed"], report["is_complete"]) == (0, 0, False)
    assert err.splitlines()[-1] == "Stopped."
    await project.wait_servers_gone()


@async_test(90)
async def test_watching_runs_again_after_each_change_and_survives_a_broken_file(project: AgentProject) -> None:
    more = "instructions: {file: how.md}\ntest_cases: [{name: greets, input: one, contains: '3'}]\n"
    async with serve_scripted(say("4"), say("3"), say("3")) as model:
        (project.path / "how.md").write_text("Answer 4.")
        project.write(model, more=more)
        file = project.path / "agent.yaml"
        good = file.read_text()
        async with TypingTerminal("test", "--watch", cwd=project.path, env=project.env) as terminal:
            await terminal.wait_for("1 failed")
            await terminal.wait_for("Ctrl-C ends.")
            (project.path / "how.md").write_text("Answer with 3.")
            await terminal.wait_for("how.md changed: running again.")
            await terminal.wait_for("1 passed")
            await terminal.wait_for("Ctrl-C ends.")
            file.write_text("name: [\n")
            await terminal.wait_for("agent.yaml:")
            await terminal.wait_for("Ctrl-C ends.")
            file.write_text(good)
            await terminal.wait_for("1 passed")
            await terminal.wait_for("Ctrl-C ends.")
            terminal.type_text(CTRL_C)
            assert await terminal.wait_exit() == 130
            assert "Traceback" not in terminal.text
        contents = [each.json["messages"][0]["content"] for each in model.received]
    assert contents == ["Answer 4.", "Answer with 3.", "Answer with 3."]
