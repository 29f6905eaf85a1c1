"""Compares an answer with the ground truth of its case, by the measure that suits the form of the truth."""

from __future__ import annotations

from dataclasses import replace

from holodeck.evaluation.check import CheckResult
from holodeck.evaluation.measures.json_values import find_difference, parse_json_answer
from holodeck.evaluation.measures.number import find_numbers, has_number, parse_number
from holodeck.evaluation.measures.similarity import check_similarity
from holodeck.evaluation.measures.text import check_equals, has_whole_words
from holodeck.lib.json.parse import parse_json
from holodeck.models.test_case import GroundTruthMeasure

# Words of a truth that an answer can be expected to repeat: a name, a date, a yes. More are a sentence.
MAX_REPEATED_WORDS = 5
# Numbers of an answer that a reason names.
_MAX_NUMBERS_SHOWN = 8


def choose_measure(truth: str) -> GroundTruthMeasure:
    """Return the measure for a ground truth whose file names none."""
    if truth.lstrip()[:1] in {"{", "["}:
        try:
            parse_json(truth)
        except ValueError:
            pass
        else:
            return "json"
    if parse_number(truth) is not None:
        return "number"
    return "contains" if len(truth.split()) <= MAX_REPEATED_WORDS else "similar"


def check_ground_truth(
    answer: str, truth: str, measure: GroundTruthMeasure, *, similar_at_least: float, tolerance: float = 0
) -> CheckResult:
    """Compare an answer with the truth by any measure but `judge`. The reason names the measure.

    `tolerance`: of numbers inside JSON.
    """
    match measure:
        case "json":
            found = _check_json_truth(answer, truth, tolerance)
        case "number":
            found = _check_number(answer, truth)
        case "contains":
            found = _check_words(answer, truth)
        case "equals":
            found = check_equals(answer, truth)
        case "similar":
            found = check_similarity(answer, truth, similar_at_least)
        case "judge":
            raise ValueError("a judge is a model, and is asked by the case runner")
    return replace(found, name="ground_truth", reason=f"ground_truth by {measure}: {found.reason}")


def _check_json_truth(answer: str, truth: str, tolerance: float) -> CheckResult:
    try:
        difference = find_difference(parse_json(truth), parse_json_answer(answer), tolerance)
    except ValueError as error:
        return CheckResult(name="json", passed=False, reason=str(error))
    return CheckResult(name="json", passed=difference is None, reason=difference or "the values are equal")


def _check_number(answer: str, truth: str) -> CheckResult:
    wanted = parse_number(truth)
    if wanted is None:
        return CheckResult(name="number", passed=False, reason=f"the ground truth is no number: {truth}")
    if has_number(answer, wanted):
        return CheckResult(name="number", passed=True, reason=f"the answer has the number {truth}")
    others = list(dict.fromkeys(f"{number.value.normalize():f}" for number in find_numbers(answer)))
    shown = ", ".join(others[:_MAX_NUMBERS_SHOWN]) or "none"
    reason = f"{truth} is not among the numbers of the answer: {shown}"
    return CheckResult(name="number", passed=False, reason=reason)


def _check_words(answer: str, truth: str) -> CheckResult:
    passed = has_whole_words(answer, truth)
    reason = f'the answer has "{truth}"' if passed else f'the answer does not have "{truth}"'
    return CheckResult(name="contains", passed=passed, reason=reason)
