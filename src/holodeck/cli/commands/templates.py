"""The files of a new project, as text that teaches while it works."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holodeck.cli.commands.init_templates import ServerTemplate
from holodeck.models.llm import API_KEY_VARIABLES, Provider

_ENDPOINTS = {
    Provider.OLLAMA: "http://localhost:11434",
    Provider.OPENAI_COMPATIBLE: "http://localhost:8000/v1",
    Provider.AZURE_OPENAI: "https://my-resource.openai.azure.com",
}

SCHEMA_FILE = "agent.schema.json"

INSTRUCTIONS = """\
You help the person who is talking to you.

- Use your tools for facts; do not guess what a tool can tell you.
- Say which tool an answer came from.
- When something is missing, ask for it.
"""

GITIGNORE = """\
.env
memory.jsonl
holodeck.db*
"""

WELCOME = """\
Welcome to HoloDeck!
This file is here so that the agent has something to read.
"""


def agent_yaml(
    name: str, description: str, provider: Provider, model: str | None, servers: Sequence[ServerTemplate]
) -> str:
    """The agent file of a new project."""
    parts = [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        f"# {name}: an agent for HoloDeck. Check it with: holodeck validate",
        f"# Editors complete it by {SCHEMA_FILE}; after an update of HoloDeck: holodeck schema > {SCHEMA_FILE}",
        "",
        f"name: {_quote_yaml(name)}",
        f"description: {_quote_yaml(description)}",
        "",
        *_model_lines(provider, model),
        "",
        "# What the model is told first. 'inline:' instead of 'file:' keeps it here.",
        "instructions:",
        "  file: instructions.md",
        "",
        "# MCP servers: each brings its own tools. Variables are written ${NAME}; secrets belong in .env, not here.",
        "tools:" if servers else "tools: []",
    ]
    for server in servers:
        parts += [f"  # {server.comment}"] if server.comment else []
        parts += ["  - type: mcp", f"    name: {server.name}", *(f"    {line}" for line in server.lines), ""]
    parts += [
        "# Questions with what their answers should use or say, for 'holodeck test'.",
        "test_cases: []",
    ]
    return "\n".join(parts).rstrip() + "\n"


def env_example(provider: Provider) -> str:
    """The variables that a person copies to `.env` and fills in."""
    variable = API_KEY_VARIABLES.get(provider)
    head = "# Copy this file to .env and fill it in. HoloDeck reads .env; git ignores it.\n"
    return head + (f"{variable}=\n" if variable else "# OPENAI_API_KEY=\n")


def _model_lines(provider: Provider, model: str | None) -> list[str]:
    if provider is Provider.REHEARSAL:
        return [
            "# The rehearsal model needs no key: it follows rules. For a real model, for example:",
            "#   provider: openai",
            "#   name: gpt-5-mini",
            '#   api_key: "${OPENAI_API_KEY}"',
            "model:",
            "  provider: rehearsal",
        ]
    lines = ["model:", f"  provider: {provider.value}"]
    lines += [f"  name: {_quote_yaml(model)}"] if model else []
    lines += [f"  endpoint: {_ENDPOINTS[provider]}"] if provider in _ENDPOINTS else []
    variable = API_KEY_VARIABLES.get(provider)
    return lines + ([f'  api_key: "${{{variable}:-}}"  # from the environment or .env'] if variable else [])


def _quote_yaml(text: str) -> str:
    """Text for YAML that stays as it is: quoted, and without references to variables."""
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)
