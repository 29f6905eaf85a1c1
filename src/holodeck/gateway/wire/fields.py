"""Reads the fields of a client's JSON; the first that is wrong is refused by its path, and none is overlooked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

from holodeck.lib.errors import BadRequestError
from holodeck.lib.limits import MAX_SHOWN_CHARS

_NAMES = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    type(None): "null",
}


def refuse(message: str, param: str, code: str = "invalid_value") -> NoReturn:
    """Say what is wrong with a field."""
    raise BadRequestError(message, param=param, code=code)


def wrong_type(param: str, expected: str, value: object) -> NoReturn:
    got = _NAMES.get(type(value), "something else")
    refuse(f"Invalid type for '{param}': expected {expected}, but got {got} instead.", param, "invalid_type")


def unsupported(param: str, reason: str) -> NoReturn:
    """For what the API has and this gateway does not."""
    refuse(f"Unsupported parameter: '{param}'. {reason}", param, "unsupported_parameter")


def not_one_of(param: str, value: object, choices: Collection[str], *, advice: str = "") -> NoReturn:
    *most, last = (repr(choice) for choice in choices)
    listed = f"{', '.join(most)} and {last}" if most else last
    shown = repr(value)[:MAX_SHOWN_CHARS]
    refuse(f"Invalid value for '{param}': {shown}. Supported values are: {listed}. {advice}".rstrip(), param)


class Fields:
    """An object of the request. A field that nobody asked for is unknown, and `done` refuses it."""

    __slots__ = ("_left", "path", "value")

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, dict):
            wrong_type(path or "body", "an object", value)
        self.value: Mapping[str, Any] = value
        self.path = path
        self._left = value.copy()

    def at(self, key: str) -> str:
        """The path of a field."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """True when the client gave it, and not as null."""
        return self.value.get(key) is not None

    def lacks(self, keys: Collection[str]) -> bool:
        """True when the client gave none of these, as most clients do of most: then there is nothing to read."""
        return self.value.keys().isdisjoint(keys)

    def take(self, key: str) -> Any:
        """The value as it is; None when it is missing."""
        return self._left.pop(key, None)

    def text(self, key: str, *, longest: int | None = None) -> str | None:
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, str):
            wrong_type(self.at(key), "a string", value)
        if longest is not None and len(value) > longest:
            where = self.at(key)
            refuse(
                f"Invalid '{where}': string too long. Expected at most {longest} characters, but got {len(value)}.",
                where,
                "string_above_max_length",
            )
        return value

    def required(self, key: str, *, longest: int | None = None, may_be_empty: bool = True) -> str:
        value = self.text(key, longest=longest)
        if value is None:
            self.missing(key)
        if not value and not may_be_empty:
            refuse(f"Invalid '{self.at(key)}': empty string.", self.at(key), "empty_string")
        return value

    def missing(self, key: str) -> NoReturn:
        refuse(f"Missing required parameter: '{self.at(key)}'.", self.at(key), "missing_required_parameter")

    def flag(self, key: str) -> bool | None:
        value = self.take(key)
        if value is not None and not isinstance(value, bool):
            wrong_type(self.at(key), "a boolean", value)
        return value

    def integer(self, key: str, *, least: int, most: int | None = None) -> int | None:
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            wrong_type(self.at(key), "an integer", value)
        self._within(key, value, least, most, "integer")
        return value

    def decimal(self, key: str, *, least: float, most: float) -> float | None:
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            wrong_type(self.at(key), "a decimal", value)
        self._within(key, value, least, most, "decimal")
        return value

    def choice(self, key: str, choices: Collection[str]) -> str | None:
        value = self.text(key)
        if value is not None and value not in choices:
            not_one_of(self.at(key), value, choices)
        return value

    def array(self, key: str, *, longest: int | None = None) -> list[Any] | None:
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, list):
            wrong_type(self.at(key), "an array", value)
        if longest is not None and len(value) > longest:
            where = self.at(key)
            message = f"Invalid '{where}': array too long. Expected at most {longest} elements, but got {len(value)}."
            refuse(message, where, "array_above_max_length")
        return value

    def strings(self, key: str) -> list[str] | None:
        """An array of strings."""
        values = self.array(key)
        for index, value in enumerate(values or ()):
            if not isinstance(value, str):
                wrong_type(f"{self.at(key)}[{index}]", "a string", value)
        return values

    def object(self, key: str) -> Fields | None:
        value = self.take(key)
        return None if value is None else Fields(value, self.at(key))

    def objects(self, key: str, *, longest: int | None = None) -> Iterator[Fields]:
        for index, value in enumerate(self.array(key, longest=longest) or ()):
            yield Fields(value, f"{self.at(key)}[{index}]")

    def mapping(self, key: str) -> dict[str, Any] | None:
        """An object whose keys are the client's own business, such as a JSON Schema."""
        value = self.take(key)
        if value is not None and not isinstance(value, dict):
            wrong_type(self.at(key), "an object", value)
        return value

    def refuse_given(self, reason: str, *keys: str) -> None:
        """Parameters of the API that this gateway cannot honour. As null they say nothing."""
        for key in keys:
            if self.take(key) is not None:
                unsupported(self.at(key), reason)

    def done(self) -> None:
        """Refuse what nobody asked for. A null says nothing: SDKs send one for every field that they know."""
        for key in (key for key, value in self._left.items() if value is not None):
            where = self.at(key[:MAX_SHOWN_CHARS])
            refuse(f"Unknown parameter: '{where}'.", where, "unknown_parameter")

    def _within(self, key: str, value: float, least: float, most: float | None, kind: str) -> None:
        where = self.at(key)
        if not value >= least:  # written so that NaN is refused, too
            message = f"Invalid '{where}': {kind} below minimum value. Expected at least {least}, but got {value}."
            refuse(message, where, f"{kind}_below_min_value")
        if most is not None and value > most:
            message = f"Invalid '{where}': {kind} above maximum value. Expected at most {most}, but got {value}."
            refuse(message, where, f"{kind}_above_max_value")
