"""JSON Schema: measured, checked and compiled in one place, without ever fetching anything.

Schemas come from clients and servers that are not trusted. With the program of `lib.schema_worker`, this is the only
code that uses `jsonschema_rs`, and it does so offline: what a `$schema` or a `$ref` elsewhere names is refused, by its
name. `check_schema_size` and `check_schema_references` are linear and may run on the event loop. `check_schema` and
`compile_schema` may take seconds for a hostile schema: there they are only for one that `is_cheap_schema`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import urldefrag, urljoin

import orjson

from holodeck.lib.limits import KIB, MAX_RAW_SHOWN, MAX_SHOWN_CHARS
from holodeck.lib.types import record

# The largest real tools have 30 KiB; a model would read 60,000 tokens of this one.
MAX_SCHEMA_BYTES = 256 * KIB
# Keys and elements: 6 ms to read, 2 MB in memory; the largest real tools have 2,000.
MAX_SCHEMA_NODES = 10_000
# Of nesting: as deep as a file may be, and a body with other things around it.
MAX_SCHEMA_LEVELS = 64
# A schema this small, without references and patterns, takes microseconds.
MAX_INLINE_SCHEMA_NODES = 500


_DRAFTS = frozenset(
    f"json-schema.org/{path}"
    for path in (
        *("draft-04/schema", "draft-06/schema", "draft-07/schema", "draft/2019-09/schema", "draft/2020-12/schema"),
        "schema",
    )
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES = frozenset({"$schema", "$id", "id", *_REFERENCES})
"""Keywords whose value names a document."""
_SCHEMA_KEYWORDS = frozenset(
    {"items", "additionalItems", "prefixItems", "contains", "unevaluatedItems", "contentSchema"}
    | {"additionalProperties", "unevaluatedProperties", "propertyNames"}
    | {"anyOf", "oneOf", "allOf", "not", "if", "then", "else"}
)
"""Keywords whose value is a schema or a list of schemas."""
_NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose value has schemas under names that its author chose."""

_CHEAP = frozenset(
    {"type", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    | {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"}
    | {"format", "$defs", "definitions"}
)
"""Keywords that cost no more than the value has. `format` is not asserted; definitions cost where they are used."""
_CHEAP_IF_SHORT = frozenset({"enum", "required", "$defs", "definitions"})
_CHEAP_SCHEMAS = frozenset({"items", "additionalProperties", "not", "if", "then", "else"})
_CHEAP_LISTS = frozenset({"anyOf", "oneOf", "allOf"})
_LOCAL = ("#/$defs/", "#/definitions/")


class SchemaError(ValueError):
    """A schema that cannot be used; the text says why."""


class SchemaTooLargeError(SchemaError):
    """A schema over one of the limits."""


@record
class SchemaSize:
    """How much JSON a schema is."""

    bytes: int
    """As JSON text, without spaces."""
    nodes: int
    """Values of any kind, at any level."""


@record
class Violation:
    """One thing about a value that its schema forbids."""

    path: str
    """Where in the value, with dots between the keys; empty for the whole."""
    message: str


class SchemaBudget:
    """What several schemas may take together, on top of the limits of each."""

    def __init__(self, *, max_bytes: int, max_nodes: int) -> None:
        self._max_bytes, self._max_nodes = max_bytes, max_nodes
        self._bytes = self._nodes = 0

    def add(self, schema: Any) -> None:
        """Count one. Raises `SchemaError` when it is too large, alone or with the others, or refers elsewhere."""
        size = check_schema_size(schema)
        if self._bytes + size.bytes > self._max_bytes or self._nodes + size.nodes > self._max_nodes:
            limits = f"{self._max_bytes // KIB:,} KiB or {self._max_nodes:,} values"
            raise SchemaTooLargeError(f"with the schemas before it, it makes more than {limits}")
        check_schema_references(schema)
        self._bytes += size.bytes
        self._nodes += size.nodes


class CompiledSchema:
    """A schema that values can be checked against. Formats are not asserted."""

    def __init__(self, validator: Any) -> None:  # the library's classes have no common public type
        self._validator = validator

    def find_violations(self, value: Any, *, limit: int) -> list[Violation]:
        """The first few; none when the value fits."""
        if self._validator.is_valid(value):
            return []
        return [
            Violation(path=".".join(map(str, error.instance_path)), message=error.message[:MAX_RAW_SHOWN])
            for error in islice(self._validator.iter_errors(value), limit)
        ]


def check_schema(schema: Any) -> None:
    """Raise `SchemaError` for a schema that is too large, refers elsewhere, or is none by its own meta-schema."""
    check_schema_size(schema)
    check_schema_references(schema)
    compile_schema(schema)


def check_schema_size(schema: Any) -> SchemaSize:
    """The size of a schema. Raises `SchemaTooLargeError`; of too many values it reads no more than are allowed."""
    nodes, levels = 1, 0
    level = [schema]
    while level:
        levels += 1
        if levels > MAX_SCHEMA_LEVELS:
            raise SchemaTooLargeError(f"the schema is nested more than {MAX_SCHEMA_LEVELS} levels deep")
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict | list):
                nodes += len(node)
                if nodes > MAX_SCHEMA_NODES:
                    raise SchemaTooLargeError(f"the schema has more than {MAX_SCHEMA_NODES:,} values")
                below.extend(node.values() if isinstance(node, dict) else node)
        level = below
    try:
        size = len(orjson.dumps(schema, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError) as error:  # YAML and Python have values that JSON has not
        raise SchemaError(f"the schema is not JSON: {error}") from None
    if size > MAX_SCHEMA_BYTES:
        raise SchemaTooLargeError(f"the schema is larger than {MAX_SCHEMA_BYTES // KIB} KiB")
    return SchemaSize(bytes=size, nodes=nodes)


def check_schema_references(schema: Any) -> None:
    """Raise `SchemaError` for an unknown `$schema`, or a reference to another document, naming it.

    What stands in `enum`, `const`, `default` and `examples`, or under keywords that are not JSON Schema's, is data.
    """
    references: list[tuple[str, str]] = []
    documents: set[str] = set()
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        if not _NAMES.isdisjoint(node):
            if "$schema" in node and not _is_known_draft(node["$schema"]):
                raise SchemaError(f"'$schema' is {_quote(node['$schema'])}, which is no known draft of JSON Schema")
            documents.update(name for key in ("$id", "id") if isinstance(name := node.get(key), str))
            references += ((key, name) for key in _REFERENCES if isinstance(name := node.get(key), str))
        waiting.extend(_inner_schemas(node))
    if not references:
        return
    base = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    base = base if isinstance(base, str) else ""
    known = {_resolve(base, name) for name in documents} | {""}
    for key, name in references:
        if not name.startswith("#") and _resolve(base, name) not in known and not _is_known_draft(name):
            raise SchemaError(f"'{key}' is {_quote(name)}, which is not in the schema, and nothing is fetched")


def compile_schema(schema: Any) -> CompiledSchema:
    """Make a schema usable. Raises `SchemaError` when it is none, or refers to something that it does not have."""
    import jsonschema_rs

    check_schema_references(schema)
    try:
        return CompiledSchema(jsonschema_rs.validator_for(schema, offline=True, validate_formats=False))
    except ValueError as error:  # the library's errors are ValueErrors
        place = ".".join(map(str, getattr(error, "instance_path", ())))
        where = f" at '{place[:MAX_SHOWN_CHARS]}'" if place else ""
        reason = str(error).partition("\n")[0][:MAX_RAW_SHOWN]
        raise SchemaError(f"this is not a valid JSON Schema{where}: {reason}") from None


def is_cheap_schema(schema: Any) -> bool:
    """True when the schema, with its references followed, is small and has nothing that could take long.

    The walk itself is bounded: references that double, or that lead back to themselves, soon go over the limit.
    """
    waiting: list[Any] = [schema]
    seen = 0
    while waiting:
        seen += 1
        if seen > MAX_INLINE_SCHEMA_NODES:
            return False
        node = waiting.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            return False
        try:
            waiting.extend(_cheap_inner(node, schema))
        except LookupError:
            return False
    return True


def _is_known_draft(name: object) -> bool:
    if not isinstance(name, str):
        return False
    scheme, _, rest = name.partition("://")
    return scheme in ("http", "https") and rest.removesuffix("#") in _DRAFTS


def _resolve(base: str, name: str) -> str:
    """The document that a reference means, without the place in it."""
    try:
        return urldefrag(urljoin(base, name)).url
    except ValueError:  # it is no URL at all
        return name


def _quote(name: object) -> str:
    return repr(name)[: MAX_RAW_SHOWN // 2]


def _inner_schemas(node: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for key in _SCHEMA_KEYWORDS.intersection(node):
        value = node[key]
        if isinstance(value, list):
            found += value
        else:
            found.append(value)
    for key in _NAMED_SCHEMAS.intersection(node):
        value = node[key]
        if isinstance(value, dict):
            found += value.values()
    return found


def _cheap_inner(node: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas inside this one. Raises LookupError at anything that is not known to be cheap."""
    for key, value in node.items():
        if key in _CHEAP or key.startswith("x-"):
            if key in _CHEAP_IF_SHORT and not (
                isinstance(value, list | dict) and len(value) <= MAX_INLINE_SCHEMA_NODES
            ):
                raise LookupError(key)
        elif key == "properties" and isinstance(value, dict):
            yield from value.values()
        elif key in _CHEAP_SCHEMAS:
            yield value
        elif key in _CHEAP_LISTS and isinstance(value, list):
            yield from value
        elif key == "$ref":
            yield _local_target(value, root)
        else:
            raise LookupError(key)


def _local_target(reference: Any, root: Mapping[str, Any]) -> Any:
    for prefix in _LOCAL:
        if isinstance(reference, str) and reference.startswith(prefix):
            name = reference.removeprefix(prefix)
            if "/" not in name and "~" not in name and "%" not in name:
                return root[prefix[2:-1]][name]
    raise LookupError("$ref")
