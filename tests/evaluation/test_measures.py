"""The measures by themselves: values that were computed by hand, and answers that are right or nearly right."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from holodeck.evaluation.measures.ground_truth import check_ground_truth, choose_measure
from holodeck.evaluation.measures.json_values import find_difference, parse_json_answer
from holodeck.evaluation.measures.text import (
    check_contains,
    check_equals,
    check_forbidden_texts,
    has_whole_words,
    score_similarity,
)
from holodeck.lib.json.path import find_json_value, parse_json_path
from holodeck.models.test_case import GroundTruthMeasure


@pytest.mark.parametrize(
    ("answer", "expected", "score"),
    [
        ("abc", "abc", 1.0),
        # Case and white space do not count.
        ("A b\nC", "abc", 1.0),
        ("xyz", "abc", 0.0),
        ("", "abc", 0.0),
        # Orders 1 to 3: 2 of 3, 1 of 2, 0 of 1, for precision and recall alike: (2/3 + 1/2 + 0) / 3.
        ("abd", "abc", 7 / 18),
        # Orders 1 and 2, for 'ab' has no more: precision 1, recall (2/3 + 1/2) / 2 = 7/12; 5pr / (4p + r) = 7/11.
        ("ab", "abc", 7 / 11),
        # The other way round: precision 7/12, recall 1; 5 * 7/12 / (4 * 7/12 + 1) = 35/40.
        ("abc", "ab", 7 / 8),
        # 'aaa' has the n-gram 'a' three times, of which one is common: precision 1/3, recall 1; 5/3 / (4/3 + 1) = 5/7.
        ("aaa", "a", 5 / 7),
    ],
)
def test_similarity_is_the_f_score_of_character_n_grams(answer: str, expected: str, score: float) -> None:
    assert math.isclose(score_similarity(answer, expected), score)


def test_the_page_about_test_cases_has_the_similarities_that_are_computed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "test-cases.md").read_text()
    truth = "Refunds are possible within 30 days of the purchase."
    rows = re.findall(r"^\| (\d\.\d\d) \| (.+) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    assert [(f"{score_similarity(answer, truth):.2f}", answer) for _, answer in rows] == rows


NUMBERS = [
    ("3", "It is 3.", True),
    ("3", "It is **3**, of course", True),
    ("3", "13", False),
    ("3", "3.5", False),
    ("3", "0.3", False),
    ("3", "30", False),
    ("3", "-3", False),
    ("3", "minus 3", False),
    ("3", "3.0", True),
    ("3", "1+2=3", True),
    ("3", "3kg", True),
    ("3", "3 apples", True),
    ("3", "€3", True),
    ("3", "on 2026-11-03", False),
    ("3", "at 3:15", False),
    ("3", "version 1.3.2", False),
    ("3", "gpt3", False),
    ("3", "between 3-4 days", False),
    ("3", "none at all", False),
    ("-3", "It is -3 degrees", True),
    ("-3", "It is \N{MINUS SIGN}3 degrees", True),
    ("-3", "minus 3 degrees", True),
    ("-3", "3 degrees", False),
    ("1234567", "1,234,567 people", True),
    ("1234567", "1 234 567 people", True),
    ("1234567", "1.234.567 people", True),
    ("1,234,567", "1234567 people", True),
    ("1234", "1,234.00", True),
    ("1234", "1.234", False),
    ("1234.5", "1.234,50", True),
    ("3.14", "about 3,14", True),
    ("2500000", "2.5e6", True),
    ("5%", "It grew by 5 %.", True),
    ("5%", "five, that is 5 percent", True),
    ("5%", "It has 5 wheels.", False),
    ("$1,200", "It costs $1200.", True),
    ("$1,200", "It costs 1,200 dollars.", True),
    ("$1,200", "It takes 1,200 hours.", False),
]


@pytest.mark.parametrize(("truth", "answer", "passed"), NUMBERS)
def test_a_number_is_the_same_however_it_is_written_and_no_part_of_another(
    truth: str, answer: str, passed: bool
) -> None:
    assert choose_measure(truth) == "number"
    assert check_ground_truth(answer, truth, "number", similar_at_least=0.5).passed is passed


@pytest.mark.parametrize(
    ("truth", "measure"),
    [
        ("3", "number"),
        ("1,234.5", "number"),
        ("3 apples", "contains"),
        ("On Friday.", "contains"),
        ("2026-11-03", "contains"),
        ("[brackets], and more", "contains"),
        ('{"a": 1}', "json"),
        ("[1, 2]", "json"),
        ("The launch was moved from Friday to Monday.", "similar"),
    ],
)
def test_the_form_of_a_truth_decides_how_it_is_judged(truth: str, measure: GroundTruthMeasure) -> None:
    assert choose_measure(truth) == measure
    assert f"ground_truth by {measure}: " in check_ground_truth("?", truth, measure, similar_at_least=0.5).reason


@pytest.mark.parametrize(
    ("answer", "truth", "measure", "passed"),
    [
        ("It is on friday, I think.", "On Friday.", "contains", True),
        ("It is on a Friday.", "On Friday.", "contains", False),
        ("He lives in Romeo.", "Rome", "contains", False),
        ("Paris", "paris", "equals", False),
        (" Paris\n", "Paris", "equals", True),
        ('```json\n{"b": [2.0], "a": 1}\n```', '{"a": 1, "b": [2]}', "json", True),
        ('{"a": 1, "b": [2], "c": 3}', '{"a": 1, "b": [2]}', "json", False),
        ("The launch moved to Monday from Friday.", "The launch was moved from Friday to Monday.", "similar", True),
        ("I cannot tell you anything about it.", "The launch was moved from Friday to Monday.", "similar", False),
    ],
)
def test_a_truth_is_judged_by_the_measure_that_is_named(
    answer: str, truth: str, measure: GroundTruthMeasure, passed: bool
) -> None:
    assert check_ground_truth(answer, truth, measure, similar_at_least=0.5).passed is passed


@pytest.mark.parametrize(
    ("answer", "words", "found"),
    [
        ("Yes, it is.", "yes", True),
        ("Yesterday", "yes", False),
        ("eyes", "yes", False),
        ("yesterday, yes", "yes", True),
        ("C++ is fine", "C++", True),
        ("in_order", "order", False),
        ("Größe 42", "GRÖSSE 42", True),
        ("...", "...", True),
    ],
)
def test_whole_words_are_not_found_inside_others(answer: str, words: str, found: bool) -> None:
    assert has_whole_words(answer, words) is found


def test_texts_are_compared_without_case_white_space_and_style_of_quotes() -> None:
    answer = "It  DOESN\N{RIGHT SINGLE QUOTATION MARK}T\nopen on Sunday."
    assert check_contains(answer, ["doesn't open", "sunday"]).passed
    missing = check_contains(answer, ["sunday", "Monday", "Tuesday"])
    assert not missing.passed
    assert missing.reason == 'the answer does not have: "Monday", "Tuesday"'
    assert check_forbidden_texts(answer, ["monday"]).passed
    assert not check_forbidden_texts(answer, ["monday", "sunday"]).passed
    assert check_equals(" a\n b ", "a b").passed
    assert not check_equals("A b", "a b").passed


@pytest.mark.parametrize(
    ("expected", "actual", "tolerance", "difference"),
    [
        ({"a": [1, 2]}, {"a": [1, 2.0]}, 0, None),
        ({"a": [1, 2]}, {"a": [1, 3]}, 0, "$.a[1] is 3, expected 2"),
        (1.2, 1.3, 0.1, None),
        (1.2, 1.31, 0.1, "$ is 1.31, expected 1.2"),
        (1, True, 0, "$ is true, expected 1"),
        (None, False, 0, "$ is false, expected null"),
        ("1", 1, 0, '$ is 1, expected "1"'),
        ([1], [1, 2], 0, "$ has 2 elements, expected 1"),
        ({"a": 1}, {"b": 1}, 0, "$ lacks a and has b in addition"),
    ],
)
def test_the_first_difference_of_two_values_is_named_with_its_path(
    expected: Any, actual: Any, tolerance: float, difference: str | None
) -> None:
    assert find_difference(expected, actual, tolerance) == difference


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here it is:\n```json\n{"a": 1}\n```\nGood?', {"a": 1}),
        ("```\n[1]\n```", [1]),
        ('```python\nprint(1)\n```\n```JSON\n{"a": 2}\n```', {"a": 2}),
    ],
)
def test_json_is_read_by_itself_and_out_of_a_fence(answer: str, value: Any) -> None:
    assert parse_json_answer(answer) == value


@pytest.mark.parametrize("answer", ["", "It is {a: 1}", "```json\n{\n```", "[" * 200 + "]" * 200])
def test_what_is_no_json_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match="the answer is not JSON"):
        parse_json_answer(answer)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$", {"items": [{"price": 5}, {"price": 7}], "the name": "x", "a.b": 1}),
        ("$.items[0].price", 5),
        ("$.items[-1].price", 7),
        ("$['the name']", "x"),
        ('$["a.b"]', 1),
    ],
)
def test_a_path_leads_to_one_value(path: str, value: Any) -> None:
    document = {"items": [{"price": 5}, {"price": 7}], "the name": "x", "a.b": 1}
    assert find_json_value(document, parse_json_path(path)) == value


@pytest.mark.parametrize("path", ["$.other", "$.items[2]", "$.items.price", "$.items[0].price.cents", "$[0]"])
def test_a_path_that_leads_nowhere_is_a_lookup_error(path: str) -> None:
    with pytest.raises(LookupError):
        find_json_value({"items": [{"price": 5}, {"price": 7}]}, parse_json_path(path))


@pytest.mark.parametrize("path", ["items", "$items", "$.items[x]", "$..price", "$.items[*]", "$.items[0"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_json_path(path)
