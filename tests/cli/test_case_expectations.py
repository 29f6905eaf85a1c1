"""`holodeck test` judges: each expectation with an answer that meets it, and with one that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, serve_scripted
from async_tests import async_test
from cli.case_report import list_case_runs

from holodeck.testing.model.script import Step, call, finish, say, spend, status

ADD = call("add", a=1, b=2)
ECHO = call("echo", text="x")
PRICES = '{"items": [{"name": "tea", "price": 2.5}]}'
SCHEMA = "{type: object, required: [items]}"


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


ANSWERS = [
    ("contains: Friday", "It is on FRIDAY.", "On Monday.", 'the answer does not have: "Friday"'),
    ("contains: [tea, milk]", "Milk  and tea", "tea", 'the answer does not have: "milk"'),
    ("equals: It is open.", " It is\n open. ", "It is open!", 'the answer is not: "It is open."'),
    (r"matches: '\bORD-\d{4}\b'", "See ORD-1234.", "See ORD-12345.", r"the answer does not match /\bORD-\d{4}\b/"),
    ("matches: ['(?i)yes', '^Y']", "Yes.", "Oh yes.", "the answer does not match /^Y/"),
    ("matches: '^(a+)+$'", "aaaa", "a" * 60 + "!", "the search for /^(a+)+$/ in the answer took too long"),
    (f"json: {{schema: {SCHEMA}}}", PRICES, '{"item": []}', "$ does not fit the schema: "),
    (f"json: {{schema: {SCHEMA}}}", f"```json\n{PRICES}\n```", "tea, 2.50", "the answer is not JSON"),
    (
        "json: {values: {'$.items[0].price': 2.4}, tolerance: 0.1}",
        PRICES,
        PRICES.replace("2.5", "2.6"),
        "$.items[0].price is 2.6, expected 2.4",
    ),
    ("json: {values: {'$.items[0].name': tea}}", PRICES, '{"items": []}', "there is no $.items[0].name"),
    (
        "similar: Your order ships within three working days.",
        "We send the order within three working days.",
        "Please ask our support team.",
        "less than 0.5",
    ),
    (
        "similar: {to: Your order ships within three working days., at_least: 0.9}",
        "Your order ships within three working days!",
        "We send the order within three working days.",
        "less than 0.9",
    ),
    ("forbidden: {texts: [password]}", "I cannot tell.", "The Password is x.", 'what is forbidden: "password"'),
    ("ground_truth: '3'", "1 + 2 = 3", "It is 13.", "ground_truth by number: 3 is not among the numbers"),
    ("ground_truth: On Friday.", "I think on Friday!", "On Monday.", "ground_truth by contains: "),
    ("ground_truth: '{\"a\": [1]}'", '{"a": [1]}', '{"a": [2]}', "ground_truth by json: $.a[0] is 2, expected 1"),
    (
        "ground_truth: The launch was moved from Friday to Monday.",
        "The launch has been moved to Monday instead of Friday.",
        "I do not know when it will be.",
        "ground_truth by similar: ",
    ),
    ("{ground_truth: '3', ground_truth_by: equals}", "3", "It is 3.", "ground_truth by equals: "),
]


@pytest.mark.parametrize(("expectation", "good", "bad", "reason"), ANSWERS)
@async_test(60)
async def test_a_good_answer_passes_and_a_bad_one_fails_with_the_reason(
    project: AgentProject, expectation: str, good: str, bad: str, reason: str
) -> None:
    keys = expectation.removeprefix("{").removesuffix("}") if expectation.startswith("{") else expectation
    cases = f"test_cases:\n  - {{name: good, input: one, {keys}}}\n  - {{name: bad, input: two, {keys}}}\n"
    report = await run_cases(project, cases, say(good), say(bad))
    assert [case["passed"] for case in list_case_runs(report)] == [True, False], list_case_runs(report)[0]["reasons"]
    assert reason in list_case_runs(report)[1]["reasons"][0]
    assert len(list_case_runs(report)[1]["reasons"]) == 1


CALLS: list[tuple[str, list[Step], list[Step], str]] = [
    ("tools: {called: [calc.add]}", [ADD], [], "calc.add was expected; called: nothing"),
    (
        "tools: {called: [{name: add, arguments: {a: 1}, times: 2}]}",
        [ADD, ADD],
        [ADD, ADD, ADD],
        "add(a=1) was expected 2 times, and called 3",
    ),
    (
        "tools: {not_called: [echo]}",
        [ADD],
        [ECHO],
        'echo must not be called; called: calc.echo(text="x")',
    ),
    (
        "tools: {order: [add, echo]}",
        [ADD, ADD, ECHO],
        [ECHO, ADD],
        "the order add > echo was expected, and echo is missing in: ",
    ),
    ("tools: {at_most: 1}", [ADD], [ADD, ADD], "2 calls, at most 1 are allowed: "),
    ("tools: {at_most: {add: 1}}", [ADD, ECHO], [ADD, ADD], "add was called 2 times, at most 1"),
    ("forbidden: {tools: [calc.echo]}", [ADD], [ECHO], "calc.echo is forbidden; called: "),
    ("max_turns: 2", [ADD], [ADD, ADD], "the run took 3 turns, more than 2"),
]


@pytest.mark.parametrize(("expectation", "good", "bad", "reason"), CALLS)
@async_test(60)
async def test_good_calls_pass_and_bad_ones_fail_with_the_reason(
    project: AgentProject, expectation: str, good: list[Step], bad: list[Step], reason: str
) -> None:
    cases = (
        f"test_cases:\n  - {{name: good, input: one, {expectation}}}\n  - {{name: bad, input: two, {expectation}}}\n"
    )
    report = await run_cases(project, cases, *good, say("Done."), *bad, say("Done."), has_server=True)
    assert [case["passed"] for case in list_case_runs(report)] == [True, False], list_case_runs(report)[0]["reasons"]
    assert reason in list_case_runs(report)[1]["reasons"][0]


@async_test(60)
async def test_tokens_and_seconds_have_limits_and_prices(project: AgentProject) -> None:
    cases = """test_cases:
  - {name: few tokens, input: one, max_tokens: 100, max_seconds: 3600}
  - {name: many tokens, input: two, max_tokens: 100}
  - {name: slow, input: three, max_seconds: 0.000001}
"""
    turns = ([say("a"), spend(90, 10)], [say("b"), spend(90, 11)], [say("c"), spend(1, 1)])
    report = await run_cases(project, cases, *turns, price="{input: 1, output: 2}")
    assert [case["passed"] for case in list_case_runs(report)] == [True, False, False]
    assert list_case_runs(report)[1]["reasons"] == ["the run took 101 tokens, more than 100"]
    assert "seconds, more than 1e-06" in list_case_runs(report)[2]["reasons"][0]
    # 90 tokens at 1 and 10 at 2 per million.
    assert list_case_runs(report)[0]["cost"] == pytest.approx(110 / 1_000_000)
    assert list_case_runs(report)[0]["judge_cost"] == 0


@async_test(60)
async def test_a_run_that_does_not_complete_fails_whatever_it_said(project: AgentProject) -> None:
    cases = "test_cases:\n  - {name: cut, input: one, contains: yes}\n  - {name: nothing expected, input: two}\n"
    cases = cases.replace("contains: yes", "contains: 'yes'")
    report = await run_cases(project, cases, [say("yes"), finish("length")], status(401))
    assert [case["passed"] for case in list_case_runs(report)] == [False, False]
    assert "the run is incomplete: " in list_case_runs(report)[0]["reasons"][0]
    assert "the run is failed: " in list_case_runs(report)[1]["reasons"][0]


@async_test(60)
async def test_settings_of_the_file_hold_for_cases_that_say_nothing(project: AgentProject) -> None:
    cases = """test_settings: {ground_truth_by: equals, similar_at_least: 0.99}
test_cases:
  - {name: by the file, input: one, ground_truth: "3"}
  - {name: by the case, input: two, ground_truth: "3", ground_truth_by: number}
  - {name: similar, input: three, similar: Your order ships within three working days.}
"""
    answers = (say("It is 3."), say("It is 3."), say("Your order ships within three working days!"))
    report = await run_cases(project, cases, *answers)
    assert [case["passed"] for case in list_case_runs(report)] == [False, True, False]
    assert "ground_truth by equals: " in list_case_runs(report)[0]["reasons"][0]
    assert "less than 0.99" in list_case_runs(report)[2]["reasons"][0]


async def run_cases(
    project: AgentProject, cases: str, *turns: Any, has_server: bool = False, price: str = ""
) -> dict[str, Any]:
    """Run the cases on a model with these turns, and return the report."""
    async with serve_scripted(*turns) as model:
        project.write(model, *([project.npx_server("calc")] if has_server else []), more=cases)
        if price:
            file = project.path / "agent.yaml"
            file.write_text(file.read_text().replace("name: scripted,", f"name: scripted, price: {price},"))
        done = await project.run_holodeck("test", "--json", "-q")
    assert done.stdout, done.stderr
    assert done.returncode == 1
    report: dict[str, Any] = json.loads(done.stdout)
    return report
