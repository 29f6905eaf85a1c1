"""Reads a body by the model that declares it, and refuses it in the words of the API.

Of several problems, the first in the order of the fields is reported, unless one is a member of a body that
is not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from holodeck.gateway.api.field_rows import refusal_reasons
from holodeck.gateway.api.model import APIModel, list_rows
from holodeck.gateway.wire.request.json_fields import (
    refuse,
    refuse_choice,
    refuse_high,
    refuse_long_array,
    refuse_long_text,
    refuse_low,
    refuse_missing,
    refuse_type,
    refuse_unknown,
    refuse_unsupported,
    refuse_value,
)

Model = TypeVar("Model", bound=APIModel)
Value = TypeVar("Value")

_EXPECTED = {
    "string_type": "a string",
    "bool_type": "a boolean",
    "int_type": "an integer",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
}
_NULLABLE = {*_EXPECTED, "listed"}
"""Errors that a required field has if it is null."""


def read_body(model: type[Model], body: object, where: str = "", context: object = None) -> Model:
    """Read a body, or the object at `where` in one. Raises `BadRequestError`, which names the field.

    `context`: what the validators of the model need to know.
    """
    try:
        # As `model_validate` does, without one more call for each tool of a request.
        read: Model = model.__pydantic_validator__.validate_python(body, context=context)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        _refuse(problems[0] if where else min(problems, key=_is_supported), where, model)
    return read


def require_kind(
    value: object,
    where: str,
    models: Mapping[str, type[APIModel]],
    key: str = "type",
    *,
    listed: Collection[str] = (),
) -> type[APIModel]:
    """Return the model of the object at `where`, which one of its members names. Raises `BadRequestError`.

    `listed`: what a refusal lists, if that is not all.
    """
    if not isinstance(value, dict):
        refuse_type(where, "an object", value)
    kind, at = value.get(key), f"{where}.{key}"
    if kind is None:
        refuse_missing(at)
    if not isinstance(kind, str):
        refuse_type(at, "a string", kind)
    if kind not in models:
        refuse_choice(at, kind, listed or tuple(models))
    return models[kind]


def check_value(check: Callable[[Value], Value], value: Value, where: str) -> Value:
    """Return what a validator of a model returns for the value at `where`. Raises `BadRequestError`."""
    try:
        return check(value)
    except PydanticCustomError as error:
        problem: Any = error.context
        refuse(f"Invalid '{where}': {problem['about']}", where, problem.get("code", ""))


def _is_supported(problem: ErrorDetails) -> bool:
    return problem["type"] not in ("none_required", "unsupported")


def _refuse(problem: ErrorDetails, where: str, model: type[APIModel]) -> NoReturn:
    for step in problem["loc"]:
        # The tag of one of several forms is no member of the body.
        if not (isinstance(step, str) and step.startswith("~")):
            where += f"[{step}]" if isinstance(step, int) else f".{step}" if where else step
    kind, value, limits = problem["type"], problem["input"], problem.get("ctx", {})
    if kind == "literal_error" and not isinstance(value, str):
        kind = "string_type"
    # An object that must not be empty is as good as missing.
    if kind in ("missing", "too_short") or (
        value is None and kind in _NULLABLE and "value" not in limits and where and not where.endswith("]")
    ):
        refuse_missing(where)
    match kind:
        case "literal_error":
            refuse_value(where, value, " and ".join(limits["expected"].rsplit(" or ", 1)))
        case "string_too_short":
            refuse(f"Invalid '{where}': empty string.", where, "empty_string")
        case "string_too_long":
            refuse_long_text(where, value, limits["max_length"])
        case "too_long":
            refuse_long_array(where, value, limits["max_length"])
        case "greater_than_equal":
            refuse_low(where, value, limits["ge"], "integer")
        case "less_than_equal":
            refuse_high(where, value, limits["le"], "integer")
        case _ if kind in _EXPECTED:
            refuse_type(where or "body", _EXPECTED[kind], value)
        case _:
            _refuse_declared(problem, where, model)


def _refuse_declared(problem: ErrorDetails, where: str, model: type[APIModel]) -> NoReturn:
    """Refuse a value that has not passed a check of its own model."""
    limits = problem.get("ctx", {})
    # It may be about a member of the value, which has no place of its own for pydantic.
    at = where + limits.get("at", "")
    match problem["type"]:
        case "unknown":
            refuse_unknown(f"{where}.{limits['key']}" if where else limits["key"])
        case "none_required" | "unsupported":
            reasons = refusal_reasons(list_rows(model))
            refuse_unsupported(at, reasons.get(at, problem["msg"]))
        case "absent":
            refuse_missing(at)
        case "listed":
            value = limits.get("value", problem["input"])
            refuse_value(at, value, limits["expected"], advice=limits.get("advice", ""))
        case "string_pattern_mismatch":
            expected = "Expected letters, digits, '_' and '-'."
            refuse(f"Invalid '{where}': string does not match pattern. {expected}", where)
        case "wrong_type":
            refuse_type(at, limits["expected"], limits["value"])
        case "exclusive":
            beside, _, _ = where.rpartition(".")
            refuse(f"Give only one of '{beside}.{limits['other']}' and '{at}'.", at)
        case _:
            refuse(f"Invalid '{at}': {limits['about']}", at, limits.get("code", ""))
