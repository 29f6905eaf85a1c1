"""The `output_type` of an agent: the JSON Schema that the model is told, and the conversion of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import pydantic

from holodeck.lib.errors import ConfigError

T = TypeVar("T")

# Model APIs accept only objects: a value of another type is the member of one.
_MEMBER = "value"


class OutputType(Generic[T]):
    """A type that the answers of an agent have. Raises `ConfigError` for one that JSON cannot describe."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        try:
            self._adapter: pydantic.TypeAdapter[T] = pydantic.TypeAdapter(kind)
            schema = self._adapter.json_schema()
        except pydantic.errors.PydanticUserError as error:
            raise ConfigError(f"'output_type' cannot be described to a model: {error.message}") from None
        self._is_wrapped = schema.get("type") != "object"
        self.schema: Mapping[str, Any] = _wrap_schema(schema) if self._is_wrapped else schema

    def parse(self, text: str) -> T:
        """Convert an answer. Raises pydantic's `ValidationError`."""
        if not self._is_wrapped:
            return self._adapter.validate_json(text)
        wrapped = pydantic.TypeAdapter(dict[str, Any]).validate_json(text)
        return self._adapter.validate_python(wrapped.get(_MEMBER))

    def find_problem(self, text: str) -> str | None:
        """Why an answer cannot be converted, for the model; None if it can."""
        try:
            self.parse(text)
        except pydantic.ValidationError as error:
            return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors())
        return None


def _wrap_schema(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    return {
        "type": "object",
        "properties": {_MEMBER: schema},
        "required": [_MEMBER],
        "additionalProperties": False,
        **definitions,
    }
