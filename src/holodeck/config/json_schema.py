"""JSON Schemas of configuration files, for editors, generated from the models and the docstrings of their fields.

A schema describes a file as written, before references are replaced: where a model expects more than a text, a
`${VARIABLE}` is valid as well. Rules that a schema cannot express are checked by `holodeck validate` only.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from pydantic import AliasChoices, BaseModel

from holodeck.config.secret_refs import SECRET_FIELDS
from holodeck.models.agent import Agent, SharedSettings
from holodeck.models.file_model import FileModel
from holodeck.models.gateway import GatewayFile
from holodeck.models.provider import NEEDS_ENDPOINT, NEEDS_NAME
from holodeck.models.transport import FIELD_TRANSPORTS, TRANSPORT_SPECS

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE: Schema = {"type": "string", "pattern": r"\$\{"}
_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
"""The keywords of JSON Schema by the names of pydantic, which leaves its own in the schema of a field whose validator
runs before that of the type."""
_ANNOTATIONS = ("title", "description", "default")
_TEXTS = ("env", "headers")
_EXAMPLE = re.compile(r"\sE\.g\.\s+`.*", re.DOTALL)
_ABSENT: Schema = {"type": "null"}
_DISABLED: Schema = {"properties": {"enabled": {"const": False}}, "required": ["enabled"]}


def agent_schema() -> Schema:
    """Return the schema of `agent.yaml`."""
    schema = _build_schema(Agent, "HoloDeck agent")
    tool = schema["$defs"]["MCPTool"]
    tool["required"] = ["type", "name"]
    names_transport, has_url = {"required": ["transport"]}, {"required": ["url"]}
    tool["allOf"] += _transport_rules("stdio", {"not": {"anyOf": [names_transport, has_url]}})
    tool["allOf"] += _transport_rules("http", {"not": names_transport, **has_url})
    return schema


def shared_schema() -> Schema:
    """Return the schema of `config.yaml`, the servers that several agents share."""
    schema = _build_schema(SharedSettings, "HoloDeck shared settings")
    _restrict_to_servers(schema)
    return schema


def gateway_schema() -> Schema:
    """Return the schema of `gateway.yaml`. A secret is a variable, or is in a file of its own."""
    schema = _build_schema(GatewayFile, "HoloDeck gateway")
    _restrict_to_servers(schema)
    for definition in (schema, *schema["$defs"].values()):
        properties = definition.get("properties", {})
        for name in sorted(SECRET_FIELDS & properties.keys()):
            secret = properties[name]
            annotations = {key: secret[key] for key in _ANNOTATIONS if key in secret}
            is_optional = name not in definition.get("required", ())
            schema_of_secret = {"anyOf": [_VARIABLE, _ABSENT]} if is_optional else _VARIABLE
            properties[name] = {**schema_of_secret, **annotations}
            _allow_file(definition, name)
    _allow_file(schema["$defs"]["Storage"], "url")
    return schema


SCHEMAS: Mapping[str, Callable[[], Schema]] = {
    "agent": agent_schema,
    "gateway": gateway_schema,
    "config": shared_schema,
}
"""The functions that generate a schema, by the kind of file."""


def schema_text(kind: str) -> str:
    """Return the schema of a kind of file, as indented JSON with a final line break."""
    return json.dumps(SCHEMAS[kind](), indent=2) + "\n"


_MODEL_REF = "#/$defs/LLM"


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a model's fields without their examples, by the name of the field in a file."""
    return {name: without_example(text) for name, text in field_docstrings(model).items()}


def without_example(docstring: str) -> str:
    """Return the docstring of a field without its last sentence, "E.g.

    `9000`, not `90000`.", which the reference shows.
    """
    return _EXAMPLE.sub("", docstring)


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a model's fields, inherited ones included, by the name of the field in a file."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            found |= _read_field_docstrings(inspect.getmodule(each)).get(each.__name__, {})
    return {_name_in_files(model, name): text for name, text in found.items() if name in model.model_fields}


def _build_schema(model: type[BaseModel], title: str) -> Schema:
    described = model.model_json_schema()
    models = file_models()
    for name, definition in (*described.get("$defs", {}).items(), (model.__name__, described)):
        texts = field_descriptions(models[name]) if name in models else {}
        for key, entry in definition.get("properties", {}).items():
            if key in texts:
                entry.setdefault("description", texts[key])
    simplified = _simplify(described)
    schema: Schema = {"$schema": _DIALECT, "title": title, **{k: v for k, v in simplified.items() if k != "title"}}
    definitions = schema["$defs"]
    _complete_tool(definitions["MCPTool"])
    if "InstructionsSource" in definitions:
        _require_exactly_one(definitions["InstructionsSource"], "inline", "file")
    if "JWTCallers" in definitions:
        _require_exactly_one(definitions["JWTCallers"], "jwks_url", "jwks_file")
    if "LLM" in definitions:
        _allow_model_names(schema)
        definitions["LLM"]["allOf"] = [
            _if_then(
                {"properties": {"provider": {"enum": sorted(needs)}}, "required": ["provider"]}, {"required": [key]}
            )
            for key, needs in (("name", NEEDS_NAME), ("endpoint", NEEDS_ENDPOINT))
        ]
    return schema


def _allow_model_names(schema: Any) -> None:
    """Allow the text `provider:name`, or a name, wherever a model is expected."""
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for part in parts:
        _allow_model_names(part)
    if isinstance(schema, dict) and schema.get("$ref") == _MODEL_REF:
        schema["anyOf"] = [{"type": "string", "minLength": 1}, {"$ref": schema.pop("$ref")}]


def file_models() -> dict[str, type[FileModel]]:
    """Return the models of all mappings of configuration files, by the names that they have in schemas."""
    return {each.__name__: each for each in _subclasses_of(FileModel)}


def _subclasses_of(model: type[FileModel]) -> Iterator[type[FileModel]]:
    for each in model.__subclasses__():
        yield each
        yield from _subclasses_of(each)


def _simplify(schema: Any) -> Any:
    """Return a schema of pydantic with keywords of JSON Schema only, and with variables where a value is not any
    text."""
    if isinstance(schema, list):
        return [_simplify(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain: Schema = {}
    key: str
    for key, value in schema.items():
        if key in {"properties", "$defs"}:
            plain[key] = {name: _simplify(each) for name, each in value.items()}
        elif key in {"default", "examples"}:
            plain[key] = value
        # `discriminator` is a keyword of OpenAPI.
        elif key != "discriminator":
            plain[_BOUNDS.get(key, key)] = _simplify(value)
    is_narrow = plain.get("type") in {"integer", "number", "boolean"} or plain.keys() & {"pattern", "enum"}
    if not is_narrow:
        return plain
    annotations = {key: plain.pop(key) for key in _ANNOTATIONS if key in plain}
    return {"anyOf": [plain, _VARIABLE], **annotations}


def _complete_tool(definition: Schema) -> None:
    properties = definition["properties"]
    properties["env_file"] = dict(properties["envFile"])
    # Which other programs a user allows is not in the file.
    properties["command"]["anyOf"] = [{"$ref": "#/$defs/CommandType"}, _ABSENT]
    del properties["command"]["title"]
    for name in _TEXTS:
        properties[name]["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    for name, transports in FIELD_TRANSPORTS.items():
        properties[name]["description"] += f" (transport: {', '.join(transports)})"
    definition["allOf"] = [
        rule
        for transport in TRANSPORT_SPECS
        for rule in _transport_rules(
            transport, {"properties": {"transport": {"const": transport}}, "required": ["transport"]}
        )
    ]


def _transport_rules(transport: str, condition: Schema) -> Iterator[Schema]:
    foreign = {key: _ABSENT for key, transports in FIELD_TRANSPORTS.items() if transport not in transports}
    needed = ("command", "server") if TRANSPORT_SPECS[transport].starts_process else ("url",)
    yield _if_then(condition, {"properties": foreign, "anyOf": [*({"required": [key]} for key in needed), _DISABLED]})


def _restrict_to_servers(schema: Schema) -> None:
    """Allow MCP servers only in `mcp_servers`, and make `type: mcp` optional."""
    schema["properties"]["mcp_servers"]["items"] = {"$ref": "#/$defs/MCPTool"}
    for other in ("FunctionTool", "AgentTool"):
        schema["$defs"].pop(other)
    schema["$defs"]["MCPTool"]["required"] = ["name"]


def _allow_file(definition: Schema, name: str) -> None:
    """Allow `NAME_file`, the path of a file with the secret, instead of `NAME`."""
    description = f"A file that holds '{name}', relative to this file."
    definition["properties"][f"{name}_file"] = {"type": "string", "minLength": 1, "description": description}
    required = definition.get("required", [])
    if name in required:
        definition["required"] = [key for key in required if key != name]
        _require_exactly_one(definition, name, f"{name}_file")
    else:
        definition["not"] = {"required": [name, f"{name}_file"]}


def _require_exactly_one(definition: Schema, *keys: str) -> None:
    definition["oneOf"] = [{"required": [key]} for key in keys]


def _if_then(condition: Schema, consequence: Schema) -> Schema:
    return {"if": condition, "then": consequence}


def _name_in_files(model: type[BaseModel], name: str) -> str:
    alias = model.model_fields[name].validation_alias
    first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
    return first if isinstance(first, str) else name


@cache
def _read_field_docstrings(module: ModuleType | None) -> dict[str, dict[str, str]]:
    """Return the docstrings of fields by class and field: the strings right below an annotated name, from the
    source."""
    if module is None:
        return {}
    classes = (node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef))
    return {each.name: dict(_strings_below_fields(each)) for each in classes}


def _strings_below_fields(definition: ast.ClassDef) -> list[tuple[str, str]]:
    found = []
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found.append((field.target.id, inspect.cleandoc(below.value.value)))
    return found
