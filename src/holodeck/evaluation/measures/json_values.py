"""Checks of an answer as JSON: its schema, and values at paths inside it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from holodeck.evaluation.verdict import CheckResult
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.path import find_json_value, parse_json_path
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.models.test_case import JSONExpectation

# A fenced block of any language: a line that begins with three backticks, up to the next such line.
_FENCE = re.compile(r"^[ \t]*```[^`\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
# How far the sum of rounding errors of two decimal numbers may reach.
_ROUNDING = 1e-9


def parse_json_answer(answer: str) -> Any:
    """Return an answer that is JSON, or that of its first fenced block that is JSON. Raises `ValueError`."""
    try:
        return parse_json(answer)
    except ValueError as error:
        for block in _FENCE.finditer(answer):
            try:
                return parse_json(block[1])
            except ValueError:
                continue
        raise ValueError(f"the answer is not JSON ({error})") from None


async def check_json(answer: str, expected: JSONExpectation, checker: SchemaChecker) -> CheckResult:
    """Check the schema of an answer and the values inside it. All reasons are reported."""
    try:
        value = parse_json_answer(answer)
    except ValueError as error:
        return CheckResult(name="json", passed=False, reason=str(error))
    reasons = []
    if expected.answer_schema is not None:
        reasons += await _find_misfits(value, expected.answer_schema, checker)
    reasons += _find_wrong_values(value, expected.values, expected.tolerance)
    return CheckResult(name="json", passed=not reasons, reason="; ".join(reasons) or "the answer is as expected")


def find_difference(expected: Any, actual: Any, tolerance: float, path: str = "$") -> str | None:
    """Return the first difference between two JSON values, with its path; None if they are equal.

    Numbers are equal that differ by at most `tolerance`. Objects must have the same members, arrays the same length.
    """
    if _is_number(expected) and _is_number(actual):
        return None if _is_close(expected, actual, tolerance) else _describe_difference(path, expected, actual)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if expected.keys() != actual.keys():
            missing = ", ".join(map(str, expected.keys() - actual.keys()))
            extra = ", ".join(map(str, actual.keys() - expected.keys()))
            return f"{path} " + " and ".join(
                part for part in (missing and f"lacks {missing}", extra and f"has {extra} in addition") if part
            )
        inner = ((expected[key], actual[key], f"{path}.{key}") for key in expected)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return f"{path} has {len(actual)} elements, expected {len(expected)}"
        inner = ((each, other, f"{path}[{at}]") for at, (each, other) in enumerate(zip(expected, actual, strict=True)))
    else:
        is_same = type(expected) is type(actual) or (isinstance(expected, str) and isinstance(actual, str))
        return None if is_same and expected == actual else _describe_difference(path, expected, actual)
    return next((found for each in inner if (found := find_difference(each[0], each[1], tolerance, each[2]))), None)


async def _find_misfits(value: Any, schema: Mapping[str, Any], checker: SchemaChecker) -> list[str]:
    try:
        violations = await checker.find_violations(schema, value)
    except SchemaError as error:
        return [f"the schema cannot be used: {error}"]
    except UncheckedError as error:
        return [f"the answer could not be checked against the schema: {error}"]
    return [f"{f'$.{each.path}' if each.path else '$'} does not fit the schema: {each.message}" for each in violations]


def _find_wrong_values(value: Any, expected: Mapping[str, Any], tolerance: float) -> list[str]:
    reasons = []
    for path, wanted in expected.items():
        try:
            actual = find_json_value(value, parse_json_path(path))
        except LookupError:
            reasons.append(f"there is no {path}, expected {_show(wanted)}")
            continue
        difference = find_difference(wanted, actual, tolerance, path)
        reasons += [difference] if difference else []
    return reasons


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_close(expected: float, actual: float, tolerance: float) -> bool:
    if expected == actual:
        return True
    difference = abs(expected - actual)
    return tolerance > 0 and (difference <= tolerance or math.isclose(difference, tolerance, rel_tol=_ROUNDING))


def _describe_difference(path: str, expected: Any, actual: Any) -> str:
    return f"{path} is {_show(actual)}, expected {_show(expected)}"


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
