"""`holodeck test` on suites: several files and folders, repeated cases, models side by side, cases at the same time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted
from async_tests import async_test

from holodeck.testing.model.script import Wait, call, say, spend, status
from holodeck.testing.model.scripted import ScriptedServer

KNOWS = 'test_cases:\n  - {name: knows, input: one, ground_truth: "3"}\n'
TWO = 'test_cases:\n  - {name: first, input: one, ground_truth: "3"}\n  - {name: second, input: two, contains: "3"}\n'
RIGHT, WRONG = say("It is 3."), say("It is 4.")


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


def model_entry(server: ScriptedServer, name: str, more: str = "") -> str:
    return f'{{provider: openai_compatible, name: {name}, endpoint: "{server.url}"{more}}}'


def write_agent(path: Path, model: ScriptedServer, cases: str, name: str = "other") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"name: {name}\nmodel: {model_entry(model, 'scripted')}\n{cases}")


async def report_of(project: AgentProject, *args: str, code: int) -> dict[str, Any]:
    done = await project.run_holodeck("test", "--json", "-q", *args)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@async_test(60)
async def test_folders_and_files_are_run_each_once_and_only_files_with_cases_are_found(project: AgentProject) -> None:
    async with serve_scripted(*3 * [RIGHT]) as model:
        project.write(model, more=KNOWS)
        write_agent(project.path / "team" / "poet.yml", model, KNOWS, "poet")
        write_agent(project.path / "team" / "agent.yaml", model, KNOWS, "chief")
        # None of these is run: no cases, no agent file, and folders that are not searched.
        (project.path / "team" / "plain.yaml").write_text("name: plain\ninstructions: has no test_cases\n")
        (project.path / "team" / "chart.yaml").write_text("a: {{ .Values.template }}\n")
        for hidden in (".cache", "node_modules", "__pycache__"):
            write_agent(project.path / "team" / hidden / "agent.yaml", model, "broken: yes\ntest_cases: no\n")
        report = await report_of(project, "team", "agent.yaml", "team/poet.yml", code=0)
    assert [(suite["file"], suite["agent"]) for suite in report["suites"]] == [
        ("team/agent.yaml", "chief"),
        ("team/poet.yml", "poet"),
        ("agent.yaml", "demo"),
    ]
    assert (report["passed"], report["has_passed"]) == (3, True)


@async_test(60)
async def test_the_table_of_several_files_names_them_and_one_pattern_chooses_among_all(project: AgentProject) -> None:
    async with serve_scripted(*4 * [RIGHT]) as model:
        project.write(model, more=TWO)
        write_agent(project.path / "b" / "agent.yaml", model, TWO)
        chosen = await project.run_holodeck("test", "-q", ".", "-k", "second")
        nothing = await project.run_holodeck("test", "-q", ".", "-k", "third")
    assert chosen.returncode == 0
    assert "PASS  second - agent.yaml" in chosen.stdout
    assert "PASS  second - b/agent.yaml" in chosen.stdout
    assert "first" not in chosen.stdout
    assert "2 passed" in chosen.stdout
    assert nothing.returncode == 2
    assert "There are: first, second, first, second." in nothing.stderr


@async_test(60)
async def test_a_broken_file_of_a_folder_is_an_error_before_anything_runs(project: AgentProject) -> None:
    async with serve_scripted() as model:
        project.write(model, more=KNOWS)
        (project.path / "broken.yaml").write_text("name: x\ntest_cases:\n  - {inputs: x}\n")
        done = await project.run_holodeck("test", ".")
        assert not model.received
    assert done.returncode == 2
    assert "broken.yaml" in done.stderr


@async_test(60)
async def test_repeated_cases_have_pass_rates_with_their_intervals(project: AgentProject) -> None:
    # All cases run before any is repeated: the first one fails in its third run.
    answers = [RIGHT, RIGHT, RIGHT, RIGHT, WRONG, RIGHT, RIGHT, RIGHT]
    async with serve_scripted(*answers, *answers) as model:
        project.write(model, more=TWO)
        report = await report_of(project, "--repeat", "4", code=1)
        shown = await project.run_holodeck("test", "-q", "--repeat", "4", "--fail-under", "0.85")
        assert messages_of_turn(model, 2) == [{"role": "user", "content": "one"}], "a conversation of its own each time"
    first, second = report["suites"][0]["cases"]
    assert [run["passed"] for run in first["runs"]] == [True, True, False, True]
    # Wilson's interval for 3 of 4 and for 4 of 4.
    assert first["figures"]["pass_rate"] == pytest.approx(
        {"passed": 3, "total": 4, "rate": 0.75, "low": 0.3006, "high": 0.9544}, abs=0.00006
    )
    assert second["figures"]["pass_rate"]["low"] == pytest.approx(0.5101, abs=0.00006)
    assert (report["passed"], report["failed"], report["has_passed"]) == (7, 1, False)
    assert shown.returncode == 0, "7 of 8 are more than 0.85"
    for words in (
        "FAIL  first (3 of 4)",
        "3/4  75 % (30 to 95 %)",
        "4/4  100 % (51 to 100 %)",
        "7 passed, 1 failed; pass rate 88 % (53 to 98 %)",
        "openai_compatible:scripted: 87.5 % reaches 85 %",
    ):
        assert words in shown.stdout, shown.stdout


MODELS = """test_settings:
  models:
    large: {large}
    small: {small}
"""


@async_test(60)
async def test_models_stand_side_by_side_with_rates_tokens_cost_and_time(project: AgentProject) -> None:
    good = [[RIGHT, spend(1000, 100)], [RIGHT, spend(1000, 100)]]
    bad = [[WRONG, spend(400, 50)], [RIGHT, spend(400, 50)]]
    async with serve_scripted(*2 * good) as large, serve_scripted(*2 * bad) as small:
        entries = {
            "large": model_entry(large, "a", ", price: {input: 10, output: 20}"),
            "small": model_entry(small, "b"),
        }
        project.write(None, more=MODELS.format(**entries) + TWO)
        both = ("--model", "large", "--model", "small")
        done = await project.run_holodeck("test", "-q", *both, "--fail-under", "0.75")
        report = await report_of(project, *both, "--fail-under", "0.5", code=0)
        assert [each.json["model"] for each in large.received] == ["a", "a", "a", "a"]
        assert [each.json["model"] for each in small.received] == ["b", "b", "b", "b"]
    assert done.returncode == 1, "a good model does not make up for a bad one"
    rows = {line.split()[0]: line.split() for line in done.stdout.split("Model ")[-1].splitlines()[1:3]}
    assert rows["large"][1:7] == ["2/2", "100", "%", "(34", "to", "100"]
    assert rows["small"][1:7] == ["1/2", "50", "%", "(9", "to", "91"]
    # 2,000 tokens at 10 and 200 at 20 per million.
    assert rows["large"][8:10] == ["2,200", "0.024000"]
    assert rows["small"][8:10] == ["900", "-"], "its price is not known"
    assert "first   1/1  100 % (21 to 100 %)  0/1  0 % (0 to 79 %)" in done.stdout
    assert "small: 50.0 % is below 75 %" in done.stdout
    models = {each["model"]: each for each in report["models"]}
    assert models["large"]["cost"] == pytest.approx(0.024)
    assert (models["small"]["cost"], models["small"]["tokens"]) == (None, 900)
    assert models["large"]["median_seconds"] > 0
    assert [suite["model"] for suite in report["suites"]] == ["large", "small"]


@async_test(60)
async def test_a_model_may_be_that_of_the_file_or_a_provider_with_a_name(project: AgentProject) -> None:
    async with serve_scripted(RIGHT) as model:
        project.write(model, more=KNOWS)
        report = await report_of(
            project, "--model", "openai_compatible:scripted", "--model", "rehearsal", "--fail-under", "0", code=0
        )
    own, rehearsal = report["suites"]
    assert (own["model"], own["cases"][0]["runs"][0]["answer"]) == ("openai_compatible:scripted", "It is 3.")
    assert (rehearsal["model"], rehearsal["figures"]["pass_rate"]["total"]) == ("rehearsal", 1)
    assert rehearsal["cases"][0]["runs"][0]["answer"] != "It is 3."


@async_test(60)
async def test_cases_run_at_the_same_time_each_job_with_servers_of_its_own(project: AgentProject) -> None:
    release = asyncio.Event()
    held = [Wait(until=release), Wait(until=release)]
    turns = [[wait, call("add", a=1, b=2)] for wait in held]
    async with serve_scripted(*turns, RIGHT, RIGHT, RIGHT) as model:
        cases = TWO + "  - {name: third, input: three, contains: '3'}\n"
        project.write(model, project.npx_server("calc"), more=cases)
        running = asyncio.create_task(project.run_holodeck("test", "--jobs", "2", "--json"))
        # Both wait: neither case could have begun after the other has ended.
        await asyncio.gather(*(wait.reached.wait() for wait in held))
        release.set()
        done = await running
    assert done.returncode == 0, done.stdout + done.stderr
    assert [case["name"] for case in json.loads(done.stdout)["suites"][0]["cases"]] == ["first", "second", "third"]
    assert len(project.pids()) == 2, "one server for each job, also for its later cases"
    await project.wait_servers_gone()
    assert "[first]   > calc.add" in done.stderr
    assert "[second]   > calc.add" in done.stderr
    assert "3/3 PASS" in done.stderr


@async_test(60)
async def test_an_answer_that_never_comes_fails_its_run_and_not_the_others(project: AgentProject) -> None:
    async with serve_scripted(status(401), RIGHT) as model:
        project.write(model, more=TWO)
        report = await report_of(project, code=1)
    first, second = report["suites"][0]["cases"]
    assert "the run is failed" in first["runs"][0]["reasons"][0]
    assert second["runs"][0]["passed"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--report", "out.csv"], "the name must end in one of .xml, .json, .md, .html"),
        (["--report", "missing/out.md"], "there is no folder missing"),
        (["--model", "gpt-5"], "'gpt-5' names no model"),
        (["--model", "openai_compatible:x"], "'test_settings.models' of agent.yaml has: small"),
        (["--model", "rehearsal", "--model", "rehearsal"], "names a model twice"),
        (["--jobs", "17"], "1<=x<=16"),
        (["--repeat", "0"], "1<=x<=1000"),
        (["--fail-under", "90"], "0<=x<=1"),
        (["--watch", "--json"], "not both"),
        (["missing.yaml"], "missing.yaml"),
        (["empty"], "empty/agent.yaml"),
    ],
)
@async_test(60)
async def test_wrong_usage_exits_with_2_before_anything_runs(
    project: AgentProject, args: list[str], words: str
) -> None:
    (project.path / "empty").mkdir()
    async with serve_scripted() as model:
        project.write(model, more=f"test_settings: {{models: {{small: {model_entry(model, 's')}}}}}\n{KNOWS}")
        done = await project.run_holodeck("test", *args)
        assert not model.received
    assert done.returncode == 2, done.stdout
    assert words in done.stderr, done.stderr


@async_test(60)
async def test_models_to_compare_are_part_of_what_a_user_trusts(project: AgentProject) -> None:
    async with serve_scripted() as one, serve_scripted() as other:
        project.env |= {"HOLODECK_TRUST": "", "TEAM_KEY": "secret-of-the-team"}
        digests = []
        for cases, model in ((KNOWS, one), (TWO, one), (KNOWS, other)):
            entry = model_entry(model, "s", ', api_key: "${TEAM_KEY}"')
            project.write(None, more=f"test_settings: {{models: {{small: {entry}}}}}\n{cases}")
            shown = await project.run_holodeck("validate", "--json")
            digests.append(json.loads(shown.stdout)["trust_digest"])
        refused = await project.run_holodeck("test", "--model", "small")
        assert not other.received
    assert digests[0] == digests[1], "another case asks no other model"
    assert digests[0] != digests[2], "the key would go to another address"
    assert refused.returncode == 2
    assert "not trusted" in refused.stderr
