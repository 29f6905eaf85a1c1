"""The base of all models that are read from files, with their field types and their rules.

`FileModel` refuses unknown keys, does not coerce values, and is immutable. `Substituted` is text in which a variable
was replaced: numbers and booleans may come from such text, and messages quote it as written in the file.
`validate_with_rules` adds rules between fields to the validation of a model, as `Violation`s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Self, TypeVar

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationInfo
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from holodeck.lib.errors import ConfigError
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.net.ip_policy import parse_networks
from holodeck.lib.record import record


class Substituted(str):
    """Text in which a `${VARIABLE}` was replaced. `written` is the text in the file, the only form that is shown."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, value: str, written: str) -> Self:
        self = super().__new__(cls, value)
        self.written = written
        return self

    def __repr__(self) -> str:
        """Return the value as written, where a message quotes a list or a mapping with this value."""
        return repr(self.written)

    def __deepcopy__(self, memo: object) -> Substituted:
        return self


def as_written(value: object) -> str:
    """Return a value as written in the file, with its `${VARIABLE}` references."""
    return value.written if isinstance(value, Substituted) else str(value)


def quote_value(value: object) -> str:
    """Return a value for a message: as written in the file, shortened, on one line, in quotes."""
    text = as_written(value)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return f"'{text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + '...'}'"


class FileModel(BaseModel):
    """A mapping in a configuration file."""

    model_config = ConfigDict(
        # The validator is built on first use: a command reads one or two of the dozen models.
        defer_build=True,
        extra="forbid",
        frozen=True,
        strict=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


def text_or_mapping(value: Any) -> str:
    """Return the discriminator of a value that is a text or a mapping, so that errors are about the form in use."""
    return "mapping" if isinstance(value, (dict, FileModel)) else "text"


def _coerce_number(value: Any) -> Any:
    """Convert the text of a variable to a number. A quoted number in the file itself is a mistake."""
    if isinstance(value, Substituted):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        raise PydanticCustomError("number_in_variable", "the variable does not hold a number")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        # 1e3 and 60.0 are floats in YAML, but meant as integers.
        return int(value)
    return value


def _coerce_boolean(value: Any) -> Any:
    if isinstance(value, Substituted):
        known = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        if value.strip().lower() not in known:
            raise PydanticCustomError("boolean_in_variable", "the variable does not hold true or false")
        return known[value.strip().lower()]
    return value


Integer = Annotated[int, BeforeValidator(_coerce_number)]
Number = Annotated[float, BeforeValidator(_coerce_number)]
Boolean = Annotated[bool, BeforeValidator(_coerce_boolean)]
NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
PUBLIC_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$"
PublicName = Annotated[str, StringConstraints(pattern=PUBLIC_NAME_PATTERN)]
"""A name that clients of a gateway see: of a model, an agent or a caller."""


Model = TypeVar("Model")


@record
class Violation:
    """A rule between fields that a mapping breaks, with the key that it is reported at."""

    key: str
    message: str
    fix: str = ""
    kind: type[ConfigError] | None = None
    """The exception class for it. None: the usual one of the file."""


def _check_networks(values: list[str], info: ValidationInfo) -> list[str]:
    for value in values:
        if not parse_networks([value]):
            fix = "Write an address, such as 10.20.0.5, or a network, such as 10.20.0.0/16."
            violation = Violation(key=str(info.field_name), message=f"{quote_value(value)} is not an address", fix=fix)
            raise PydanticCustomError("contract", "{text}", {"text": violation.message, "violation": violation})
    return values


Networks = Annotated[list[NonEmpty], AfterValidator(_check_networks)]
"""Addresses, and networks of them."""


def validate_with_rules(
    title: str,
    data: Any,
    handler: Callable[[Any], Model],
    rules: Callable[[dict[str, Any]], list[Violation]],
) -> Model:
    """Validate with the model's own `handler` and with `rules`, and raise one error with the problems of both.

    A problem that `handler` finds at the key of a violation is dropped.
    """
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
