"""`holodeck keys`: keys for the callers of a gateway, in its file or, with `--url`, in the store of one that runs.

A key is printed once; only its hash is stored. `create` without a file prints the entry to be pasted. Commands on a
file change it in place and leave the rest of it as it is written. It stays trusted: keys are no part of what it does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from holodeck.cli.default_file import require_gateway_file
from holodeck.cli.main import json_option
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.remote_keys import RemoteKeys
from holodeck.config.agent_loader import DEFAULT_GATEWAY_FILE
from holodeck.config.edit.caller_keys import (
    CallerKeyFile,
    build_entry,
    check_entry,
    describe_entry,
    format_expiry,
)
from holodeck.config.edit.yaml_entries import format_yaml_item
from holodeck.gateway.auth.callers import hash_key, new_key
from holodeck.lib.escape import escape_unprintable
from holodeck.models.callers import ROLES, Scope
from holodeck.models.file_model import PUBLIC_NAME_PATTERN

_DURATION = re.compile(r"(\d{1,6})([smhd])")
_LIMIT = re.compile(r"([a-z_]+)\s*=\s*(\d{1,12})")
_BUDGET = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)/([a-z]+)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_KINDS = tuple(Scope.model_fields)
_COLUMNS = ("NAME", "ROLE", "MAY USE", "LIMITS", "STATE")
# Of a gateway that runs: it also knows what has become of a key.
_REMOTE_COLUMNS = (*_COLUMNS, "LAST USED", "SPENT", "IN")
_ROLE_HELP = (
    "operator: reads the runs of all callers, changes keys and servers. viewer: reads usage, keys and /metrics. "
    "keys: makes and changes keys of its group. metrics: reads /metrics, and nothing else."
)

_EPILOG = """\b
Examples:
  holodeck keys create alice             then put the entry under 'keys:' in gateway.yaml
  holodeck keys create ops --role operator -f gateway.yaml
  holodeck keys list
  holodeck keys update alice --allow-models 'small*' --budget 20/month
  holodeck keys rotate alice --grace 24h
  holodeck keys revoke alice
  holodeck keys create alice --url https://gateway.example.com

\b
With --url the keys are those of a gateway that runs, in the store that it shares with others. It needs the key of an
operator in HOLODECK_OPERATOR_KEY. Keys of the gateway's file are changed in the file."""
_CREATE_EPILOG = """\b
Examples:
  holodeck keys create alice             prints the entry, for 'keys:' in gateway.yaml
  holodeck keys create prometheus --role metrics
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
  holodeck keys update alice --role viewer
  holodeck keys update alice --pause                           refused until --resume
  holodeck keys update alice --expires 30d

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
    click.option("--group", metavar="NAME", help="Group of the caller, one of 'groups' in the gateway file."),
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
        "--expires",
        metavar="WHEN",
        callback=lambda _, __, value: _parse_expiry(value),
        help="When the key ends: a duration from now, such as 30d, or a time with its zone.",
    ),
    click.option(
        "--budget",
        metavar="AMOUNT/PERIOD",
        callback=lambda _, __, value: _parse_budget(value),
        help="What the caller may spend in each hour, day, week or month.",
    ),
)
_url_option = click.option("--url", help="Use the keys of the gateway that runs at this URL, instead of a file.")
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


def _parse_expiry(value: str | None) -> str | None:
    """Parse the option `--expires`. Whether a time is one, the gateway says."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value)
    return value if found is None else format_expiry(timedelta(seconds=int(found[1]) * _SECONDS[found[2]]))


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


class _FileKeys:
    """The keys of a gateway file, with the methods of `RemoteKeys`."""

    applied = "A gateway that runs applies it within seconds, if it watches its file."

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = escape_unprintable(str(path))
        self._file = CallerKeyFile(path)

    def list_entries(self) -> list[dict[str, Any]]:
        return [describe_entry(entry) for entry in self._file.list_entries()]

    def create(self, name: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        key = new_key()
        entry = {**build_entry(name, hash_key(key)), **settings}
        self._file.add(entry)
        return key, entry

    def update(self, name: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
        self._file.update(name, change)
        return next(entry for entry in self.list_entries() if entry["name"] == name)

    def rotate(self, name: str, grace: timedelta | None) -> tuple[str, dict[str, Any]]:
        key = new_key()
        return key, self._file.rotate(name, hash_key(key), grace)

    def remove(self, name: str) -> None:
        self._file.remove(name)


_Keys = _FileKeys | RemoteKeys


def _open_keys(file: str | None, url: str | None) -> _Keys:
    if url is None:
        return _FileKeys(require_gateway_file(file))
    if file is not None:
        raise click.UsageError("-f and --url exclude each other: keys are in a file, or at a gateway that runs")
    return RemoteKeys(url)


def _place_of(keys: _Keys) -> dict[str, str]:
    """Return where keys are, for JSON."""
    return {"file": str(keys.path)} if isinstance(keys, _FileKeys) else {"gateway": keys.shown}


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
@_url_option
@click.option("--role", type=click.Choice(ROLES), help=_ROLE_HELP)
@_add_settings_options
@json_option("Print the key and its entry as JSON.")
def create(
    name: str,
    *,
    file: str | None,
    url: str | None,
    role: str | None,
    group: str | None,
    limits: Mapping[str, int],
    expires: str | None,
    budget: Mapping[str, Any] | None,
    as_json: bool,
    **allow: Sequence[str],
) -> None:
    """Create a key for the caller NAME and show it once."""
    if not re.fullmatch(PUBLIC_NAME_PATTERN, name):
        raise click.BadParameter("a name holds letters, digits, '_', '.', ':', '/' and '-'")
    given = {
        "role": role,
        "group": group,
        "allow": _read_scope(allow),
        "limits": limits,
        "budget": budget,
        "expires": expires,
    }
    settings = {field: value for field, value in given.items() if value}
    if file is None and url is None:
        key = new_key()
        entry = {**build_entry(name, hash_key(key)), **settings}
        check_entry(entry)
        _print_key(key, name, entry, as_json=as_json)
        return
    keys = _open_keys(file, url)
    key, entry = keys.create(name, settings)
    _print_key(key, name, entry, as_json=as_json, keys=keys)


@command.command("list", epilog=_LIST_EPILOG)
@_file_option
@_url_option
@json_option("Print the callers as JSON.")
def list_keys(file: str | None, url: str | None, as_json: bool) -> None:
    """List the callers that have a key, and what they may use."""
    keys = _open_keys(file, url)
    entries = keys.list_entries()
    if as_json:
        click.echo(json.dumps(entries, indent=2, ensure_ascii=False))
    elif not entries:
        click.echo(f"{keys.shown} has no keys.", err=True)
    elif isinstance(keys, RemoteKeys):
        Terminal().table(_REMOTE_COLUMNS, [(*_row_of(entry), *_state_of(entry)) for entry in entries])
    else:
        Terminal().table(_COLUMNS, [_row_of(entry) for entry in entries])


@command.command("revoke", epilog=_REVOKE_EPILOG)
@click.argument("name")
@_file_option
@_url_option
@json_option()
def revoke(name: str, file: str | None, url: str | None, as_json: bool) -> None:
    """Remove the caller NAME: its keys are refused, and what runs for it is cancelled."""
    keys = _open_keys(file, url)
    keys.remove(name)
    if as_json:
        click.echo(json.dumps({"name": name, **_place_of(keys), "revoked": True}, indent=2))
    else:
        click.echo(f"{name} is removed from {keys.shown}.")
    click.echo(keys.applied, err=True)


@command.command("rotate", epilog=_ROTATE_EPILOG)
@click.argument("name")
@_file_option
@_url_option
@click.option(
    "--grace",
    metavar="DURATION",
    callback=_parse_duration,
    help="How long the key before is accepted as well. Left out: not at all.",
)
@json_option("Print the key as JSON.")
def rotate(name: str, file: str | None, url: str | None, grace: timedelta | None, as_json: bool) -> None:
    """Give the caller NAME a new key and show it once. What it has stored stays its own."""
    keys = _open_keys(file, url)
    key, rotated = keys.rotate(name, grace)
    _print_key(key, name, rotated, as_json=as_json, keys=keys)
    if rotated.get("old_hash_expires"):
        click.echo(f"The key before is accepted until {rotated['old_hash_expires']}.", err=True)


@command.command("update", epilog=_UPDATE_EPILOG)
@click.argument("name")
@_file_option
@_url_option
@click.option("--role", type=click.Choice(ROLES), help=_ROLE_HELP)
@_add_settings_options
@click.option("--pause/--resume", "paused", default=None, help="Refuse the key for now, or accept it again.")
@click.option("--no-role", is_flag=True, help="Remove its role: it may make its own requests only.")
@click.option("--no-group", is_flag=True, help="Take it out of its group.")
@click.option("--allow-all", is_flag=True, help="Remove the patterns that the caller has.")
@click.option("--no-limits", is_flag=True, help="Remove its limits: those for all callers hold.")
@click.option("--no-budget", is_flag=True, help="Remove its budget: that for all callers holds.")
@click.option("--no-expiry", is_flag=True, help="Remove the time at which it ends.")
@json_option("Print the entry as JSON.")
def update(
    name: str,
    *,
    file: str | None,
    url: str | None,
    role: str | None,
    group: str | None,
    limits: Mapping[str, int],
    expires: str | None,
    budget: Mapping[str, Any] | None,
    paused: bool | None,
    no_role: bool,
    no_group: bool,
    allow_all: bool,
    no_limits: bool,
    no_budget: bool,
    no_expiry: bool,
    as_json: bool,
    **allow: Sequence[str],
) -> None:
    """Change what the caller NAME may do. Its key stays."""
    scope = _read_scope(allow)

    def change(entry: Mapping[str, Any]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if role or no_role:
            changes["role"] = role
        if group or no_group:
            changes["group"] = group
        if scope or allow_all:
            changes["allow"] = {**({} if allow_all else _mapping_of(entry, "allow")), **scope} or None
        if limits or no_limits:
            changes["limits"] = {**({} if no_limits else _mapping_of(entry, "limits")), **limits} or None
        if budget or no_budget:
            changes["budget"] = budget
        if expires or no_expiry:
            changes["expires"] = expires
        if paused is not None:
            changes["paused"] = paused or None
        return changes

    if not change({}):
        raise click.UsageError("Say what to change: see 'holodeck keys update --help'.")
    keys = _open_keys(file, url)
    entry = keys.update(name, change)
    if as_json:
        click.echo(json.dumps({"entry": entry, **_place_of(keys)}, indent=2, ensure_ascii=False))
    else:
        click.echo(f"{name} is changed in {keys.shown}.")
    click.echo(keys.applied, err=True)


def _mapping_of(entry: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = entry.get(field)
    return value if isinstance(value, dict) else {}


def _read_scope(allow: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the patterns of each kind that an option was given for."""
    return {kind: _split_patterns(allow[f"allow_{kind}"]) for kind in _KINDS if allow[f"allow_{kind}"]}


def _split_patterns(options: Sequence[str]) -> list[str]:
    return [pattern.strip() for option in options for pattern in option.split(",") if pattern.strip()]


def _row_of(caller: Mapping[str, Any]) -> tuple[str, ...]:
    limits = dict(_mapping_of(caller, "limits"))
    budget = _mapping_of(caller, "budget")
    if budget:
        limits["budget"] = f"{budget.get('amount')}/{budget.get('period')}"
    return (
        str(caller["name"]),
        str(caller["role"] or ""),
        _summarize_scope(caller["allow"]),
        ", ".join(f"{name} {value}" for name, value in limits.items()),
        ", ".join(_list_states(caller)),
    )


def _list_states(caller: Mapping[str, Any]) -> Iterator[str]:
    if caller["group"]:
        yield f"in {caller['group']}"
    if caller["paused"]:
        yield "paused"
    if caller["expires"]:
        yield f"expires {caller['expires']}"
    if caller["old_hash_expires"]:
        yield f"old key until {caller['old_hash_expires']}"


def _state_of(caller: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a gateway that runs knows of a key."""
    used_at, spending = caller["last_used_at"], caller["spending"]
    used = "" if used_at is None else f"{datetime.fromtimestamp(used_at, UTC):%Y-%m-%d %H:%M} UTC"
    return used, "" if spending is None else f"{spending['spent']:g}", str(caller["source"])


def _summarize_scope(allow: object) -> str:
    if not isinstance(allow, dict) or all(patterns is None for patterns in allow.values()):
        return "everything"
    kinds = {kind: patterns for kind, patterns in allow.items() if isinstance(patterns, list)}
    return "; ".join(f"{kind}: {', '.join(map(str, patterns)) or 'none'}" for kind, patterns in kinds.items())


def _print_key(key: str, name: str, entry: Mapping[str, Any], *, as_json: bool, keys: _Keys | None = None) -> None:
    if as_json:
        where = {} if keys is None else _place_of(keys)
        click.echo(json.dumps({"key": key, "entry": dict(entry), **where}, indent=2, ensure_ascii=False))
    else:
        click.echo(f"The key of {name}, shown only now:\n\n  {key}\n")
    if keys is not None:
        if not as_json:
            click.echo(f"{keys.shown} has its hash.")
        click.echo(keys.applied, err=True)
    elif not as_json:
        click.echo("Put this under 'keys:' in gateway.yaml:\n")
        click.echo(format_yaml_item(entry, indent="  "), nl=False)
