"""`holodeck keys`: keys for the callers of a gateway. A key is printed once; the gateway file stores only its hash."""

from __future__ import annotations

import json
import re

import click

from holodeck.gateway.auth.callers import hash_key, new_key

_EPILOG = """\b
Examples:
  holodeck keys create alice             then put the entry under 'keys:' in gateway.yaml
  holodeck keys create ops --admin       may also see /metrics and /v1/mcp/servers"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")


@click.group("keys", epilog=_EPILOG)
def command() -> None:
    """Create keys for the callers of a gateway."""


@command.command("create", epilog=_EPILOG)
@click.argument("name")
@click.option("--admin", is_flag=True, help="The caller may see /metrics and the state of the MCP servers.")
@click.option("--json", "as_json", is_flag=True, help="Print the key and its entry as JSON.")
def create(name: str, admin: bool, as_json: bool) -> None:
    """Create a key for the caller NAME and show it once."""
    if not _NAME.fullmatch(name):
        raise click.BadParameter("a name holds letters, digits, '_', '.', ':', '/' and '-'")
    key = new_key()
    entry: dict[str, object] = {"name": name, "hash": hash_key(key)}
    if admin:
        entry["admin"] = True
    if as_json:
        click.echo(json.dumps({"key": key, "entry": entry}, indent=2))
        return
    click.echo(f"The key of {name}, shown only now:\n\n  {key}\n")
    click.echo("Put this under 'keys:' in gateway.yaml:\n")
    lines = [f"{field}: {json.dumps(value)}" for field, value in entry.items()]
    click.echo("  - " + "\n    ".join(lines))
