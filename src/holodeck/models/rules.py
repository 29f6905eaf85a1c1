"""Rules between the fields of a model, checked together with the fields, so that a person learns of both at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from holodeck.lib.errors import ConfigError

Model = TypeVar("Model")


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A rule of the contract that a tool breaks. `key` is where in the tool, `message` the contract's own text."""

    key: str
    message: str
    fix: str = ""
    kind: type[ConfigError] | None = None
    """The error that stands for it. None: the usual one of the place where it is found."""


def validate_with_rules(
    title: str,
    data: Any,
    handler: Callable[[Any], Model],
    rules: Callable[[dict[str, Any]], list[Violation]],
) -> Model:
    """Run the model's own validation and its rules, and raise what both have found."""
    if not isinstance(data, dict):
        return handler(data)
    found = rules(data)
    details = [_violation_detail(violation) for violation in found]
    broken = {violation.key for violation in found}
    try:
        model = handler(data)
    except pydantic.ValidationError as error:
        details += [_repeated_detail(item) for item in error.errors() if not (item["loc"] and item["loc"][0] in broken)]
    if details:
        raise pydantic.ValidationError.from_exception_data(title, details)
    return model


def _violation_detail(violation: Violation) -> InitErrorDetails:
    error = PydanticCustomError("contract", "{text}", {"text": violation.message, "violation": violation})
    return InitErrorDetails(type=error, loc=(violation.key,), input=None)


def _repeated_detail(item: ErrorDetails) -> InitErrorDetails:
    context = {**item.get("ctx", {}), "text": item["msg"]}
    return InitErrorDetails(type=PydanticCustomError(item["type"], "{text}", context), loc=item["loc"], input=None)
