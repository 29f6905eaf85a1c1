"""A form that a server sends for a person to fill in: its fields, one question each, and what an answer means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_FAILURE_SHOWN

_BOOLEAN_WORDS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


@dataclass(frozen=True, kw_only=True)
class FormField:
    """One thing that a server wants to know."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool
    """False: an empty answer leaves it out, and its default is taken."""

    @property
    def prompt(self) -> str:
        schema = self.schema
        label = str(schema.get("title") or schema.get("description") or self.name)
        choices = f" ({', '.join(self._choices)})" if self._choices else ""
        several = ", separated by commas" if schema.get("type") == "array" else ""
        default = f" [{schema['default']}]" if "default" in schema else ("" if self.is_required else " [skip]")
        return "  " + one_line(f"{label}{choices}{several}{default}", MAX_FAILURE_SHOWN) + ": "

    def parse(self, text: str) -> str | int | float | bool | list[str]:
        """What the person typed, as the kind of value that was asked for. Raises `ValueError` in words."""
        match self.schema.get("type"):
            case "boolean":
                if text.lower() not in _BOOLEAN_WORDS:
                    raise ValueError("Please say yes or no.")
                return _BOOLEAN_WORDS[text.lower()]
            case "integer":
                return _parse_number(text, int)
            case "number":
                return _parse_number(text, float)
            case "array":
                return [self._parse_choice(part.strip()) for part in text.split(",") if part.strip()]
            case _:
                return self._parse_choice(text)

    def _parse_choice(self, text: str) -> str:
        if not text:
            raise ValueError("An answer is required.")
        if self._choices and text not in self._choices:
            raise ValueError("Please give one of the values in brackets.")
        return text

    @property
    def _choices(self) -> list[str]:
        items = self.schema.get("items")
        source = items if self.schema.get("type") == "array" and isinstance(items, Mapping) else self.schema
        listed = source.get("enum") or source.get("oneOf") or source.get("anyOf")
        if not isinstance(listed, list):
            return []
        return [str(each.get("const") if isinstance(each, Mapping) else each) for each in listed]


def form_fields(params: Mapping[str, Any]) -> Iterator[FormField]:
    """The fields of the form in a request, as far as it is one."""
    schema = params.get("requestedSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    properties, required = schema.get("properties"), schema.get("required")
    for name, described in (properties if isinstance(properties, Mapping) else {}).items():
        field = described if isinstance(described, Mapping) else {}
        needed = isinstance(required, list) and name in required and "default" not in field
        yield FormField(name=str(name), schema=field, is_required=needed)


def _parse_number(text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError("Please give a number.") from None
