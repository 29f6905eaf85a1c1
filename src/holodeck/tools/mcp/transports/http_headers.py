"""HTTP headers that repeat parts of a modern request, so that it can be routed without reading its body.

`Mcp-Method` and `Mcp-Name` come from the message. An input schema can mark arguments with `x-mcp-header`, which are
repeated in `Mcp-Param-` headers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from holodeck.tools.mcp.protocol.versions import mapping

ANNOTATION = "x-mcp-header"
_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_PLAIN = re.compile(r"[\x21-\x7E](?:[\x20-\x7E]*[\x21-\x7E])?")
_SENTINEL = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ANNOTATED_TYPES = frozenset({"string", "integer", "boolean"})

# Keywords whose values are schemas. Data (`default`, `enum`, `const`, `examples`) is not searched.
_SCHEMA_KEYWORDS = (
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_CONDITIONS = ("not", "if", "then", "else", "contentSchema")
_SCHEMA_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_MAP_KEYWORDS = ("patternProperties", "dependentSchemas", "$defs", "definitions")

ArgumentPath = tuple[str, ...]


class BadAnnotationError(ValueError):
    """The schema of a tool has an invalid `x-mcp-header`. Such a tool is not offered."""


def build_routing_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return `Mcp-Method`, and `Mcp-Name` for a request that names a tool, a prompt, a resource or a task."""
    headers = {"Mcp-Method": method}
    name = params.get(_NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = encode_header_value(name)
    return headers


def encode_header_value(text: str) -> str:
    """Return the text, encoded in base64 if a header cannot carry it unchanged."""
    if not text or (_PLAIN.fullmatch(text) and not _SENTINEL.fullmatch(text)):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode('ascii')}?="


def decode_header_value(text: str) -> str:
    """Return the text that `encode_header_value` has encoded; one that cannot be decoded as it is."""
    if not _SENTINEL.fullmatch(text):
        return text
    try:
        return base64.b64decode(text[len("=?base64?") : -len("?=")], validate=True).decode("utf-8")
    except ValueError:
        return text


def find_argument_headers(schema: Mapping[str, Any]) -> dict[ArgumentPath, str]:
    """Return the header of each annotated argument, by its path. Raises BadAnnotationError."""
    found: dict[ArgumentPath, str] = {}
    for path, inner in _iterate_schemas(schema):
        if ANNOTATION not in inner:
            continue
        token = inner[ANNOTATION]
        if not path:
            raise BadAnnotationError(f"{ANNOTATION} stands where no argument of its own is")
        where = ".".join(path)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise BadAnnotationError(f"{ANNOTATION} of '{where}' is not the name of a header")
        if inner.get("type") not in _ANNOTATED_TYPES:
            raise BadAnnotationError(f"{ANNOTATION} of '{where}' needs the type string, integer or boolean")
        if token.lower() in {other.lower() for other in found.values()}:
            raise BadAnnotationError(f"{ANNOTATION} '{token}' is used twice")
        found[path] = token
    return found


def build_argument_headers(annotations: Mapping[ArgumentPath, str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the `Mcp-Param-` headers of one call. An absent or null argument has none."""
    headers: dict[str, str] = {}
    for path, token in annotations.items():
        value: Any = arguments
        for key in path:
            value = mapping(value).get(key)
        if isinstance(value, bool):
            headers[f"Mcp-Param-{token}"] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            headers[f"Mcp-Param-{token}"] = encode_header_value(str(value))
    return headers


def _iterate_schemas(root: Mapping[str, Any]) -> Iterator[tuple[ArgumentPath | None, Mapping[str, Any]]]:
    """Yield every schema inside a schema, with its path if it is reached through `properties` alone, else None."""
    queue: list[tuple[ArgumentPath | None, Any]] = [((), root)]
    while queue:
        path, schema = queue.pop()
        if not isinstance(schema, dict):
            continue
        yield path, schema
        for name, inner in mapping(schema.get("properties")).items():
            queue.append((None if path is None else (*path, name), inner))
        for key in (*_SCHEMA_KEYWORDS, *_CONDITIONS):
            queue.append((None, schema.get(key)))
        for key in _SCHEMA_LIST_KEYWORDS:
            several = schema.get(key)
            queue.extend((None, inner) for inner in (several if isinstance(several, list) else ()))
        for key in _SCHEMA_MAP_KEYWORDS:
            queue.extend((None, inner) for inner in mapping(schema.get(key)).values())
