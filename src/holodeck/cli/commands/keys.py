"""`holodeck keys`: keys for the callers of a gateway, in its file. A key is printed once; the file has only its hash.

`create` without a file prints the entry to be pasted. The other commands change the file in place and leave the rest of
it as it is written. A file stays trusted: keys are no part of what it does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from holodeck.cli.default_file import require_gateway_file
from holodeck.cli.main import json_option
from holodeck.cli.output.terminal import Terminal
from holodeck.config.agent_loader import DEFAULT_GATEWAY_FILE
from holodeck.config.edit.caller_keys import CallerKeyFile, build_entry, check_entry, describe_entry
from holodeck.config.edit.yaml_entries import format_yaml_item
from holodeck.gateway.auth.callers import hash_key, new_key
from holodeck.lib.escape import escape_unprintable
from holodeck.models.callers import Scope
from holodeck.models.file_model import PUBLIC_NAME_PATTERN

_DURATION = re.compile(r"(\d{1,6})([smhd])")
_LIMIT = re.compile(r"([a-z_]+)\s*=\s*(\d{1,12})")
_BUDGET = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)/([a-z]+)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_KINDS = tuple(Scope.model_fields)
_COLUMNS = ("NAME", "ADMIN", "MAY USE", "LIMITS", "OLD KEY")
_ADMIN_HELP = (
    "An operator: reads the runs of all callers, changes keys and servers. With --allow-... options, only /metrics and "
    "the servers that they allow."
)

_EPILOG = """\b
Examples:
  holodeck keys create alice             then put the entry under 'keys:' in gateway.yaml
  holodeck keys create ops --admin -f gateway.yaml
  holodeck keys list
  holodeck keys update alice --allow-models 'small*' --budget 20/month
  holodeck keys rotate alice --grace 24h
  holodeck keys revoke alice"""
_CREATE_EPILOG = """\b
Examples:
  holodeck keys create alice             prints the entry, for 'keys:' in gateway.yaml
  holodeck keys create ops --admin       an operator: reads runs of all callers, changes keys and servers
  holodeck keys create ci -f gateway.yaml --allow-models 'small*' --allow-tools 'github.*,!github.delete_*'
  holodeck keys create bot -f gateway.yaml --limits requests_per_minute=60,in_flight=4 --budget 20/month

\b
Patterns are names or globs, separated by commas; '!' denies and wins. An option that is not given allows everything of
its kind; '' allows nothing of it. Limits are those of 'keys[].limits' in the gateway file."""
_UPDATE_EPILOG = """\b
Examples:
  holodeck keys update alice --allow-models 'small*'           its other patterns stay
  holodeck keys update alice --allow-all --allow-models small  this, and everything else of the other kinds
  holodeck keys update alice --limits in_flight=4 --no-budget
  holodeck keys update alice --admin

\b
What is not given stays as it is, and the key goes on working. --allow-all, --no-limits and --no-budget remove what the
key has, before another option sets it anew."""
_LIST_EPILOG = """\b
Examples:
  holodeck keys list
  holodeck keys list -f team/gateway.yaml --json | jq -r '.[].name'"""
_REVOKE_EPILOG = """\b
Examples:
  holodeck keys revoke alice
  holodeck keys revoke alice -f team/gateway.yaml"""
_ROTATE_EPILOG = """\b
Examples:
  holodeck keys rotate alice                  the key before is refused at once
  holodeck keys rotate alice --grace 7d       both keys are accepted for seven days

\b
A duration is a number with s, m, h or d."""

_settings_options = (
    click.option("--allow-models", multiple=True, metavar="PATTERNS", help="Models that the caller may use."),
    click.option("--allow-agents", multiple=True, metavar="PATTERNS", help="Agents that the caller may use."),
    click.option("--allow-servers", multiple=True, metavar="PATTERNS", help="MCP servers that the caller may use."),
    click.option(
        "--allow-tools", multiple=True, metavar="PATTERNS", help="Tools that the caller may use: server.tool."
    ),
    click.option(
        "--allow-prompts", multiple=True, metavar="PATTERNS", help="Prompts that the caller may use: server.prompt."
    ),
    click.option(
        "--limits",
        multiple=True,
        metavar="NAME=NUMBER",
        callback=lambda _, __, value: _parse_limits(value),
        help="Limits of the caller, separated by commas.",
    ),
    click.option(
        "--budget",
        metavar="AMOUNT/PERIOD",
        callback=lambda _, __, value: _parse_budget(value),
        help="What the caller may spend in each hour, day, week or month.",
    ),
)
_file_option = click.option(
    "-f", "--file", type=click.Path(), help=f"The gateway file, or its folder. Left out: ./{DEFAULT_GATEWAY_FILE}."
)


def _parse_duration(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    """Parse the option `--grace`."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value)
    if found is None:
        raise click.BadParameter("a duration is a number with s, m, h or d, such as 24h")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def _parse_limits(options: Sequence[str]) -> dict[str, int]:
    """Parse the options `--limits`. Which names there are, the file says."""
    limits: dict[str, int] = {}
    for entry in _split_patterns(options):
        found = _LIMIT.fullmatch(entry)
        if found is None:
            raise click.BadParameter("a limit is a name with a number, such as requests_per_minute=60")
        limits[found[1]] = int(found[2])
    return limits


def _parse_budget(value: str | None) -> dict[str, Any] | None:
    """Parse the option `--budget`."""
    if value is None:
        return None
    found = _BUDGET.fullmatch(value)
    if found is None:
        raise click.BadParameter("a budget is an amount with its period, such as 20/month")
    amount = float(found[1])
    return {"amount": int(amount) if amount.is_integer() else amount, "period": found[2]}


def _add_settings_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of what a caller may do."""
    for option in reversed(_settings_options):
        function = option(function)
    return function


@click.group("keys", epilog=_EPILOG)
def command() -> None:
    """Create, list, change, rotate and revoke keys for the callers of a gateway."""


@command.command("create", epilog=_CREATE_EPILOG)
@click.argument("name")
@click.option("-f", "--file", type=click.Path(), help="Add the entry to this gateway file. Left out: print it.")
@click.option("--admin", is_flag=True, help=_ADMIN_HELP)
@_add_settings_options
@json_option("Print the key and its entry as JSON.")
def create(
    name: str,
    file: str | None,
    admin: bool,
    limits: Mapping[str, int],
    budget: Mapping[str, Any] | None,
    as_json: bool,
    **allow: Sequence[str],
) -> None:
    """Create a key for the caller NAME and show it once."""
    if not re.fullmatch(PUBLIC_NAME_PATTERN, name):
        raise click.BadParameter("a name holds letters, digits, '_', '.', ':', '/' and '-'")
    key = new_key()
    entry = build_entry(name, hash_key(key))
    if admin:
        entry["admin"] = True
    settings = {"allow": _read_scope(allow), "limits": limits, "budget": budget}
    entry |= {field: value for field, value in settings.items() if value}
    if file is None:
        check_entry(entry)
        _print_key(key, name, entry, as_json=as_json)
        return
    key_file = _require_key_file(file)
    key_file.add(entry)
    _print_key(key, name, entry, as_json=as_json, file=key_file.path)


@command.command("list", epilog=_LIST_EPILOG)
@_file_option
@json_option("Print the callers as JSON.")
def list_keys(file: str | None, as_json: bool) -> None:
    """List the callers that have a key, and what they may use."""
    key_file = _require_key_file(file)
    entries = key_file.list_entries()
    if as_json:
        click.echo(json.dumps([describe_entry(entry) for entry in entries], indent=2, ensure_ascii=False))
    elif entries:
        Terminal().table(_COLUMNS, [_row_of(describe_entry(entry)) for entry in entries])
    else:
        click.echo(f"{escape_unprintable(str(key_file.path))} has no keys.", err=True)


@command.command("revoke", epilog=_REVOKE_EPILOG)
@click.argument("name")
@_file_option
@json_option()
def revoke(name: str, file: str | None, as_json: bool) -> None:
    """Remove the caller NAME from the gateway file: its keys are refused."""
    key_file = _require_key_file(file)
    key_file.remove(name)
    if as_json:
        click.echo(json.dumps({"name": name, "file": str(key_file.path), "revoked": True}, indent=2))
    else:
        click.echo(f"{name} is removed from {escape_unprintable(str(key_file.path))}.")
    _say_applied()


@command.command("rotate", epilog=_ROTATE_EPILOG)
@click.argument("name")
@_file_option
@click.option(
    "--grace",
    metavar="DURATION",
    callback=_parse_duration,
    help="How long the key before is accepted as well. Left out: not at all.",
)
@json_option("Print the key as JSON.")
def rotate(name: str, file: str | None, grace: timedelta | None, as_json: bool) -> None:
    """Give the caller NAME a new key and show it once. What it has stored stays its own."""
    key_file = _require_key_file(file)
    key = new_key()
    rotated = key_file.rotate(name, hash_key(key), grace)
    _print_key(key, name, rotated, as_json=as_json, file=key_file.path)
    if "old_hash_expires" in rotated:
        click.echo(f"The key before is accepted until {rotated['old_hash_expires']}.", err=True)


@command.command("update", epilog=_UPDATE_EPILOG)
@click.argument("name")
@_file_option
@click.option("--admin/--no-admin", default=None, help=_ADMIN_HELP)
@_add_settings_options
@click.option("--allow-all", is_flag=True, help="Remove the patterns that the caller has.")
@click.option("--no-limits", is_flag=True, help="Remove its limits: those for all callers hold.")
@click.option("--no-budget", is_flag=True, help="Remove its budget: that for all callers holds.")
@json_option("Print the entry as JSON.")
def update(
    name: str,
    *,
    file: str | None,
    admin: bool | None,
    limits: Mapping[str, int],
    budget: Mapping[str, Any] | None,
    allow_all: bool,
    no_limits: bool,
    no_budget: bool,
    as_json: bool,
    **allow: Sequence[str],
) -> None:
    """Change what the caller NAME may do. Its key stays."""
    scope = _read_scope(allow)

    def change(entry: Mapping[str, Any]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if admin is not None:
            changes["admin"] = True if admin else None
        if scope or allow_all:
            changes["allow"] = {**({} if allow_all else _mapping_of(entry, "allow")), **scope} or None
        if limits or no_limits:
            changes["limits"] = {**({} if no_limits else _mapping_of(entry, "limits")), **limits} or None
        if budget or no_budget:
            changes["budget"] = budget
        return changes

    if not change({}):
        raise click.UsageError("Say what to change: see 'holodeck keys update --help'.")
    key_file = _require_key_file(file)
    key_file.update(name, change)
    entry = next(entry for entry in key_file.list_entries() if entry.get("name") == name)
    if as_json:
        shown = {"entry": describe_entry(entry), "file": str(key_file.path)}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        click.echo(f"{name} is changed in {escape_unprintable(str(key_file.path))}.")
    _say_applied()


def _mapping_of(entry: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = entry.get(field)
    return value if isinstance(value, dict) else {}


def _read_scope(allow: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the patterns of each kind that an option was given for."""
    return {kind: _split_patterns(allow[f"allow_{kind}"]) for kind in _KINDS if allow[f"allow_{kind}"]}


def _split_patterns(options: Sequence[str]) -> list[str]:
    return [pattern.strip() for option in options for pattern in option.split(",") if pattern.strip()]


def _require_key_file(file: str | None) -> CallerKeyFile:
    return CallerKeyFile(require_gateway_file(file))


def _row_of(caller: Mapping[str, Any]) -> tuple[str, ...]:
    limits = dict(_mapping_of(caller, "limits"))
    budget = _mapping_of(caller, "budget")
    if budget:
        limits["budget"] = f"{budget.get('amount')}/{budget.get('period')}"
    return (
        str(caller["name"]),
        "yes" if caller["admin"] is True else "",
        _summarize_scope(caller["allow"]),
        ", ".join(f"{name} {value}" for name, value in limits.items()),
        f"until {caller['old_hash_expires']}" if caller["old_hash_expires"] else "",
    )


def _summarize_scope(allow: object) -> str:
    if not isinstance(allow, dict) or all(patterns is None for patterns in allow.values()):
        return "everything"
    kinds = {kind: patterns for kind, patterns in allow.items() if isinstance(patterns, list)}
    return "; ".join(f"{kind}: {', '.join(map(str, patterns)) or 'none'}" for kind, patterns in kinds.items())


def _print_key(key: str, name: str, entry: Mapping[str, Any], *, as_json: bool, file: Path | None = None) -> None:
    if as_json:
        where = {} if file is None else {"file": str(file)}
        click.echo(json.dumps({"key": key, "entry": dict(entry), **where}, indent=2, ensure_ascii=False))
    else:
        click.echo(f"The key of {name}, shown only now:\n\n  {key}\n")
    if file is not None:
        if not as_json:
            click.echo(f"{escape_unprintable(str(file))} has its hash.")
        _say_applied()
    elif not as_json:
        click.echo("Put this under 'keys:' in gateway.yaml:\n")
        click.echo(format_yaml_item(entry, indent="  "), nl=False)


def _say_applied() -> None:
    click.echo("A gateway that runs applies it within seconds, if it watches its file.", err=True)
