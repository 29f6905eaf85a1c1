"""Texts that `holodeck init` writes: the agent file with its MCP servers, and the files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

import click

from holodeck.config.server_names import name_for
from holodeck.lib.record import record
from holodeck.models.llm import PROVIDER_SPECS, Provider
from holodeck.models.tool_rules import SCOPED_NPM_NAME

_PACKAGE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@/._:+=~\[\]-]*")


@record
class ServerTemplate:
    """One MCP server in the new agent file: its name, an explaining comment, and its lines of YAML."""

    name: str
    comment: str
    lines: tuple[str, ...]


def _npm_template(name: str, package: str, description: str, comment: str, *more: str) -> ServerTemplate:
    lines = (f"description: {description}", f'server: "{package}"', "command: npx", f'args: ["-y", "{package}"]', *more)
    return ServerTemplate(name=name, comment=comment, lines=lines)


def _pypi_template(name: str, package: str, description: str, comment: str, *more: str) -> ServerTemplate:
    lines = (f"description: {description}", f"server: {package}", "command: uvx", f'args: ["{package}"]', *more)
    return ServerTemplate(name=name, comment=comment, lines=lines)


KNOWN_SERVERS: dict[str, ServerTemplate] = {
    "files": _npm_template(
        "files",
        "@modelcontextprotocol/server-filesystem",
        "Read and write the files in the data folder",
        "An npm package, started with npx. It may touch only the folders listed here.",
        "config:",
        "  allowed_directories:",
        '    - "${workspaceFolder}/data"',
    ),
    "memory": _npm_template(
        "memory",
        "@modelcontextprotocol/server-memory",
        "Remember facts between conversations",
        "A knowledge graph, kept in a file beside this one.",
        "env:",
        '  MEMORY_FILE_PATH: "${workspaceFolder}/memory.jsonl"',
    ),
    "everything": _npm_template(
        "everything",
        "@modelcontextprotocol/server-everything",
        "Try every feature of MCP",
        "The reference server: one tool for each thing that MCP can do.",
    ),
    "time": _pypi_template(
        "time", "mcp-server-time", "Tell the time in any time zone", "A PyPI package, started with uvx."
    ),
    "git": _pypi_template(
        "git", "mcp-server-git", "Read and change git repositories", "A PyPI package, started with uvx."
    ),
    "fetch": _pypi_template(
        "fetch", "mcp-server-fetch", "Fetch web pages as text", "It reaches the web: mind what it finds."
    ),
}


def require_template(text: str) -> ServerTemplate:
    """Return the entry for `--mcp TEXT`. Raises a usage error that lists the accepted forms."""
    if text in KNOWN_SERVERS:
        return KNOWN_SERVERS[text]
    if text.startswith(("https://", "http://")):
        return _remote_template(text)
    runner, _, package = text.partition(":")
    if SCOPED_NPM_NAME.fullmatch(text):
        runner, package = "npx", text
    if runner not in {"npx", "uvx", "docker"} or not _PACKAGE.fullmatch(package):
        known = ", ".join(KNOWN_SERVERS)
        forms = "npx:PACKAGE, uvx:PACKAGE, docker:IMAGE, @scope/package or an https:// URL"
        raise click.BadParameter(f"'{text}' is not one of {known}; other servers are given as {forms}")
    args = {"npx": f'["-y", "{package}"]', "uvx": f'["{package}"]', "docker": f'["run", "--rm", "-i", "{package}"]'}
    lines = ("description: Say what the agent should use it for", f'server: "{package}"', f"command: {runner}")
    return ServerTemplate(name=name_for(package), comment="", lines=(*lines, f"args: {args[runner]}"))


def _remote_template(url: str) -> ServerTemplate:
    if any(char in url for char in '"\\\n\r\t ${}'):
        raise click.BadParameter("the URL has characters that do not belong in one")
    host = urlsplit(url).hostname
    if not host:
        raise click.BadParameter("the URL has no host")
    transport = "sse" if url.rstrip("/").endswith("/sse") else "http"
    lines = ("description: Say what the agent should use it for", f"transport: {transport}", f'url: "{url}"')
    comment = 'A server somewhere else. Most want a token: headers: {Authorization: "Bearer ${NAME}"}'
    return ServerTemplate(name=name_for(host), comment=comment, lines=lines)


_GREETING_CASE = (
    "- name: needs no tool for a greeting",
    "  input: Hello!",
    "  # An empty list: no tool may be called.",
    "  expected_tools: []",
    "  forbidden: {texts: [password]}",
)
_CASES: dict[str, tuple[str, ...]] = {
    "files": (
        "- name: reads the file that it is asked about",
        "  input: Read the file welcome.md",
        "  # The tool that must be called, with an argument that the call must have.",
        "  expected_tools:",
        "    - {name: files.read_text_file, arguments: {path: welcome.md}}",
        "  # The answer must say this.",
        "  ground_truth: Welcome to HoloDeck",
        "- name: does not make up a file that is not there",
        "  input: Read the file missing.md",
        "  contains: missing.md",
        "  forbidden: {texts: [Welcome], tools: [files.write_file]}",
        "  max_turns: 4",
    ),
    "time": (
        "- name: asks the clock",
        "  input: What time is it in Europe/Berlin?",
        "  # The tool that must be called, with an argument that the call must have.",
        "  expected_tools:",
        "    - {name: time.get_current_time, arguments: {timezone: Europe/Berlin}}",
        "  max_turns: 4",
        *_GREETING_CASE,
    ),
}
"""Test cases by the name of the server that they need. They pass with the rehearsal model."""

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
    """Return the agent file of a new project."""
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
    parts += _test_case_lines(servers)
    return "\n".join(parts).rstrip() + "\n"


def env_example(provider: Provider) -> str:
    """Return the text of `.env.example`, with the variable for the provider's key."""
    variable = PROVIDER_SPECS[provider].key_variable
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
    spec = PROVIDER_SPECS[provider]
    lines += [f"  endpoint: {spec.example_endpoint}"] if spec.example_endpoint else []
    variable = spec.key_variable
    return lines + ([f'  api_key: "${{{variable}:-}}"  # from the environment or .env'] if variable else [])


def _test_case_lines(servers: Sequence[ServerTemplate]) -> list[str]:
    cases = next((_CASES[server.name] for server in servers if server.name in _CASES), _GREETING_CASE)
    return [
        "# Questions with what their answers must use and say. Run them with: holodeck test",
        "test_cases:",
        *(f"  {line}" for line in cases),
    ]


def _quote_yaml(text: str) -> str:
    # Quoted, and with `${` escaped, so that nothing is read as a reference to a variable.
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)
