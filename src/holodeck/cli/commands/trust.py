"""`holodeck trust`: show what a file would do and trust it, list the trusted files, and take trust back."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import click

from holodeck.cli.default_file import resolve_file
from holodeck.cli.main import json_option
from holodeck.cli.output.stdin import can_ask
from holodeck.cli.output.trust_question import ask_trust, print_not_covered, show_actions
from holodeck.config.actions import Actions, list_actions
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.runtime import is_other_program_file, read_agent_or_gateway, read_servers
from holodeck.trust import check_trust, open_trust_store, record_path, save_trust

_DEFAULT_FILES = (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE, "mcp.json", ".mcp.json", ".vscode/mcp.json")
_EPILOG = """\b
Examples:
  holodeck trust                     ./agent.yaml: shows what it would do, then asks
  holodeck trust team/gateway.yaml
  holodeck trust --yes --json .vscode/mcp.json
  holodeck trust list
  holodeck trust revoke agent.yaml

\b
Options for a file: -y, --yes (trust it without the question), --json (print the result as JSON).
Exit codes: 0 the file is trusted now, 2 it is not."""
_LIST_EPILOG = """\b
Examples:
  holodeck trust list
  holodeck trust list --json | jq -r '.[].file'"""
_REVOKE_EPILOG = """\b
Examples:
  holodeck trust revoke agent.yaml
  holodeck trust revoke ~/projects/clone/gateway.yaml

\b
Exit codes: 0 done, 2 the file was not trusted."""


class _TrustGroup(click.Group):
    """A group whose first argument may be a file instead of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not any(word in {*self.commands, "-h", "--help"} - {"file"} for word in args[:1]):
            args = ["file", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != "file"]


@click.group("trust", cls=_TrustGroup, epilog=_EPILOG, subcommand_metavar="[FILE] | list | revoke FILE")
def command() -> None:
    """Show what a file would do, and trust it: an agent or gateway file, or any program's mcp.json.

    Nothing is started. `list` shows the files that you trust, `revoke` takes trust back.
    """


@command.command("file", hidden=True)
@click.argument("file", required=False, type=click.Path())
@click.option("-y", "--yes", is_flag=True, help="Trust the file without the question.")
@json_option()
def trust_file(file: str | None, yes: bool, as_json: bool) -> int:
    """Show what FILE would do, and ask whether you trust it."""
    path = resolve_file(file, _DEFAULT_FILES)
    actions = _read_actions(path)
    store = open_trust_store()
    verdict = check_trust(path, actions, environ={}, store=store)
    if verdict.state == "trusted":
        _print_result(path, actions, as_json=as_json, text="is trusted already; it would do nothing else.")
        return 0
    if not yes:
        if not can_ask():
            fix = "Run it at a terminal, or read what 'holodeck validate' shows and use --yes."
            raise ConfigError.of([Problem(message="there is no terminal to ask at", file=str(path), fix=fix)])
        show_actions(path, actions, verdict)
        if not ask_trust():
            raise ConfigError.of([Problem(message="the file is not trusted", file=str(path))])
    save_trust(path, actions, store)
    _print_result(path, actions, as_json=as_json, text="is trusted now.")
    return 0


@command.command("list", epilog=_LIST_EPILOG)
@json_option("Print the files as JSON.")
def list_files(as_json: bool) -> None:
    """List the files that you trust."""
    records = open_trust_store().list_records()
    if as_json:
        data = [{"file": each.path, **each.to_data(), "exists": os.path.lexists(each.path)} for each in records]
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    for each in records:
        day = time.strftime("%Y-%m-%d", time.localtime(each.trusted_at))
        gone = "" if os.path.lexists(each.path) else "  (the file is gone)"
        click.echo(f"{day}  {escape_unprintable(each.path)}{gone}")
    if not records:
        click.echo("You trust no file yet.", err=True)


@command.command("revoke", epilog=_REVOKE_EPILOG)
@click.argument("file", type=click.Path())
@json_option()
def revoke_file(file: str, as_json: bool) -> int:
    """Take back the trust in FILE: you are asked again before it does anything."""
    path = resolve_file(file, _DEFAULT_FILES) if Path(file).is_dir() else Path(file)
    was_trusted = open_trust_store().delete_record(path)
    if as_json:
        click.echo(json.dumps({"file": record_path(path), "revoked": was_trusted}, indent=2))
    elif was_trusted:
        click.echo(f"{escape_unprintable(record_path(path))} is no longer trusted.")
    else:
        click.echo(f"{escape_unprintable(record_path(path))} was not trusted.", err=True)
    return 0 if was_trusted else 2


def _read_actions(path: Path) -> Actions:
    if is_other_program_file(path):
        return list_actions(read_servers(path, kind="file"))
    return list_actions(read_agent_or_gateway(path))


def _print_result(path: Path, actions: Actions, *, as_json: bool, text: str) -> None:
    if not as_json:
        click.echo(f"{escape_unprintable(record_path(path))} {text}")
        print_not_covered(actions)
        return
    data: dict[str, Any] = {
        "file": record_path(path),
        "trusted": True,
        "digest": actions.digest,
        "not_covered": actions.not_covered,
        "actions": [action.to_data() for action in actions.actions],
    }
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))
