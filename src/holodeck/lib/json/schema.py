"""Limits, checks and compilation of JSON Schemas, without network access.

Schemas come from untrusted clients and servers. Besides `schema_worker_program`, this is the only code that uses
`jsonschema_rs`, and it does so offline: a `$schema` or `$ref` that names another document is refused, and the error
quotes it. `check_parsed_schema_size`, `check_schema_references` and `SchemaBudget` are linear and may run on the event
loop. `check_schema` and `compile_schema` may take seconds for a hostile schema: on the event loop, call them only where
`is_cheap_schema` is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import urldefrag, urljoin

import orjson

from holodeck.lib.limits import KIB, MAX_RAW_SHOWN, MAX_SHOWN_CHARS
from holodeck.lib.record import record

# Size of one schema as JSON. The largest real tools have 30 KiB; 256 KiB are some 60,000 tokens for a model.
MAX_SCHEMA_BYTES = 256 * KIB
# Keys and elements of one schema: 6 ms to walk, 2 MB in memory. The largest real tools have 2,000.
MAX_SCHEMA_NODES = 10_000
# Levels of nesting of one schema: as many as a YAML file may have, and fewer than a JSON body, which wraps it.
MAX_SCHEMA_LEVELS = 64
# Nodes of a schema that is checked on the event loop: one of this size without patterns takes microseconds.
MAX_INLINE_SCHEMA_NODES = 500

# Lists around a value that leave it `MAX_SCHEMA_LEVELS` of the 254 levels that orjson writes.
_OUTER_LEVELS = 254 - MAX_SCHEMA_LEVELS

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
"""Keywords whose value is a mapping from names to schemas."""

_CHEAP = frozenset(
    {"type", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    | {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"}
    | {"format", "$defs", "definitions"}
)
"""Keywords whose cost is linear in the value. `format` is not asserted; definitions cost where they are referenced."""
_CHEAP_IF_SHORT = frozenset({"enum", "required", "$defs", "definitions"})
_CHEAP_SCHEMAS = frozenset({"items", "additionalProperties", "not", "if", "then", "else"})
_CHEAP_LISTS = frozenset({"anyOf", "oneOf", "allOf"})
_LOCAL = ("#/$defs/", "#/definitions/")


class SchemaError(ValueError):
    """The schema cannot be used; the message says why."""


class SchemaTooLargeError(SchemaError):
    """The schema exceeds one of the limits."""


@record
class Violation:
    """One mismatch between a value and its schema."""

    path: str
    """Position in the value, its keys joined by dots; empty for the value itself."""
    message: str


class SchemaBudget:
    """Common limits of several schemas that were parsed from JSON, in addition to the limits of each one.

    The values of a schema are counted only when the upper bound that its text gives does not fit any more.
    """

    def __init__(self, *, max_bytes: int, max_nodes: int) -> None:
        self._max_bytes, self._max_nodes = max_bytes, max_nodes
        # `_bytes` and `_nodes` have the upper bounds of the schemas that are not counted yet.
        self._bytes = self._nodes = self._uncounted_bytes = self._uncounted_nodes = 0
        self._uncounted: list[Any] = []

    def add(self, schema: Any) -> None:
        """Count a schema. Raises `SchemaError` if it is too large, alone or with the others, or refers elsewhere."""
        text = check_parsed_schema_size(schema)
        nodes = 1 + text.count(b"{") + text.count(b"[") + text.count(b",")
        is_bound = self._fits(len(text), nodes)
        if not is_bound:
            self._nodes += sum(map(_count_nodes, self._uncounted)) - self._uncounted_nodes
            self._bytes += sum(len(orjson.dumps(each)) for each in self._uncounted) - self._uncounted_bytes
            self._uncounted, self._uncounted_bytes, self._uncounted_nodes = [], 0, 0
            nodes = _count_nodes(schema)
        if not self._fits(len(text), nodes):
            limits = f"{self._max_bytes // KIB:,} KiB or {self._max_nodes:,} values"
            raise SchemaTooLargeError(f"with the schemas before it, it makes more than {limits}")
        # Keywords that can be wrong begin with `$`. Most schemas have none of them, or their draft alone.
        named = text.count(b'"$')
        if named and not (named == 1 and isinstance(schema, dict) and _is_known_draft(schema.get("$schema"))):
            check_schema_references(schema)
        self._bytes += len(text)
        self._nodes += nodes
        if is_bound:
            self._uncounted.append(schema)
            self._uncounted_bytes += len(text)
            self._uncounted_nodes += nodes

    def try_add_all(self, schemas: Sequence[Any], text: bytes) -> bool:
        """Count schemas by a text of `dump_shallow` that has all of them, so that none is larger than the text.

        Return False, and count nothing, if that does not show that each can be used: then `add` them one by one.
        """
        nodes = text.count(b"{") + text.count(b"[") + text.count(b",")
        if nodes >= MAX_SCHEMA_NODES or len(text) > MAX_SCHEMA_BYTES or not self._fits(len(text), nodes):
            return False
        # Keywords that can be wrong begin with `$`.
        if b'"$' in text:
            return False
        self._bytes += len(text)
        self._nodes += nodes
        self._uncounted += schemas
        self._uncounted_bytes += len(text)
        self._uncounted_nodes += nodes
        return True

    def _fits(self, size: int, nodes: int) -> bool:
        return self._bytes + size <= self._max_bytes and self._nodes + nodes <= self._max_nodes


class CompiledSchema:
    """A schema that values can be checked against. Formats are not asserted."""

    # `Any`: the validator classes of the library have no common public type.
    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def find_violations(self, value: Any, *, limit: int) -> list[Violation]:
        """Return the first `limit` violations; an empty list if the value matches."""
        if self._validator.is_valid(value):
            return []
        return [
            Violation(path=".".join(map(str, error.instance_path)), message=error.message[:MAX_RAW_SHOWN])
            for error in islice(self._validator.iter_errors(value), limit)
        ]


def check_schema(schema: Any) -> None:
    """Raise `SchemaError` for a schema that is too large, refers elsewhere, or violates its meta-schema."""
    check_schema_size(schema)
    check_schema_references(schema)
    compile_schema(schema)


def check_parsed_schema_size(schema: Any) -> bytes:
    """Return the JSON text of a schema that was parsed from JSON, or raise `SchemaTooLargeError`.

    It is walked only if its text has so many commas and brackets that it may exceed a limit. Not for objects of
    Python or YAML, in which one object can stand in many places: the text of a small one can be endless.
    """
    try:
        text = orjson.dumps(schema)
    except (TypeError, ValueError):
        return check_schema_size(schema)
    brackets = text.count(b"{") + text.count(b"[")
    if brackets >= MAX_SCHEMA_LEVELS or brackets + text.count(b",") >= MAX_SCHEMA_NODES or len(text) > MAX_SCHEMA_BYTES:
        return check_schema_size(schema)
    return text


def dump_shallow(values: list[Any]) -> bytes | None:
    """Return the JSON text of a list; None if a schema in it may be nested deeper than `MAX_SCHEMA_LEVELS`."""
    nested: list[Any] = values
    for _ in range(_OUTER_LEVELS):
        nested = [nested]
    try:
        return orjson.dumps(nested)[_OUTER_LEVELS:-_OUTER_LEVELS]
    except (TypeError, ValueError):
        return None


def check_schema_size(schema: Any) -> bytes:
    """Return the JSON text of a schema, or raise `SchemaTooLargeError`. The walk stops at the limit."""
    _count_nodes(schema)
    try:
        text = orjson.dumps(schema, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError) as error:
        # YAML and Python have values that JSON does not.
        raise SchemaError(f"the schema is not JSON: {error}") from None
    if len(text) > MAX_SCHEMA_BYTES:
        raise SchemaTooLargeError(f"the schema is larger than {MAX_SCHEMA_BYTES // KIB} KiB")
    return text


def _count_nodes(schema: Any) -> int:
    """Return how many values a schema has, of any kind and at any level, or raise `SchemaTooLargeError`."""
    nodes, levels = 1, 0
    level = [schema]
    while level:
        levels += 1
        if levels > MAX_SCHEMA_LEVELS:
            raise SchemaTooLargeError(f"the schema is nested more than {MAX_SCHEMA_LEVELS} levels deep")
        below: list[Any] = []
        for node in level:
            if isinstance(node, (dict, list)):
                nodes += len(node)
                if nodes > MAX_SCHEMA_NODES:
                    raise SchemaTooLargeError(f"the schema has more than {MAX_SCHEMA_NODES:,} values")
                below.extend(node.values() if isinstance(node, dict) else node)
        level = below
    return nodes


def check_schema_references(schema: Any) -> None:
    """Raise `SchemaError` for an unknown `$schema` or a reference to another document; the message quotes it.

    Values of `enum`, `const`, `default`, `examples` and of keywords outside JSON Schema are data, and are not searched.
    """
    references: list[tuple[str, str]] = []
    documents: set[str] = set()
    queue = [schema]
    while queue:
        node = queue.pop()
        if not isinstance(node, dict):
            continue
        if not _NAMES.isdisjoint(node):
            if "$schema" in node and not _is_known_draft(node["$schema"]):
                raise SchemaError(f"'$schema' is {_quote(node['$schema'])}, which is no known draft of JSON Schema")
            documents.update(name for key in ("$id", "id") if isinstance(name := node.get(key), str))
            references += ((key, name) for key in _REFERENCES if isinstance(name := node.get(key), str))
        queue.extend(_inner_schemas(node))
    if not references:
        return
    base = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    base = base if isinstance(base, str) else ""
    known = {_resolve(base, name) for name in documents} | {""}
    for key, name in references:
        if not name.startswith("#") and _resolve(base, name) not in known and not _is_known_draft(name):
            raise SchemaError(f"'{key}' is {_quote(name)}, which is not in the schema, and nothing is fetched")


def compile_schema(schema: Any) -> CompiledSchema:
    """Compile a schema. Raises `SchemaError` if it is invalid or has a reference that leads nowhere."""
    import jsonschema_rs

    check_schema_references(schema)
    try:
        return CompiledSchema(jsonschema_rs.validator_for(schema, offline=True, validate_formats=False))
    except ValueError as error:
        # The errors of the library are subclasses of ValueError.
        path = ".".join(map(str, getattr(error, "instance_path", ())))
        where = f" at '{path[:MAX_SHOWN_CHARS]}'" if path else ""
        reason = str(error).partition("\n")[0][:MAX_RAW_SHOWN]
        raise SchemaError(f"this is not a valid JSON Schema{where}: {reason}") from None


def is_cheap_schema(schema: Any) -> bool:
    """Return whether the schema, with its references followed, is small and has only keywords of linear cost.

    The walk is bounded: references that multiply, or that form a cycle, soon exceed the limit.
    """
    queue: list[Any] = [schema]
    seen = 0
    while queue:
        seen += 1
        if seen > MAX_INLINE_SCHEMA_NODES:
            return False
        node = queue.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            return False
        try:
            queue.extend(_cheap_inner(node, schema))
        except LookupError:
            return False
    return True


def _is_known_draft(name: object) -> bool:
    if not isinstance(name, str):
        return False
    scheme, _, rest = name.partition("://")
    return scheme in ("http", "https") and rest.removesuffix("#") in _DRAFTS


def _resolve(base: str, name: str) -> str:
    """Return the URL of the document that a reference names, without its fragment; text that is no URL as it is."""
    try:
        return urldefrag(urljoin(base, name)).url
    except ValueError:
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
    """Yield the schemas inside this one. Raises LookupError at a keyword that is not known to be cheap."""
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
