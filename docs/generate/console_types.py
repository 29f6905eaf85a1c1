"""`console/src/api/schema.ts`: the types of the API that the console reads, from the OpenAPI document.

The console says by its imports which schemas it needs; what they refer to is written as well. The module has types
only, so that the console is built without it: the compiler of its types reads it, and `make reference` writes it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holodeck.gateway.all_endpoints import list_routes
from holodeck.gateway.openapi.document import build_document

_SOURCE = Path(__file__).parents[2] / "console" / "src"
_IMPORT = re.compile(r'^(?:import|export) type \{([^}]*)\} from "(?:\./|(?:\.\./)+api/)schema";', re.MULTILINE)
_HEAD = "/** Objects of the gateway's API. Written by `make reference`, from the OpenAPI document; do not edit it. */\n"
# As prettier breaks lines in the console.
_WIDTH = 120
_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def build_module() -> str:
    """Return the text of the module."""
    schemas = build_document(list_routes())["components"]["schemas"]
    return "\n".join([_HEAD, *(_declaration(name, schemas[name]) for name in _find_used(_find_imported(), schemas))])


def _find_imported() -> Iterator[str]:
    for path in sorted(_SOURCE.rglob("*.ts*")):
        for names in _IMPORT.findall(path.read_text(encoding="utf-8")):
            yield from (name.split()[0] for name in names.split(",") if name.strip())


def _find_used(names: Iterable[str], schemas: Mapping[str, Any]) -> list[str]:
    """The schemas of these names and those that they refer to, in the order of the document."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += re.findall(r"#/components/schemas/(\w+)", json.dumps(schemas[name]))
    return [name for name in schemas if name in found]


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    kind = "interface {} " if "properties" in schema else "type {} = "
    end = "\n" if "properties" in schema else ";\n"
    return f"{_comment(schema, '')}export {kind.format(name)}{_type(schema, '')}{end}"


def _type(schema: Mapping[str, Any], indent: str) -> str:
    """The type of a schema. `indent`: of the line that it begins on."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    variants = schema.get("oneOf", schema.get("anyOf"))
    if variants and "properties" not in schema:
        return " | ".join(_type(each, indent) for each in variants)
    return " | ".join(_plain_type(kind, schema, indent) for kind in kinds) or "unknown"


def _plain_type(kind: str, schema: Mapping[str, Any], indent: str) -> str:
    if kind == "array":
        item = _type(schema["items"], indent)
        return f"({item})[]" if " | " in item and not item.startswith("{") else f"{item}[]"
    if kind != "object":
        return _TYPES[kind]
    if "properties" not in schema:
        return "Record<string, unknown>"
    lines = [_field(name, each, schema, f"{indent}  ") for name, each in schema["properties"].items()]
    return "\n".join(["{", *lines, f"{indent}}}"])


def _field(name: str, schema: Mapping[str, Any], record: Mapping[str, Any], indent: str) -> str:
    mark = "" if name in record.get("required", ()) else "?"
    declared = _type(schema, indent)
    line = f"{indent}{name}{mark}: {declared};"
    if len(line) > _WIDTH and "\n" not in line:
        line = f"{indent}{name}{mark}:" + "".join(f"\n{indent}  | {each}" for each in declared.split(" | ")) + ";"
    return _comment(schema, indent) + line


def _comment(schema: Mapping[str, Any], indent: str) -> str:
    about = schema.get("description", "")
    if not about:
        return ""
    line = f"{indent}/** {about} */\n"
    if len(line) <= _WIDTH:
        return line
    wrapped = textwrap.wrap(about, _WIDTH - len(indent) - 3)
    return "\n".join([f"{indent}/**", *(f"{indent} * {each}" for each in wrapped), f"{indent} */", ""])
