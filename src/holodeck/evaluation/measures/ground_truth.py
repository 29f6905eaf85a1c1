"""Comparison of an answer with the ground truth of its case, by the measure that suits the form of the truth.

Numbers are found in texts as people write them: with thousands separators, signs, units and currencies. One is not
found inside a longer one, nor inside a date, a time, a version, a range or an identifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from holodeck.evaluation.measures.json_values import find_difference, parse_json_answer
from holodeck.evaluation.measures.text import check_equals, check_similarity, has_whole_words
from holodeck.evaluation.verdict import CheckResult
from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.models.test_case import GroundTruthMeasure

_SPACES = "\u00a0\u2007\u2009\u202f"
_NUMBER = re.compile(
    rf"(?P<minus>\bminus\s|[-−+])?(?P<digits>\d(?:[\d.,'’_{_SPACES}]*\d)?)(?P<power>[eE][-+]?\d{{1,3}}(?!\w))?",  # noqa: RUF001
    re.IGNORECASE,
)
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d])")
_JOINTS = "-/:–."  # noqa: RUF001 - the dash of ranges
_UNITS = {
    "%": ("%", "percent", "per cent"),
    "$": ("$", "dollar", "usd"),
    "€": ("€", "euro", "eur"),
    "£": ("£", "pound", "gbp"),
    "¥": ("¥", "yen", "jpy", "yuan", "cny"),
}
# Characters beside a number that are searched for its unit.
_BESIDE = 12


@record
class WrittenNumber:
    """A number in a text."""

    value: Decimal
    before: str
    """The text right before it."""
    after: str
    """The text right after it."""

    def has_unit(self, unit: str) -> bool:
        """Return whether the sign of this unit, or its name, is beside the number."""
        before, after = self.before.rstrip().casefold(), self.after.lstrip().casefold()
        return any(before.endswith(name) or after.startswith(name) for name in _UNITS[unit])


def parse_number(text: str) -> WrittenNumber | None:
    """Return the number that a whole text is, with `%` or a currency sign beside it or not; None for others."""
    bare = text.strip().rstrip(".")
    unit = next((sign for sign in _UNITS if bare.startswith(sign) or bare.endswith(sign)), "")
    digits = bare.strip(f"{unit} ") if unit else bare
    if _SPACED.fullmatch(digits):
        digits = digits.replace(" ", "")
    match = _NUMBER.fullmatch(digits)
    value = _value_of(match) if match is not None else None
    return None if value is None else WrittenNumber(value=value, before="", after=unit)


def find_numbers(text: str) -> Iterator[WrittenNumber]:
    """Yield the numbers of a text. Digits in groups of three, separated by spaces, are also read as one number."""
    for match in _SPACED.finditer(text):
        if not _is_inside_more(text, match.start(), match.end()):
            yield _number_at(text, match.start(), match.end(), Decimal(match[0].replace(" ", "")))
    for match in _NUMBER.finditer(text):
        start = match.start("digits") if match["minus"] and _is_operator(text, match.start()) else match.start()
        if _is_inside_more(text, start, match.end()):
            continue
        value = _value_of(match)
        if value is not None:
            is_unsigned = start != match.start()
            yield _number_at(text, start, match.end(), value.copy_abs() if is_unsigned else value)


def has_number(text: str, wanted: WrittenNumber) -> bool:
    """Return whether the number is in the text; with its unit, if it has one."""
    return any(
        number.value == wanted.value and (not wanted.after or number.has_unit(wanted.after))
        for number in find_numbers(text)
    )


def _number_at(text: str, start: int, end: int, value: Decimal) -> WrittenNumber:
    return WrittenNumber(value=value, before=text[max(start - _BESIDE, 0) : start], after=text[end : end + _BESIDE])


def _is_operator(text: str, at: int) -> bool:
    """Return whether the sign at this position stands between two values, as in `1+2`."""
    return at > 0 and text[at] in "+-−" and (text[at - 1].isalnum() or text[at - 1] in ")]")  # noqa: RUF001


def _is_inside_more(text: str, start: int, end: int) -> bool:
    """Return whether the digits are a part of an identifier, a date, a time, a version or a range."""
    before, after = text[:start][-2:], text[end : end + 2]
    if before and (before[-1].isalpha() or before[-1] == "_"):
        return True
    joined_before = len(before) > 1 and before[-1] in _JOINTS and before[-2].isdigit()
    joined_after = len(after) > 1 and after[0] in _JOINTS and after[1].isdigit()
    return joined_before or joined_after


def _value_of(match: re.Match[str]) -> Decimal | None:
    digits = _normalize_digits(re.sub(f"['’_{_SPACES}]", "", match["digits"]))  # noqa: RUF001
    sign = "-" if (match["minus"] or "").strip().lower() in {"minus", "-", "−"} else ""  # noqa: RUF001
    try:
        return Decimal(f"{sign}{digits}{match['power'] or ''}") if digits is not None else None
    except InvalidOperation:
        return None


def _normalize_digits(digits: str) -> str | None:
    """Return digits with a decimal point and without separators; None for a version or another list of numbers.

    A comma before three digits separates thousands, and a single point is a decimal point. With both, the last one is
    decimal.
    """
    points, commas = digits.count("."), digits.count(",")
    if points and commas:
        decimal = "." if digits.rfind(".") > digits.rfind(",") else ","
        group = "," if decimal == "." else "."
        whole, _, part = digits.rpartition(decimal)
        return f"{whole.replace(group, '')}.{part}" if _are_groups(whole, group) else None
    if points > 1 or commas > 1 or (commas == 1 and re.fullmatch(r"\d{1,3},\d{3}", digits)):
        group = "." if points else ","
        return digits.replace(group, "") if _are_groups(digits, group) else None
    return digits.replace(",", ".")


def _are_groups(digits: str, separator: str) -> bool:
    first, *others = digits.split(separator)
    return len(first) in range(1, 4) and all(len(each) == 3 and each.isdigit() for each in others)  # noqa: PLR2004


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
