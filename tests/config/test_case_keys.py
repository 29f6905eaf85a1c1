"""Keys of test cases: what is refused when the file is read, with its place, and what the judge means for trust."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_folder import AgentFolder

from holodeck.config.actions import list_actions

OPENAI = "{provider: openai, name: gpt-5-mini, api_key: k}"


@pytest.fixture
def folder(tmp_path: Path) -> AgentFolder:
    return AgentFolder(tmp_path)


REFUSED = [
    ("matches: '(a'", "test_cases[0].matches", "'matches' is not a regular expression: missing ), unterminated"),
    ("matches: [a, '*']", "test_cases[0].matches[1]", "'matches' is not a regular expression: nothing to repeat"),
    ("contains: []", "test_cases[0].contains", "'contains'"),
    ("contains: {a: b}", "test_cases[0].contains", "'contains' must be text"),
    ("json: {schema: {type: strin}}", "test_cases[0].json.schema", "not a valid JSON Schema"),
    ("json: {schema: {$ref: 'https://x.example/s'}}", "test_cases[0].json.schema", "nothing is fetched"),
    ("json: {values: {'items[0]': 1}}", "test_cases[0].json.values.items[0]", "a path begins with '$'"),
    ("json: {tolerance: 1}", "test_cases[0].json.values", "'values' or 'schema' is required"),
    ("json_answer: {values: {$: 1}}", "test_cases[0].json_answer", "unknown key 'json_answer'"),
    ("similar: {to: x, at_least: 2}", "test_cases[0].similar.at_least", "'at_least' must be at most 1"),
    ("judge: r", "test_cases[0].judge", "no model is named that judges"),
    ("judge: {model: {provider: rehearsal}}", "test_cases[0].judge.rubric", "'rubric' is required"),
    ("ground_truth: a\n    ground_truth_by: judge", "test_cases[0].ground_truth_by", "no model is named that judges"),
    ("ground_truth_by: number", "test_cases[0].ground_truth_by", "no meaning without 'ground_truth'"),
    ("ground_truth: a\n    ground_truth_by: json", "test_cases[0].ground_truth", "'ground_truth' is not JSON"),
    ("ground_truth: a\n    ground_truth_by: number", "test_cases[0].ground_truth", "'ground_truth' is not a number"),
    ("ground_truth: a\n    ground_truth_by: bleu", "test_cases[0].ground_truth_by", "must be one of: equals, contains"),
    ("tools: {at_most: -1}", "test_cases[0].tools.at_most", "'at_most' must be at least 0"),
    ("tools: {at_most: {add: x}}", "test_cases[0].tools.at_most.add", "'add' must be a whole number"),
    ("tools: {called: [{name: a, times: 0}]}", "test_cases[0].tools.called[0].times", "'times' must be at least 1"),
    ("tools: {calls: [a]}", "test_cases[0].tools.calls", "unknown key 'calls'"),
    ("max_turns: 0", "test_cases[0].max_turns", "'max_turns' must be at least 1"),
    ("max_seconds: 0", "test_cases[0].max_seconds", "'max_seconds' must be more than 0"),
    ("forbidden: {text: [a]}", "test_cases[0].forbidden.text", "unknown key 'text'"),
]


@pytest.mark.parametrize(("keys", "key", "words"), REFUSED)
def test_a_wrong_key_is_refused_with_its_place(folder: AgentFolder, keys: str, key: str, words: str) -> None:
    problems = folder.load_errors(f"name: demo\ntest_cases:\n  - input: one\n    {keys}\n")
    assert [problem.key for problem in problems] == [key]
    assert words in problems[0].message
    assert problems[0].file.endswith("agent.yaml")
    assert problems[0].line is not None
    assert problems[0].line >= 4


def test_the_value_of_a_variable_is_not_shown_in_the_error_about_a_pattern(folder: AgentFolder) -> None:
    text = "name: demo\ntest_cases: [{input: one, matches: '${PATTERN}'}]\n"
    error = folder.load_error(text, {"PATTERN": r"(?P<hidden>a)(?P<hidden>b)"})
    assert "hidden" not in str(error)
    assert "'matches' is not a regular expression" in str(error)


@pytest.mark.parametrize(
    ("model", "judge", "is_same"),
    [
        (OPENAI, "{provider: openai, name: GPT-5-mini, api_key: other}", True),
        (OPENAI, "{provider: openai, name: gpt-5-mini, endpoint: 'https://api.openai.com/v1'}", True),
        (OPENAI, "{provider: openai, name: gpt-5, api_key: k}", False),
        (OPENAI, "{provider: openai_compatible, name: gpt-5-mini, endpoint: 'https://models.example.com/v1'}", False),
        ("{provider: rehearsal}", "{provider: rehearsal}", True),
        (
            "{provider: ollama, name: qwen3}",
            "{provider: ollama, name: qwen3, endpoint: 'http://127.0.0.1:11434'}",
            True,
        ),
    ],
)
def test_the_judge_is_another_model_by_its_name_or_its_address(
    folder: AgentFolder, model: str, judge: str, is_same: bool
) -> None:
    text = f"name: demo\nmodel: {model}\ntest_settings: {{judge: {judge}}}\ntest_cases: [{{input: one, judge: r}}]\n"
    if not is_same:
        folder.load(text)
        return
    problems = folder.load_errors(text)
    assert [(problem.key, problem.line) for problem in problems] == [("test_settings.judge", 3)]
    assert "the model under test" in problems[0].message


def test_a_judge_gets_a_key_and_is_a_part_of_what_is_trusted(folder: AgentFolder) -> None:
    plain = "name: demo\ntest_cases: [{input: one}]\n"
    judge = "{provider: openai_compatible, name: j, endpoint: 'https://judge.example.com/v1', api_key: '${JUDGE_KEY}'}"
    judged = f"name: demo\ntest_cases: [{{input: one, judge: {{rubric: r, model: {judge}}}}}]\n"
    before, after = (list_actions(folder.load(text, {"JUDGE_KEY": "k"})) for text in (plain, judged))
    assert before.digest != after.digest
    action = next(each for each in after.actions if each.kind == "model")
    assert action.name == "test_cases[0].judge.model"
    assert ("endpoint", "https://judge.example.com/v1") in action.details
    assert ("key", "${JUDGE_KEY}") in action.details


def test_a_judge_without_its_key_is_a_warning_before_it_is_asked(folder: AgentFolder) -> None:
    text = "name: demo\ntest_settings: {judge: {provider: openai, name: gpt-5-mini}}\n"
    warnings = folder.load(text).warnings
    assert [problem.key for problem in warnings] == ["test_settings.judge"]
    assert "OPENAI_API_KEY is not set: the judge cannot be asked" in warnings[0].message
