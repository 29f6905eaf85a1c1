"""Lists the fields of a tool: the leaves of its JSON Schema, each with a role derived from its name and type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from holodeck.lib.limits import MAX_SCHEMA_DEPTH
from holodeck.providers.rehearsal.stemming import stem, stems


class Role(StrEnum):
    """The kind of value that a field takes."""

    URL = auto()
    EMAIL = auto()
    ZONE = auto()
    CLOCK = auto()
    DATE = auto()
    PATTERN = auto()
    PATH = auto()
    REVISION = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    CHOICE = auto()
    CONSTANT = auto()
    TEXT = auto()
    OTHER = auto()
    """A value that no rule can find, such as an object without described fields."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Field:
    """A leaf of a schema. In `path`, 0 is the only element of an array of objects."""

    path: tuple[str | int, ...]
    schema: Mapping[str, Any]
    role: Role
    is_required: bool
    """Whether the field and all objects around it are required."""
    is_needed: bool
    """Whether the field is required in the object around it."""
    is_many: bool
    labels: frozenset[str]
    """Stems of its name."""
    heads: frozenset[str]
    """Stems of the last words of its name: `branch_name` is a name and a branch, `branch_type` only a type."""

    @property
    def name(self) -> str:
        """The path as text: `entities.name`."""
        return ".".join(part for part in self.path if isinstance(part, str))


_ROLES: tuple[tuple[Role, str], ...] = (
    (Role.URL, "url uri urls uris link href website webpage endpoint"),
    (Role.EMAIL, "email emails mail"),
    (Role.ZONE, "timezone timezones tz zone"),
    (Role.DATE, "date timestamp day deadline since until birthday datetime"),
    (Role.PATTERN, "pattern patterns glob regex"),
    (Role.PATH, "path paths file files filename filepath dir directory folder repository source destination src dst"),
    (Role.REVISION, "revision commit sha hash ref"),
    (Role.CLOCK, "time clock"),
)
_FORMATS = {
    "uri": Role.URL,
    "url": Role.URL,
    "email": Role.EMAIL,
    "date": Role.DATE,
    "date-time": Role.DATE,
    "time": Role.CLOCK,
}


def list_fields(schema: object) -> list[Field]:
    """Return the leaves of a tool's parameters, required ones first, otherwise in the order of the schema."""
    found = list(_walk_fields(schema, (), is_required=True, is_needed=True, depth=MAX_SCHEMA_DEPTH))
    return sorted(found, key=lambda field: not field.is_required)


def _walk_fields(
    schema: object, path: tuple[str | int, ...], *, is_required: bool, is_needed: bool, depth: int
) -> Iterator[Field]:
    plain = _without_null(schema)
    properties = plain.get("properties")
    if isinstance(properties, Mapping) and properties and depth > 0:
        required = plain.get("required")
        needed = set(required) if isinstance(required, list) else set()
        for name, inner in properties.items():
            is_wanted = name in needed
            inside = (*path, str(name))
            yield from _walk_fields(
                inner, inside, is_required=is_required and is_wanted, is_needed=is_wanted, depth=depth - 1
            )
        return
    items = _without_null(plain.get("items"))
    is_many = plain.get("type") == "array"
    if is_many and isinstance(items.get("properties"), Mapping) and items["properties"]:
        yield from _walk_fields(items, (*path, 0), is_required=is_required, is_needed=is_needed, depth=depth - 1)
    elif path:
        leaf = items if is_many else plain
        yield Field(
            path=path,
            schema=leaf,
            role=_role_of(str(path[-1]), leaf),
            is_required=is_required,
            is_needed=is_needed,
            is_many=is_many,
            labels=frozenset(stems(str(path[-1]))),
            heads=_heads_of(stems(str(path[-1]))),
        )


def _heads_of(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(words[-2:] if words[-1:] == (stem("name"),) else words[-1:])


def _without_null(schema: object) -> Mapping[str, Any]:
    """Return the schema without the alternative null."""
    if not isinstance(schema, Mapping):
        return {}
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            others = [each for each in schema[key] if isinstance(each, Mapping) and each.get("type") != "null"]
            outer = {name: value for name, value in schema.items() if name != key}
            return {**outer, **others[0]} if others else outer
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return {**schema, "type": next((kind for kind in kinds if kind != "null"), "null")}
    return schema


def _role_of(name: str, schema: Mapping[str, Any]) -> Role:
    if "const" in schema:
        return Role.CONSTANT
    if isinstance(schema.get("enum"), list):
        return Role.CHOICE
    kind = schema.get("type")
    if kind in {"number", "integer"}:
        return Role.NUMBER
    if kind == "boolean":
        return Role.BOOLEAN
    if kind not in {"string", None}:
        return Role.OTHER
    return _FORMATS.get(str(schema.get("format")), _role_of_name(name, str(schema.get("description", ""))))


def _role_of_name(name: str, description: str) -> Role:
    words = set(stems(name))
    if {stem("time"), stem("zone")} <= words or "IANA" in description:
        return Role.ZONE
    for role, names in _ROLES:
        if words & {stem(each) for each in names.split()}:
            return role
    return Role.TEXT
