"""`holodeck test`: cases that pass and fail, reported with reasons as text, as JSON and in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted
from async_tests import async_test
from cli.case_report import list_case_runs

from holodeck.testing.model.script import call, say, status

NAMES = """test_cases:
  - {name: by server, input: one, expected_tools: [calc]}
  - {name: in full, input: two, expected_tools: [calc.add, calc__add]}
  - {name: bare, input: three, expected_tools: [add, {name: add, arguments: {a: 1}}]}
"""
FAILING = """test_cases:
  - {name: other tool, input: one, expected_tools: [memory]}
  - {name: other arguments, input: two, expected_tools: [{name: add, arguments: {a: 2}}]}
  - {name: twice, input: three, expected_tools: [add, add]}
  - {name: none at all, input: four, expected_tools: []}
  - {name: broken model, input: five}
"""


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


def adding(times: int) -> list[Any]:
    return [turn for _ in range(times) for turn in (call("add", a=1, b=2), say("It is 3."))]


@async_test(60)
async def test_a_tool_is_expected_by_its_server_in_full_or_by_its_own_name(project: AgentProject) -> None:
    async with serve_scripted(*adding(3)) as model:
        project.write(model, project.npx_server("calc"), more=NAMES)
        done = await project.run_holodeck("test")
        assert done.returncode == 0
        for words in ("PASS  by server", "PASS  in full", "PASS  bare", "calc.add(a=1, b=2)", "3 passed"):
            assert words in done.stdout
        assert messages_of_turn(model, 2) == [{"role": "user", "content": "two"}], (
            "each case is a conversation of its own"
        )
        assert "> calc.add" in done.stderr


@async_test(60)
async def test_a_case_that_fails_says_why(project: AgentProject) -> None:
    async with serve_scripted(*adding(4), status(401)) as model:
        project.write(model, project.npx_server("calc"), more=FAILING)
        done = await project.run_holodeck("test", "-q")
    assert done.returncode == 1
    for words in (
        "memory was expected; called: calc.add(a=1, b=2)",
        "add(a=2) was expected, and called with other arguments: calc.add(a=1, b=2)",
        "add was expected 2 times; called: calc.add(a=1, b=2)",
        "no tool was expected; called: calc.add(a=1, b=2)",
        "the run is failed: Model 'scripted'",
        "answer  It is 3.",
        "0 passed, 5 failed",
    ):
        assert words in done.stdout, done.stdout
    assert done.stderr == ""


TRUTHS = """test_cases:
  - {name: wrong answer, input: one, ground_truth: "3"}
  - {name: right answer, input: two, expected_tools: [add], ground_truth: "3"}
  - {name: other tool, input: three, expected_tools: [memory], ground_truth: "3"}
  - {name: nothing expected, input: four}
"""


@async_test(60)
async def test_a_wrong_answer_fails_its_case_and_a_right_one_passes(project: AgentProject) -> None:
    async with serve_scripted(*2 * [say("It is 13."), *adding(2), say("Whatever.")]) as model:
        project.write(model, project.npx_server("calc"), more=TRUTHS)
        done = await project.run_holodeck("test", "-q", "--report", "out.md")
        printed = await project.run_holodeck("test", "--json")
    assert (done.returncode, printed.returncode) == (1, 1)
    for words in (
        "FAIL  wrong answer",
        "why     ground_truth by number: 3 is not among the numbers of the answer: 13",
        "answer  It is 13.",
        "truth   3\n",
        "PASS  right answer",
        "checked ground_truth by number: the answer has the number 3",
        "FAIL  other tool",
        "PASS  nothing expected",
        "checked only that it answered",
    ):
        assert words in done.stdout, done.stdout
    assert done.stdout.splitlines()[-1] == "2 passed, 2 failed"
    report = json.loads(printed.stdout)
    assert (report["passed"], report["failed"]) == (2, 2)
    assert "not_judged" not in report
    assert [(case["outcome"], case["passed"]) for case in list_case_runs(report)] == [
        ("failed", False),
        ("passed", True),
        ("failed", False),
        ("passed", True),
    ]
    names = [[check["name"] for check in case["checks"]] for case in list_case_runs(report)]
    assert names == [
        ["run", "ground_truth"],
        ["run", "expected_tools", "ground_truth"],
        ["run", "expected_tools", "ground_truth"],
        ["run", "answered"],
    ]
    markdown = (project.path / "out.md").read_text()
    assert "2 passed, 2 failed" in markdown
    assert "## demo (agent.yaml) on openai\\_compatible:scripted" in markdown
    assert "| **FAIL** | wrong answer |" in markdown
    assert "- checked: only that it answered" in markdown


@async_test(60)
async def test_reports_are_json_or_markdown(project: AgentProject) -> None:
    async with serve_scripted(*adding(4)) as model:
        project.write(model, project.npx_server("calc"), more=FAILING)
        printed = await project.run_holodeck("test", "--json", "-k", "other", "--report", "out.json")
        assert printed.returncode == 1
        report = json.loads(printed.stdout)
        assert json.loads((project.path / "out.json").read_text())["failed"] == 2
        await project.run_holodeck("test", "-q", "-k", "TWICE", "--report", "out.md")
    assert (report["passed"], report["failed"]) == (0, 2)
    first = list_case_runs(report)[0]
    assert first["called"] == [
        {"server": "calc", "tool": "add", "name": "add", "arguments": {"a": 1, "b": 2}, "is_error": False}
    ]
    assert (first["status"], first["answer"], first["expected_tools"]) == ("completed", "It is 3.", ["memory"])
    markdown = (project.path / "out.md").read_text()
    assert "| **FAIL** | twice | add | 2 |" in markdown
    assert "- why: add was expected 2 times" in markdown


@async_test(60)
async def test_a_failed_call_is_marked_and_approval_is_never_requested(project: AgentProject) -> None:
    async with serve_scripted(call("add", a=1, b=2), say("No.")) as model:
        cases = "test_cases:\n  - {name: refused, input: one, expected_tools: [add]}\n"
        project.write(model, project.npx_server("calc", more=", approval: always"), more=cases)
        done = await project.run_holodeck("test")
    assert "calc.add(a=1, b=2) - it failed" in done.stdout
    assert done.returncode == 0


@async_test(60)
async def test_a_long_result_of_one_case_cannot_be_read_in_the_next(project: AgentProject) -> None:
    async with serve_scripted(call("big", bytes=50_000), say("Long."), say("Short.")) as model:
        project.write(model, project.npx_server("calc"), more="test_cases: [{input: one}, {input: two}]\n")
        done = await project.run_holodeck("test", "-q")
        assert "2 passed" in done.stdout
        offered = [{tool["function"]["name"] for tool in each.json["tools"]} for each in model.received]
        assert ["read_result" in names for names in offered] == [False, True, False]


@async_test(60)
async def test_wrong_files_and_patterns_exit_with_2(project: AgentProject) -> None:
    project.write(None)
    nothing = await project.run_holodeck("test")
    assert nothing.returncode == 2
    assert "has no 'test_cases'" in nothing.stderr
    project.write(None, more=NAMES)
    unmatched = await project.run_holodeck("test", "-k", "weather")
    assert unmatched.returncode == 2
    assert "There are: by server, in full, bare." in unmatched.stderr
    project.write(None, more="test_cases: [{inputs: x}]\n")
    assert (await project.run_holodeck("test")).returncode == 2
