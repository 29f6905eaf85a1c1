"""Values that a schema of the OpenAPI document allows, and values that differ from them in one place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gateway.documented_gateway import document

# Longer texts and lists are not made up: what reads them has the same limit from the same constant.
MAX_MADE_UP = 2_000
ADDED = "a field that was added"
_UNLIKE = {"string": 5, "integer": "5", "number": "5", "boolean": 1, "array": {}, "object": []}


class RecordedObject(dict[str, Any]):
    """A JSON object that records which of its keys a reader asks for, present or not, by the schema of the object."""

    def __init__(self, fields: Mapping[str, Any], place: str, reads: dict[str, set[str]]) -> None:
        super().__init__(fields)
        self.place = place
        self._reads = reads

    def copy(self) -> RecordedObject:
        return RecordedObject(self, self.place, self._reads)

    def pop(self, key: str, *default: Any) -> Any:
        self._reads.setdefault(self.place, set()).add(key)
        return super().pop(key, *default)


class SchemaSamples:
    """Makes up values for schemas. `reads` has the keys that readers of these values have asked for."""

    def __init__(self) -> None:
        self.reads: dict[str, set[str]] = {}
        self.fields: dict[str, set[str]] = {}
        """By the place of an object's schema, the fields that it has."""
        self._added: tuple[str, str] | None = None

    def add_field(self, place: str, key: str) -> None:
        """Give all objects of this schema, from now on, a field whose value is `ADDED`."""
        self._added = (place, key)

    def allowed(self, schema: Mapping[str, Any], place: str) -> Iterator[Any]:
        """Values that the schema allows. Every field and every variant is in one of them."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            yield from self.allowed(document()["components"]["schemas"][name], name)
        elif _has_variants(schema):
            for number, variant in enumerate(schema.get("oneOf") or schema["anyOf"]):
                yield from self.allowed(variant, f"{place}/{number}")
        elif "const" in schema:
            yield schema["const"]
        elif "enum" in schema:
            yield from (value for value in schema["enum"] if value is not None)
        elif "examples" in schema:
            yield from schema["examples"]
        else:
            yield from self._allowed_of_type(schema, place)

    def mutated(self, schema: Mapping[str, Any], place: str) -> Iterator[Any]:
        """Values that are wrong in one place, most of them: another variant of the schema may allow one."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            yield from self.mutated(document()["components"]["schemas"][name], name)
        elif _has_variants(schema):
            for number, variant in enumerate(schema.get("oneOf") or schema["anyOf"]):
                yield from self.mutated(variant, f"{place}/{number}")
        elif "type" in schema and schema["type"] != "null":
            yield _UNLIKE[_type_of(schema)]
            yield from self._mutated_of_type(schema, place)

    def _allowed_of_type(self, schema: Mapping[str, Any], place: str) -> Iterator[Any]:
        kind = _type_of(schema)
        if kind == "string":
            yield "x" * max(schema.get("minLength", 1), 1)
            yield from _texts(schema.get("maxLength", 0))
        elif kind in ("integer", "number"):
            yield schema.get("minimum", 1)
            yield schema.get("maximum", schema.get("minimum", 1))
        elif kind == "boolean":
            yield from (False, True)
        elif kind == "array":
            for item in self.allowed(schema["items"], f"{place}[]"):
                yield [item]
        elif kind == "object" and "properties" in schema:
            yield from self._allowed_objects(schema, place)
        elif kind == "object":
            yield {} if schema.get("maxProperties") == 0 else {"type": "object"}
        elif kind != "null":
            yield "anything"

    def _allowed_objects(self, schema: Mapping[str, Any], place: str) -> Iterator[Any]:
        base = self._smallest(schema, place)
        yield RecordedObject(base, place, self.reads)
        for name in _alternatives(schema)[1:]:
            other = {name: next(self.allowed(schema["properties"][name], f"{place}.{name}"))}
            yield RecordedObject({**_without(base, _alternatives(schema)), **other}, place, self.reads)
        for name, inner in schema["properties"].items():
            is_alternative = "oneOf" in schema and name in _alternatives(schema)
            rest = _without(base, _alternatives(schema)) if is_alternative else base
            for value in self.allowed(inner, f"{place}.{name}"):
                yield RecordedObject({**rest, name: value}, place, self.reads)

    def _mutated_of_type(self, schema: Mapping[str, Any], place: str) -> Iterator[Any]:
        kind = _type_of(schema)
        if "enum" in schema or "const" in schema:
            yield "no such value"
        elif kind == "string":
            yield from (text + "x" for text in _texts(schema.get("maxLength", 0)) if "maxLength" in schema)
            yield from [""] * ("minLength" in schema)
        elif kind in ("integer", "number"):
            yield from (schema[limit] + step for limit, step in (("minimum", -1), ("maximum", 1)) if limit in schema)
        elif kind == "array":
            for item in self.mutated(schema["items"], f"{place}[]"):
                yield [item]
            good = next(self.allowed(schema["items"], f"{place}[]"), None)
            if schema.get("maxItems", MAX_MADE_UP) < MAX_MADE_UP:
                yield [good] * (schema["maxItems"] + 1)
            yield from [[]] * ("minItems" in schema)
        elif kind == "object" and "properties" in schema:
            yield from self._mutated_objects(schema, place)
        elif kind == "object" and "maxProperties" in schema:
            yield {str(number): "x" for number in range(schema["maxProperties"] + 1)}

    def _mutated_objects(self, schema: Mapping[str, Any], place: str) -> Iterator[Any]:
        base = self._smallest(schema, place)
        yield {**base, "no_such_field": 1}
        for name in schema.get("required", ()):
            yield _without(base, [name])
        if _alternatives(schema):
            yield _without(base, _alternatives(schema))
        for name, inner in schema["properties"].items():
            for value in self.mutated(inner, f"{place}.{name}"):
                yield {**base, name: value}

    def _smallest(self, schema: Mapping[str, Any], place: str) -> dict[str, Any]:
        """The smallest object that the schema allows, with the field that `add_field` adds there."""
        fields = schema["properties"]
        self.fields[place] = set(fields)
        needed = (*schema.get("required", ()), *_alternatives(schema)[:1])
        base = {name: next(self.allowed(fields[name], f"{place}.{name}")) for name in needed}
        return base if self._added is None or self._added[0] != place else {**base, self._added[1]: ADDED}


def _has_variants(schema: Mapping[str, Any]) -> bool:
    """Whether a value is one of several kinds. Beside properties, that says which of them are needed."""
    return ("oneOf" in schema or "anyOf" in schema) and "properties" not in schema


def _alternatives(schema: Mapping[str, Any]) -> list[str]:
    """The fields of an object of which it must have one at least."""
    either = schema.get("anyOf") or schema.get("oneOf") or ()
    return [each["required"][0] for each in either] if "properties" in schema else []


def _without(base: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in base.items() if key not in names}


def _type_of(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "")
    return kind if isinstance(kind, str) else kind[0]


def _texts(length: int) -> list[str]:
    return ["x" * length] if 0 < length <= MAX_MADE_UP else []
