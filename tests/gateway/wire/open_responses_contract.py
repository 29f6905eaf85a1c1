"""Validates resources and events against the schemas of the Open Responses contract."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson

_FILE = Path(__file__).parent.parent / "fixtures" / "openresponses.json"


@cache
def _contract() -> dict[str, Any]:
    contract: dict[str, Any] = orjson.loads(_FILE.read_bytes())
    return contract


@cache
def _validator(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": _contract()["components"]}
    )


def contract_problems(name: str, value: Any) -> list[str]:
    """The problems of a value under the schema of this name."""
    return [f"{name}{list(each.instance_path)}: {each.message}" for each in _validator(name).iter_errors(value)]


def event_contract_problems(event: dict[str, Any]) -> list[str]:
    """The problems of an event under the schema of its type."""
    schema = _contract()["events"].get(event["type"])
    return [f"no such event: {event['type']}"] if schema is None else contract_problems(schema, event)
