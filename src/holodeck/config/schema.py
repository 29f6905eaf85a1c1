"""The JSON Schema of an agent file, made from the models, so that it cannot say something else than they do."""

from __future__ import annotations

from typing import Any

from holodeck.models.agent import Agent
from holodeck.models.contract import COMMANDS, FIELD_TRANSPORTS, TRANSPORTS

_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_TEXTS = ("env", "headers")


def agent_schema() -> dict[str, Any]:
    """The schema, in the dialect that editors know."""
    schema = Agent.model_json_schema()
    definitions = schema["$defs"]
    for definition in (schema, *definitions.values()):
        for name, prop in definition.get("properties", {}).items():
            definition["properties"][name] = _with_variables(prop)
    _mcp_tool(definitions["MCPTool"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "HoloDeck agent",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _with_variables(prop: dict[str, Any]) -> dict[str, Any]:
    """A number or a truth value may also be written as a `${VARIABLE}`."""
    if prop.get("type") in {"integer", "number", "boolean"}:
        kept = {key: value for key, value in prop.items() if key in {"title", "description", "default"}}
        return {"anyOf": [{k: v for k, v in prop.items() if k not in kept}, _VARIABLE], **kept}
    if any(choice.get("type") in {"integer", "number", "boolean"} for choice in prop.get("anyOf", ())):
        return {**prop, "anyOf": [*prop["anyOf"], _VARIABLE]}
    return prop


def _mcp_tool(definition: dict[str, Any]) -> None:
    properties = definition["properties"]
    properties["env_file"] = dict(properties["envFile"])
    properties["type"] = {"const": "mcp", "type": "string"}
    definition["required"] = ["type", "name"]
    for name in _TEXTS:
        properties[name]["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    for name, transports in FIELD_TRANSPORTS.items():
        where = ", ".join(transport for transport in TRANSPORTS if transport in transports)
        about = properties[name].get("description", "")
        properties[name]["description"] = f"{about} (transport: {where})".strip()
    properties["command"]["description"] = f"What starts the server: {', '.join(COMMANDS)}. (transport: stdio)"
