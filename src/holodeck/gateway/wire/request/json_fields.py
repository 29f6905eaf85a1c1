"""Reads the fields of a client's JSON object and refuses what is wrong with them.

Every problem raises `BadRequestError` with the path of the field, a message and a code, as the API has them. The first
problem ends the reading. A field that no reader asks for is refused as unknown, so none is ignored silently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sized
from typing import Any, NoReturn

from holodeck.lib.errors import BadRequestError
from holodeck.lib.limits import MAX_INPUT_ITEMS, MAX_SHOWN_CHARS

# Texts of a list such as `include` or `stop_sequences`, of which each has a few.
MAX_LISTED_TEXTS = 1_000
EXTRA_ADVICE = "The operator of this gateway can allow it for a model, with 'allow_extra_parameters'."
_TYPE_NAMES = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    type(None): "null",
}


def refuse(message: str, param: str, code: str = "invalid_value") -> NoReturn:
    """Raise `BadRequestError` for a field."""
    raise BadRequestError(message, param=param, code=code)


def refuse_type(param: str, expected: str, value: object) -> NoReturn:
    got = _TYPE_NAMES.get(type(value), "something else")
    refuse(f"Invalid type for '{param}': expected {expected}, but got {got} instead.", param, "invalid_type")


def refuse_long_text(param: str, value: str, max_length: int) -> NoReturn:
    message = f"Invalid '{param}': string too long. Expected at most {max_length} characters, but got {len(value)}."
    refuse(message, param, "string_above_max_length")


def refuse_long_array(param: str, value: Sized, max_length: int) -> NoReturn:
    message = f"Invalid '{param}': array too long. Expected at most {max_length} elements, but got {len(value)}."
    refuse(message, param, "array_above_max_length")


def refuse_low(param: str, value: float, minimum: float, kind: str) -> NoReturn:
    message = f"Invalid '{param}': {kind} below minimum value. Expected at least {minimum}, but got {value}."
    refuse(message, param, f"{kind}_below_min_value")


def refuse_high(param: str, value: float, maximum: float, kind: str) -> NoReturn:
    message = f"Invalid '{param}': {kind} above maximum value. Expected at most {maximum}, but got {value}."
    refuse(message, param, f"{kind}_above_max_value")


def refuse_missing(param: str) -> NoReturn:
    refuse(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def refuse_unknown(param: str, *, advice: str = "") -> NoReturn:
    refuse(f"Unknown parameter: '{param}'. {advice}".rstrip(), param, "unknown_parameter")


def refuse_unsupported(param: str, reason: str) -> NoReturn:
    """Refuse a parameter of the API that this gateway does not support."""
    refuse(f"Unsupported parameter: '{param}'. {reason}", param, "unsupported_parameter")


def refuse_choice(param: str, value: object, choices: Collection[str], *, advice: str = "") -> NoReturn:
    *others, last = (repr(choice) for choice in choices)
    listed = f"{', '.join(others)} and {last}" if others else last
    refuse_value(param, value, listed, advice=advice)


def refuse_value(param: str, value: object, listed: str, *, advice: str = "") -> NoReturn:
    """Refuse a value that is none of those that are listed in words."""
    shown = repr(value)[:MAX_SHOWN_CHARS]
    refuse(f"Invalid value for '{param}': {shown}. Supported values are: {listed}. {advice}".rstrip(), param)


class JSONFields:
    """An object of the request. Reading a field marks it as known; `refuse_unread` refuses all others.

    `get_` methods return None for a field that is missing or null, and raise `BadRequestError` for a wrong value.
    """

    __slots__ = ("_unread", "path", "value")

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, dict):
            refuse_type(path or "body", "an object", value)
        self.value: Mapping[str, Any] = value
        self.path = path
        self._unread = value.copy()

    def path_of(self, key: str) -> str:
        """Return the path of a field from the root of the request."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Return True for a field that is present and not null."""
        return self.value.get(key) is not None

    def pop(self, key: str) -> Any:
        """Return the value without any check; None when it is missing."""
        return self._unread.pop(key, None)

    def get_text(self, key: str, *, max_length: int | None = None) -> str | None:
        value = self._unread.pop(key, None)
        if value is None:
            return None
        if not isinstance(value, str):
            refuse_type(self.path_of(key), "a string", value)
        if max_length is not None and len(value) > max_length:
            refuse_long_text(self.path_of(key), value, max_length)
        return value

    def require_text(self, key: str, *, max_length: int | None = None, may_be_empty: bool = True) -> str:
        value = self.get_text(key, max_length=max_length)
        if value is None:
            self.refuse_missing(key)
        if not value and not may_be_empty:
            refuse(f"Invalid '{self.path_of(key)}': empty string.", self.path_of(key), "empty_string")
        return value

    def refuse_missing(self, key: str) -> NoReturn:
        refuse_missing(self.path_of(key))

    def get_flag(self, key: str) -> bool | None:
        value = self._unread.pop(key, None)
        if value is not None and not isinstance(value, bool):
            refuse_type(self.path_of(key), "a boolean", value)
        return value

    def get_integer(self, key: str, *, minimum: int, maximum: int | None = None) -> int | None:
        value = self._unread.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            refuse_type(self.path_of(key), "an integer", value)
        self._check_range(key, value, minimum, maximum, "integer")
        return value

    def get_decimal(self, key: str, *, minimum: float, maximum: float) -> float | None:
        value = self._unread.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse_type(self.path_of(key), "a decimal", value)
        self._check_range(key, value, minimum, maximum, "decimal")
        return value

    def get_choice(self, key: str, choices: Collection[str]) -> str | None:
        value = self.get_text(key)
        if value is not None and value not in choices:
            refuse_choice(self.path_of(key), value, choices)
        return value

    def get_array(self, key: str, *, max_length: int = MAX_INPUT_ITEMS) -> list[Any] | None:
        """Read a list, always with a maximum: what is read by element must not be as long as a body allows."""
        value = self._unread.pop(key, None)
        if value is None:
            return None
        if not isinstance(value, list):
            refuse_type(self.path_of(key), "an array", value)
        if len(value) > max_length:
            refuse_long_array(self.path_of(key), value, max_length)
        return value

    def get_strings(
        self, key: str, *, max_length: int = MAX_LISTED_TEXTS, max_text_length: int | None = None
    ) -> list[str] | None:
        values = self.get_array(key, max_length=max_length)
        for index, value in enumerate(values or ()):
            if not isinstance(value, str):
                refuse_type(f"{self.path_of(key)}[{index}]", "a string", value)
            if max_text_length is not None and len(value) > max_text_length:
                refuse_long_text(f"{self.path_of(key)}[{index}]", value, max_text_length)
        return values

    def get_object(self, key: str) -> JSONFields | None:
        value = self._unread.pop(key, None)
        return None if value is None else JSONFields(value, self.path_of(key))

    def iter_objects(self, key: str, *, max_length: int = MAX_INPUT_ITEMS) -> Iterator[JSONFields]:
        for index, value in enumerate(self.get_array(key, max_length=max_length) or ()):
            yield JSONFields(value, f"{self.path_of(key)}[{index}]")

    def get_mapping(self, key: str) -> dict[str, Any] | None:
        """Return an object whose keys are not checked, such as a JSON Schema."""
        value = self._unread.pop(key, None)
        if value is not None and not isinstance(value, dict):
            refuse_type(self.path_of(key), "an object", value)
        return value

    def list_unread(self) -> list[str]:
        """List the fields that were not read, without nulls: SDKs send a null for every field that they know."""
        return [key for key, value in self._unread.items() if value is not None]

    def refuse_unread(self, *, advice: str = "") -> None:
        """Refuse fields that were not read, unless they are null."""
        for key in self.list_unread():
            refuse_unknown(self.path_of(key[:MAX_SHOWN_CHARS]), advice=advice)

    def _check_range(self, key: str, value: float, minimum: float, maximum: float | None, kind: str) -> None:
        where = self.path_of(key)
        # Not `value < minimum`, which is false for NaN.
        if not value >= minimum:
            refuse_low(where, value, minimum, kind)
        if maximum is not None and value > maximum:
            refuse_high(where, value, maximum, kind)
