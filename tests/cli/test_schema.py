"""`holodeck schema`: an editor that follows it says the same as `holodeck validate`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from holodeck_command import run_holodeck
from pydantic import BaseModel

from holodeck.lib.errors import ConfigError
from holodeck.models.agent import Agent, SharedSettings
from holodeck.models.gateway import GatewayFile
from holodeck.models.tool import MCPTool
from holodeck.runtime import read_agent, read_gateway

EXAMPLES = Path(__file__).parents[2] / "examples"


MODELS: dict[str, type[BaseModel]] = {"agent": Agent, "gateway": GatewayFile, "config": SharedSettings}


def _printed(*args: str, folder: Path) -> dict[str, Any]:
    done = run_holodeck("schema", *args, cwd=folder)
    assert done.returncode == 0
    result: dict[str, Any] = json.loads(done.stdout)
    jsonschema_rs.meta.validate(result)
    return result


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("schema")
    return {kind: _printed(kind, folder=folder) for kind in MODELS}


@pytest.fixture
def schema(schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return schemas["agent"]


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _subschemas(part)


def _accepts(schema: dict[str, Any], text: str) -> bool:
    return bool(jsonschema_rs.validator_for(schema).is_valid(yaml.safe_load(text)))


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("agent.yaml")), ids=lambda path: path.parent.name)
def test_the_shipped_examples_fit(schema: dict[str, Any], path: Path) -> None:
    jsonschema_rs.validate(schema, yaml.safe_load(path.read_text()))


def test_the_files_of_the_deployment_fit(schemas: dict[str, dict[str, Any]]) -> None:
    files = [(EXAMPLES.parent / "deploy" / "compose" / "gateway.yaml").read_text()]
    for path in (EXAMPLES.parent / "deploy" / "kubernetes").rglob("configmap.yaml"):
        files.append(yaml.safe_load(path.read_text())["data"]["gateway.yaml"])
    assert len(files) == 3
    for text in files:
        jsonschema_rs.validate(schemas["gateway"], yaml.safe_load(text))


def test_without_a_kind_it_is_that_of_an_agent(schema: dict[str, Any], tmp_path: Path) -> None:
    assert _printed(folder=tmp_path) == schema


@pytest.mark.parametrize("kind", MODELS)
def test_every_key_is_described_and_every_word_is_one_of_json_schema(
    schemas: dict[str, dict[str, Any]], kind: str
) -> None:
    schema = schemas[kind]
    assert set(schema["properties"]) >= set(MODELS[kind].model_fields)
    definitions = {kind: schema, **schema["$defs"]}
    silent = [
        (name, key)
        for name, definition in definitions.items()
        for key, about in definition.get("properties", {}).items()
        if not about.get("description")
    ]
    assert silent == []
    others = {"ge", "le", "gt", "lt", "discriminator"}
    assert [part for part in _subschemas(schema) if others & part.keys() and "properties" not in part] == []


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
        ("{name: a, tools: [{type: mcp, name: t, command: npx, server: s, env_file: x}]}", True),
        ("{name: a, tools: [{type: mcp, name: t, command: npx, server: s, env: {PORT: 80}}]}", True),
        ("{name: a, tools: [{type: mcp, name: t, command: npm}]}", False),
        ("{name: a, tools: [{type: nope, name: t}]}", False),
        ("{name: a, tools: [{type: function, name: t, file: f.py, function: g}]}", True),
        ("{name: a, instructions: {file: x}}", True),
        ("{name: a, test_cases: [{input: x, expected_tools: [a, {name: b}]}]}", True),
        ("{name: a, max_turns: 0}", False),
        ("{name: a, max_turns: 1001}", False),
        ('{name: "${N}"}', True),
        ("{name: a, model: {provider: openai, name: x, temperature: 2.5}}", False),
        ("{name: a, model: {provider: openai}}", False),
        ('{name: a, model: {provider: "${N}"}}', True),
        ("{name: a, instructions: {file: x, inline: y}}", False),
        ("{name: a, tools: [{type: mcp, name: t}]}", False),
        ("{name: a, tools: [{type: mcp, name: t, enabled: false}]}", True),
        ("{name: a, tools: [{type: mcp, name: t, url: 'https://h/'}]}", True),
        ("{name: a, tools: [{type: mcp, name: t, transport: http}]}", False),
        ("{name: a, tools: [{type: mcp, name: t, transport: http, url: 'https://h/', command: npx}]}", False),
        ("{name: a, tools: [{type: mcp, name: t, transport: http, url: 'https://h/', timeout: 0}]}", False),
        ("{name: a, tools: [{type: mcp, name: t, transport: http, url: 'https://h/', timeout: 1.5}]}", True),
    ],
)
def test_it_accepts_and_rejects_as_validation_does(
    schema: dict[str, Any], tmp_path: Path, text: str, fits: bool
) -> None:
    assert _accepts(schema, text) is fits
    (tmp_path / "agent.yaml").write_text(text)
    (tmp_path / "x").write_text("A=1")
    (tmp_path / "f.py").write_text("def g() -> None: ...\n")
    try:
        read_agent(tmp_path / "agent.yaml", environ={"N": "3" if "max_turns" in text else "rehearsal"}, home=tmp_path)
        is_valid = True
    except ConfigError:
        is_valid = False
    assert is_valid is fits


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("{models: [{name: a, model: {provider: rehearsal}}]}", True),
        ("{models: [{name: a, model: {provider: openai, name: x, api_key: literal}}]}", False),
        ('{models: [{name: a, model: {provider: openai, name: x, api_key: "${KEY}"}}]}', True),
        ("{models: [{name: a, model: {provider: openai, name: x, api_key_file: x}}]}", True),
        ('{models: [{name: a, model: {provider: openai, name: x, api_key: "${KEY}", api_key_file: x}}]}', False),
        ("{models: [{name: a, model: {}}], mcp_servers: [{name: t, url: 'https://h/'}]}", True),
        ("{models: [{name: a, model: {}}], mcp_servers: [{name: t, type: function, file: f, function: g}]}", False),
        ("{models: [{name: a, model: {}}], mcp_servers: [{name: t, url: 'https://h/', auth: {type: bearer}}]}", False),
        (
            "{models: [{name: a, model: {}}],"
            " mcp_servers: [{name: t, url: 'https://h/', auth: {type: bearer, token_file: x}}]}",
            True,
        ),
        ("{models: [{name: a, model: {}}], storage: {url_file: y}}", True),
        ("{models: [{name: a, model: {}}], storage: {retention_days: 0}}", False),
        ("{models: [{name: a, model: {}}], listen: {port: 65536}}", False),
        ('{models: [{name: a, model: {}}], listen: {port: "${PORT}"}}', True),
        ("{models: [{name: a, model: {}}], jwt: {issuer: i, audience: a}}", False),
        ("{models: [{name: a, model: {}}], seal_key_file: x}", True),
    ],
)
def test_that_of_a_gateway_accepts_and_rejects_as_validation_does(
    schemas: dict[str, dict[str, Any]], tmp_path: Path, text: str, fits: bool
) -> None:
    assert _accepts(schemas["gateway"], text) is fits
    (tmp_path / "gateway.yaml").write_text(text)
    (tmp_path / "x").write_text("0123456789abcdef" * 4)
    (tmp_path / "y").write_text("sqlite:///z.db")
    try:
        read_gateway(tmp_path / "gateway.yaml", environ={"KEY": "k", "PORT": "1"}, home=tmp_path)
        is_valid = True
    except ConfigError:
        is_valid = False
    assert is_valid is fits
