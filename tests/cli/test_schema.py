"""`holodeck schema`: an editor that follows it says the same as `holodeck validate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from terminal import holodeck

from holodeck.models.agent import Agent
from holodeck.models.tool import MCPTool

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = holodeck("schema", cwd=tmp_path_factory.mktemp("schema"))
    assert done.returncode == 0
    result: dict[str, Any] = json.loads(done.stdout)
    jsonschema_rs.meta.validate(result)
    return result


def _accepts(schema: dict[str, Any], text: str) -> bool:
    return bool(jsonschema_rs.validator_for(schema).is_valid(yaml.safe_load(text)))


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("agent.yaml")), ids=lambda path: path.parent.name)
def test_the_shipped_examples_fit(schema: dict[str, Any], path: Path) -> None:
    jsonschema_rs.validate(schema, yaml.safe_load(path.read_text()))


def test_every_key_of_the_models_is_in_it(schema: dict[str, Any]) -> None:
    assert set(schema["properties"]) == set(Agent.model_fields)
    assert set(schema["$defs"]["MCPTool"]["properties"]) == {*MCPTool.model_fields, "envFile"}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("{name: a}", True),
        ("{nam: a}", False),
        ("{name: a, max_turns: 3}", True),
        ('{name: a, max_turns: "${N}"}', True),
        ('{name: a, max_turns: "3"}', False),
        ("{name: a, tools: [{type: mcp, name: t, command: npx, env_file: x}]}", True),
        ("{name: a, tools: [{type: mcp, name: t, command: npx, env: {PORT: 80}}]}", True),
        ("{name: a, tools: [{type: mcp, name: t, command: npm}]}", False),
        ("{name: a, tools: [{type: nope, name: t}]}", False),
        ("{name: a, tools: [{type: function, name: t, file: f, function: g}]}", True),
        ("{name: a, instructions: {file: x}}", True),
        ("{name: a, test_cases: [{input: x, expected_tools: [a, {name: b}]}]}", True),
    ],
)
def test_it_accepts_and_rejects_as_validation_does(schema: dict[str, Any], text: str, fits: bool) -> None:
    assert _accepts(schema, text) is fits
