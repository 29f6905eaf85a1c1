"""`holodeck test --record` and `--replay`: cases from a cassette, each by itself, without model and servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent_project import AgentProject, serve_scripted
from async_tests import async_test
from cli.case_report import list_case_runs

from holodeck.testing import call, say

CASES = """test_cases:
  - {name: adds, input: one, expected_tools: [calc.add]}
  - {name: greets, input: two, expected_tools: []}
"""
FUNCTION = "  - {type: function, name: now, description: d, file: now.py, function: now}"


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


async def record(project: AgentProject, *options: str, more: str = CASES) -> str:
    turns = (call("add", a=1, b=2), say("It is 3."), say("Hello."))
    async with serve_scripted(*turns) as model:
        project.write(model, project.npx_server("calc"), more=more)
        done = await project.run_holodeck("test", "--record", *options)
        assert done.returncode == 0, done.stderr
        return done.stderr


@async_test(90)
async def test_cases_are_recorded_and_replayed_without_a_model_and_without_a_process(project: AgentProject) -> None:
    assert "agent.cassette.yaml is recorded." in await record(project)
    started = project.pids()
    done = await project.run_holodeck("test", "--replay")
    assert done.returncode == 0, done.stderr
    for words in ("PASS  adds", "calc.add(a=1, b=2)", "PASS  greets", "2 passed"):
        assert words in done.stdout
    assert "agent.cassette.yaml is replayed; it was recorded just now." in done.stderr
    assert project.pids() == started
    one = await project.run_holodeck("test", "--replay", "-k", "greets", "--json")
    report = json.loads(one.stdout)
    assert (report["passed"], report["suites"][0]["cassette"]["is_replay"]) == (1, True)


@async_test(90)
async def test_a_judged_case_is_replayed_with_its_verdict(project: AgentProject) -> None:
    verdict = say('{"reason": "It greets.", "passed": true}')
    async with serve_scripted(say("Hello.")) as model, serve_scripted(verdict) as judge:
        entry = f'{{provider: openai_compatible, name: the-judge, endpoint: "{judge.url}"}}'
        cases = f"test_cases:\n  - {{name: greets, input: one, judge: {{rubric: It greets., model: {entry}}}}}\n"
        project.write(model, more=cases)
        assert (await project.run_holodeck("test", "--record")).returncode == 0
    done = await project.run_holodeck("test", "--replay")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the judge the-judge passed the answer: It greets." in done.stdout


@async_test(90)
async def test_a_case_that_was_edited_does_not_fail_the_others(project: AgentProject) -> None:
    await record(project)
    file = project.path / "agent.yaml"
    file.write_text(file.read_text().replace("input: two", "input: three") + "  - {name: new, input: four}\n")
    done = await project.run_holodeck("test", "--replay")
    assert done.returncode == 1
    for words in (
        "PASS  adds",
        "FAIL  greets",
        "the run differs from the cassette",
        "FAIL  new",
        "does not have this case",
    ):
        assert words in done.stdout
    for words in ("track 'greets', entry", "- user: two", "- user: three", "holodeck test --record"):
        assert words in done.stderr


@async_test(90)
async def test_recording_one_case_keeps_the_others(project: AgentProject) -> None:
    await record(project)
    async with serve_scripted(say("Good day.")) as model:
        project.write(model, project.npx_server("calc"), more=CASES)
        assert (await project.run_holodeck("test", "--record", "-k", "greets")).returncode == 0
    done = await project.run_holodeck("test", "--replay", "--json")
    assert [case["answer"] for case in list_case_runs(json.loads(done.stdout))] == ["It is 3.", "Good day."]


@async_test(90)
async def test_ci_replays_a_cassette_that_is_there(project: AgentProject) -> None:
    await record(project)
    project.env["CI"] = "true"
    done = await project.run_holodeck("test")
    assert (done.returncode, "is replayed" in done.stderr) == (0, True)


@async_test(60)
async def test_a_cassette_that_is_missing_is_an_error(project: AgentProject) -> None:
    project.write(None, more=CASES)
    done = await project.run_holodeck("test", "--replay")
    assert done.returncode == 2
    assert "there is no such cassette" in done.stderr
    both = await project.run_holodeck("test", "--replay", "--record")
    assert (both.returncode, "not both" in both.stderr) == (2, True)


@async_test(90)
async def test_a_replay_needs_trust_for_python_code_only(project: AgentProject) -> None:
    await record(project)
    project.env["HOLODECK_TRUST"] = ""
    assert (await project.run_holodeck("test")).returncode == 2
    assert (await project.run_holodeck("test", "--replay")).returncode == 0
    (project.path / "now.py").write_text("def now() -> str:\n    return 'noon'\n")
    file = project.path / "agent.yaml"
    file.write_text(file.read_text().replace("tools:\n", f"tools:\n{FUNCTION}\n"))
    done = await project.run_holodeck("test", "--replay")
    assert done.returncode == 2
    assert "not trusted" in done.stderr


@async_test(90)
async def test_cases_replay_the_same_at_the_same_time_and_in_turn(project: AgentProject) -> None:
    await record(project)
    reports = []
    for jobs in ("1", "2", "2"):
        done = await project.run_holodeck("test", "--replay", "--json", "--jobs", jobs)
        assert done.returncode == 0, done.stderr
        runs = list_case_runs(json.loads(done.stdout))
        reports.append([(run["name"], run["transcript"], run["checks"], run["usage"]) for run in runs])
    assert reports[0] == reports[1] == reports[2]


@async_test(90)
async def test_each_file_of_a_folder_has_its_own_cassette(project: AgentProject) -> None:
    await record(project)
    other = project.path / "other.yaml"
    other.write_text("name: other\ntest_cases: [{name: adds, input: Hello, contains: rehearsal}]\n")
    assert (await project.run_holodeck("test", "other.yaml", "--record")).returncode == 0
    done = await project.run_holodeck("test", ".", "--replay", "--json")
    assert done.returncode == 0, done.stderr
    suites = json.loads(done.stdout)["suites"]
    assert [Path(suite["cassette"]["file"]).name for suite in suites] == ["agent.cassette.yaml", "other.cassette.yaml"]
    assert [suite["cases"][0]["runs"][0]["answer"][:8] for suite in suites] == ["It is 3.", "[rehears"]
    # In CI, a file without a cassette runs live beside one that has one.
    (project.path / "other.cassette.yaml").unlink()
    project.env["CI"] = "true"
    mixed = await project.run_holodeck("test", ".", "--json")
    assert mixed.returncode == 0, mixed.stderr
    assert [bool(suite["cassette"]) for suite in json.loads(mixed.stdout)["suites"]] == [True, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--replay", "--repeat", "2"], "--repeat cannot be used with a cassette"),
        (["--replay", "--model", "rehearsal"], "--model cannot be used with a cassette"),
        (["--record", "--repeat", "2"], "--repeat cannot be used with a cassette"),
        (["--record", "--jobs", "2"], "Use --record or --jobs, not both."),
        (["--record", "--watch"], "Use --watch or --record, not both."),
        (["--repeat", "2"], "agent.cassette.yaml is replayed because CI is set: unset it"),
    ],
)
@async_test(60)
async def test_what_a_cassette_cannot_have_is_refused(project: AgentProject, options: list[str], words: str) -> None:
    project.write(None, more=CASES)
    (project.path / "agent.cassette.yaml").write_text("")
    project.env["CI"] = "true"
    done = await project.run_holodeck("test", *options)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
