"""`holodeck init`: create a small project that runs as it is. Asks questions on a terminal; overwrites no file."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import click

from holodeck.cli.ask_model import ModelChoice, ask_model, parse_model
from holodeck.config.actions import list_actions
from holodeck.config.env_loader import PlaceholderVariables, load_env_file
from holodeck.config.json_schema import schema_text
from holodeck.config.server_names import name_for
from holodeck.lib.errors import ConfigError, ExecutionError
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.lib.system.files import replace_file
from holodeck.models.provider import PROVIDER_SPECS, Provider
from holodeck.models.tool_rules import SCOPED_NPM_NAME
from holodeck.runtime import read_agent
from holodeck.trust import open_trust_store, save_trust

_PACKAGE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@/._:+=~\[\]-]*")


@record
class ServerTemplate:
    """One MCP server in the new agent file: its name, an explaining comment, and its lines of YAML."""

    name: str
    comment: str
    lines: tuple[str, ...]


def _npm_template(name: str, package: str, description: str, comment: str, *more: str) -> ServerTemplate:
    lines = (f"description: {description}", "command: npx", f'args: ["-y", "{package}"]', *more)
    return ServerTemplate(name=name, comment=comment, lines=lines)


def _pypi_template(name: str, package: str, description: str, comment: str, *more: str) -> ServerTemplate:
    lines = (f"description: {description}", "command: uvx", f'args: ["{package}"]', *more)
    return ServerTemplate(name=name, comment=comment, lines=lines)


# With fixed versions, so that the same server is started each time.
KNOWN_SERVERS: dict[str, ServerTemplate] = {
    "files": _npm_template(
        "files",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
        "Read and write the files in the data folder",
        "An npm package, started with npx. It may touch only the folders listed here.",
        "config:",
        "  allowed_directories:",
        '    - "${workspaceFolder}/data"',
    ),
    "memory": _npm_template(
        "memory",
        "@modelcontextprotocol/server-memory@2026.8.31",
        "Remember facts between conversations",
        "A knowledge graph, kept in a file beside this one.",
        "env:",
        '  MEMORY_FILE_PATH: "${workspaceFolder}/memory.jsonl"',
    ),
    "everything": _npm_template(
        "everything",
        "@modelcontextprotocol/server-everything@2026.8.31",
        "Try every feature of MCP",
        "The reference server: one tool for each thing that MCP can do.",
    ),
    "time": _pypi_template(
        "time", "mcp-server-time==2026.10.19", "Tell the time in any time zone", "A PyPI package, started with uvx."
    ),
    "git": _pypi_template(
        "git", "mcp-server-git==2026.10.19", "Read and change git repositories", "A PyPI package, started with uvx."
    ),
    "fetch": _pypi_template(
        "fetch", "mcp-server-fetch==2026.10.24", "Fetch web pages as text", "It reaches the web: mind what it finds."
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
    return ServerTemplate(name=name_for(package), comment="", lines=(f"command: {runner}", f"args: {args[runner]}"))


def _remote_template(url: str) -> ServerTemplate:
    if any(char in url for char in '"\\\n\r\t ${}'):
        raise click.BadParameter("the URL has characters that do not belong in one")
    host = urlsplit(url).hostname
    if not host:
        raise click.BadParameter("the URL has no host")
    transport = "sse" if url.rstrip("/").endswith("/sse") else "http"
    lines = (f"transport: {transport}", f'url: "{url}"')
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


def agent_yaml(name: str, description: str, model: ModelChoice, servers: Sequence[ServerTemplate]) -> str:
    """Return the agent file of a new project."""
    parts = [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        f"# {name}: an agent for HoloDeck. Check it with: holodeck validate",
        f"# Editors complete it by {SCHEMA_FILE}; after an update of HoloDeck: holodeck schema > {SCHEMA_FILE}",
        "",
        f"name: {_quote_yaml(name)}",
        f"description: {_quote_yaml(description)}",
        "",
        *_model_lines(model),
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


def env_example(model: ModelChoice) -> str:
    """Return the text of `.env.example`, with the variable of the model's key."""
    head = "# Copy this file to .env and fill it in. HoloDeck reads .env; git ignores it.\n"
    return head + (f"{model.key_variable}=\n" if model.key_variable else "# OPENAI_API_KEY=\n")


def env_file(model: ModelChoice) -> str | None:
    """Return the text of `.env` with the key that was typed; None if there is none."""
    return f"{model.key_variable}={model.key.reveal()}\n" if model.key else None


def _model_lines(model: ModelChoice) -> list[str]:
    if model.provider is Provider.REHEARSAL:
        return [
            "# The rehearsal model needs no key: it follows rules. For a real model, for example:",
            "#   provider: openai",
            f"#   name: {PROVIDER_SPECS[Provider.OPENAI].default_model}",
            '#   api_key: "${OPENAI_API_KEY}"',
            "model:",
            "  provider: rehearsal",
        ]
    lines = ["model:", f"  provider: {model.provider}"]
    lines += [f"  name: {_quote_yaml(model.name)}"] if model.name else []
    lines += [f"  endpoint: {_quote_yaml(model.endpoint)}"] if model.endpoint else []
    variable = model.key_variable
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


_ENV_FILE = ".env"
_PROJECT_FILES = ("agent.yaml", "instructions.md", ".env.example", ".gitignore", SCHEMA_FILE)
"""The files that every project gets."""
_AGENT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ .-]{0,127}")
_EPILOG = """\b
Examples:
  holodeck init my-agent
  holodeck init my-agent --model gemini --mcp files --mcp time
  holodeck init my-agent --model openrouter/openai/gpt-6-luna
  holodeck init my-agent --mcp npx:some-package --mcp https://mcp.example.com/mcp --non-interactive"""


@click.command("init", epilog=_EPILOG)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the agent (default: that of the folder).")
@click.option("--description", default="An agent that answers with the help of its tools", help="Purpose of the agent.")
@click.option(
    "--model",
    metavar="PROVIDER[/NAME]",
    help="Model, such as groq or openai/gpt-5-mini (default: rehearsal, which needs no key).",
)
@click.option(
    "--mcp", multiple=True, metavar="SERVER", help=f"MCP server: {', '.join(KNOWN_SERVERS)}, or as below (repeatable)."
)
@click.option("--non-interactive", is_flag=True, help="Ask no questions; use the defaults.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(
    folder: Path,
    name: str | None,
    description: str,
    model: str | None,
    mcp: tuple[str, ...],
    non_interactive: bool,
    force: bool,
) -> None:
    """Create a new agent project in FOLDER."""
    asks = not non_interactive and sys.stdin.isatty() and sys.stdout.isatty()
    if not force:
        # Before the first question, whose answer would be in vain.
        _refuse_to_overwrite(folder, _PROJECT_FILES)
    name = _choose_agent_name(folder, name, asks)
    choice = _ask_model(folder) if model is None and asks else parse_model(model or "rehearsal")
    if not mcp and asks:
        question = f"MCP servers, separated by commas ({', '.join(KNOWN_SERVERS)})"
        servers = click.prompt(question, default="files", value_proc=lambda answer: _parse_servers(answer.split(",")))
    else:
        servers = _parse_servers(mcp or ("files",))
    files = {
        "agent.yaml": agent_yaml(name, description, choice, servers),
        "instructions.md": INSTRUCTIONS,
        ".env.example": env_example(choice),
        ".gitignore": GITIGNORE,
        SCHEMA_FILE: schema_text("agent"),
    }
    if any(server.name == "files" for server in servers):
        files["data/welcome.md"] = WELCOME
    env = env_file(choice)
    if env is not None:
        files[_ENV_FILE] = env
    _write_files(folder, files, force=force)
    _trust(folder / "agent.yaml", made=files)
    is_here = folder.resolve() == Path.cwd()
    click.echo("Made here:" if is_here else f"Made {escape_unprintable(str(folder))}:")
    for file in files:
        click.echo(f"  {file}")
    go_there = "" if is_here else f"cd {escape_unprintable(shlex.quote(str(folder)))} && "
    click.echo(f"\nNext: {go_there}holodeck chat")


def _ask_model(folder: Path) -> ModelChoice:
    file = folder / _ENV_FILE
    stored = load_env_file(file) if file.is_file() else {}
    return ask_model({**stored, **os.environ}, can_store_key=not file.exists())


def _trust(file: Path, *, made: Collection[str]) -> None:
    """Trust the new file: the user has just said what is in it. Without a store, the first use asks.

    In a folder that has settings or variables already, the first use asks as well: they may be a stranger's.
    `made`: the files that were written with it.
    """
    with suppress(ConfigError, ExecutionError):
        loaded = read_agent(file, environ=PlaceholderVariables(os.environ))
        is_ours = all(each.path in made for each in loaded.reads)
        if is_ours and all(item.is_personal or item.file == str(file) for item in loaded.tools):
            save_trust(file, list_actions(loaded), open_trust_store())


def _choose_agent_name(folder: Path, name_option: str | None, asks: bool) -> str:
    default = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.resolve().name).lstrip("0123456789_.-") or "my-agent"
    if not name_option and asks:
        return str(click.prompt("Name of the agent", default=default, value_proc=_check_agent_name))
    return _check_agent_name(name_option or default)


def _check_agent_name(name: str) -> str:
    if not _AGENT_NAME.fullmatch(name):
        raise click.BadParameter("a name begins with a letter and holds letters, digits, '_', '.', '-' and spaces")
    return name


def _parse_servers(texts: Iterable[str]) -> list[ServerTemplate]:
    servers = [require_template(text.strip()) for text in texts if text.strip()]
    names = [server.name for server in servers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise click.BadParameter(f"two of the servers would be named '{twice}'; add the second by hand")
    return servers


def _refuse_to_overwrite(folder: Path, files: Iterable[str]) -> None:
    existing = [file for file in files if (folder / file).exists() or _is_link_below(folder, file)]
    if existing:
        raise ExecutionError(
            f"{escape_unprintable(str(folder))} already has {', '.join(existing)}; nothing was written. "
            "Use --force to overwrite."
        )


def _is_link_below(folder: Path, file: str) -> bool:
    """Return whether the file, or a folder on the way to it, is a symbolic link, which may lead anywhere."""
    places = [folder / file, *(folder / parent for parent in Path(file).parents if parent != Path())]
    return any(place.is_symlink() for place in places)


def _write_files(folder: Path, files: dict[str, str], *, force: bool) -> None:
    """Write all files, or none if one of them exists and `force` is false. Raises `ExecutionError`.

    No symbolic link below the folder is followed: with `force` a link to a file is replaced, one to a folder refused.
    """
    if not force:
        _refuse_to_overwrite(folder, files)
    try:
        for file, text in files.items():
            target = folder / file
            if target.is_symlink():
                target.unlink()
            if _is_link_below(folder, file):
                raise ExecutionError(f"{escape_unprintable(str(target.parent))} is a symbolic link. Remove it first.")
            target.parent.mkdir(parents=True, exist_ok=True)
            if file == _ENV_FILE:
                # For its owner alone: it has a key.
                replace_file(target, text.encode())
            else:
                target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExecutionError(f"Cannot write {escape_unprintable(str(folder))}: {error.strerror}.") from None
