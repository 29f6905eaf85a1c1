"""`holodeck init`: create a small project that runs as it is. Asks questions on a terminal; overwrites no file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import click

from holodeck.cli.commands import init_templates
from holodeck.cli.commands.init_templates import KNOWN_SERVERS, ServerTemplate, require_template
from holodeck.config.actions import list_actions
from holodeck.config.env_loader import PlaceholderVariables
from holodeck.config.json_schema import schema_text
from holodeck.lib.errors import ConfigError, ExecutionError
from holodeck.lib.escape import escape_unprintable
from holodeck.models.llm import PROVIDER_SPECS, Provider
from holodeck.runtime import read_agent
from holodeck.trust.check import save_trust
from holodeck.trust.store import open_trust_store

_PROJECT_FILES = ("agent.yaml", "instructions.md", ".env.example", ".gitignore", init_templates.SCHEMA_FILE)
"""The files that every project gets."""
_AGENT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ .-]{0,127}")
_EPILOG = """\b
Examples:
  holodeck init my-agent
  holodeck init my-agent --model openai/gpt-5-mini --mcp files --mcp time
  holodeck init my-agent --mcp npx:some-package --mcp https://mcp.example.com/mcp --non-interactive"""


@click.command("init", epilog=_EPILOG)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the agent (default: that of the folder).")
@click.option("--description", default="An agent that answers with the help of its tools", help="Purpose of the agent.")
@click.option(
    "--model",
    metavar="PROVIDER[/NAME]",
    help="Model, such as openai/gpt-5-mini (default: rehearsal, which needs no key).",
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
    if model is None and asks:
        model = click.prompt("Model provider", default="rehearsal", type=click.Choice([p.value for p in Provider]))
    provider, model_name = _parse_model(model or "rehearsal")
    if not mcp and asks:
        question = f"MCP servers, separated by commas ({', '.join(KNOWN_SERVERS)})"
        servers = click.prompt(question, default="files", value_proc=lambda answer: _parse_servers(answer.split(",")))
    else:
        servers = _parse_servers(mcp or ("files",))
    files = {
        "agent.yaml": init_templates.agent_yaml(name, description, provider, model_name, servers),
        "instructions.md": init_templates.INSTRUCTIONS,
        ".env.example": init_templates.env_example(provider),
        ".gitignore": init_templates.GITIGNORE,
        init_templates.SCHEMA_FILE: schema_text("agent"),
    }
    if any(server.name == "files" for server in servers):
        files["data/welcome.md"] = init_templates.WELCOME
    _write_files(folder, files, force=force)
    _trust(folder / "agent.yaml", made=files)
    click.echo(f"Made {escape_unprintable(str(folder))}:")
    for file in files:
        click.echo(f"  {file}")
    click.echo(f"\nNext: cd {escape_unprintable(str(folder))} && holodeck validate")


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


def _parse_model(text: str) -> tuple[Provider, str | None]:
    provider_name, _, model = text.partition("/")
    try:
        provider = Provider(provider_name)
    except ValueError:
        known = ", ".join(provider.value for provider in Provider)
        raise click.BadParameter(f"there is no provider '{provider_name}'; there are: {known}") from None
    return provider, model or PROVIDER_SPECS[provider].default_model


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
    """Whether the file, or a folder on the way to it, is a symbolic link, which may lead anywhere."""
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
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExecutionError(f"Cannot write {escape_unprintable(str(folder))}: {error.strerror}.") from None
