"""`holodeck mcp add`, `remove` and `import`: the servers of an agent or gateway file.

A server comes from a command, a URL, the registry, or the file of another program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.entries.own_file import FILES, OwnFile, allow_commands, open_own_file
from holodeck.cli.commands.mcp.entries.search import choose_registry, registry_option, run_request
from holodeck.cli.commands.mcp.target import print_errors_as_json, unknown_server_error
from holodeck.cli.main import json_option
from holodeck.cli.output.config_problems import print_problems, problem_data
from holodeck.cli.output.stdin import can_ask
from holodeck.config.mcp_json.entry_writer import describe_entry
from holodeck.config.mcp_json.literal_secrets import ReplacedSecret, replace_secrets
from holodeck.config.mcp_json.loader import OwnEntries, read_own_entries
from holodeck.config.mcp_json.transport import is_url, transport_of
from holodeck.config.server_names import name_for, name_for_command
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.record import record
from holodeck.models.file_model import quote_value
from holodeck.models.tool_rules import USER_SETTINGS

if TYPE_CHECKING:
    from holodeck.tools.mcp.registry.server_entry import NeededVariable, ServerLaunch
    from holodeck.tools.mcp.registry.server_record import RegistryServer

# Characters of a text of the registry on one line.
_MAX_SHOWN = 200
_KINDS = ("http", "sse", "npm", "pypi", "oci")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPILOG = """\b
Examples:
  holodeck mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  holodeck mcp add tickets --url https://mcp.example.com/mcp --header 'Authorization: Bearer ${TICKETS_TOKEN}'
  holodeck mcp add search --env API_KEY -f gateway.yaml -- uvx search-server
  holodeck mcp add -- python server.py               asks once whether your settings may allow python
  holodeck mcp add io.github.example/weather         from the registry: shows what it would write, and asks

\b
A value that looks like a secret is not written: the file gets a reference to a variable.
Exit codes: 0 added, 1 the registry or the file failed, 2 wrong usage, or the file would be invalid."""
_REMOVE_EPILOG = """\b
Examples:
  holodeck mcp remove files
  holodeck mcp remove tickets -f gateway.yaml

\b
Exit codes: 0 removed, 1 the file cannot be written, 2 there is no such server."""
_IMPORT_EPILOG = """\b
Examples:
  holodeck mcp import .vscode/mcp.json               all its servers, into ./agent.yaml
  holodeck mcp import ~/.cursor/mcp.json files time
  holodeck mcp import ~/.codex/config.toml --into gateway.yaml

\b
What cannot be said in your file is named. Secrets become references to variables.
Exit codes: 0 done, 1 a server was left out or the file cannot be written, 2 the file would be invalid."""


@record
class _Addition:
    """An entry that is to be added, and what the user has to know about it."""

    entry: dict[str, Any]
    replaced: tuple[ReplacedSecret, ...] = ()
    variables: tuple[NeededVariable, ...] = ()


class _AddCommand(click.Command):
    """A command whose last arguments are a command line of its own, behind `--`: `ctx.meta["command_line"]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else len(args)
        ctx.meta["command_line"] = tuple(args[dashes + 1 :])
        return super().parse_args(ctx, args[:dashes])


@click.command("add", cls=_AddCommand, epilog=_EPILOG)
@click.argument("name", required=False)
@click.argument("stray", nargs=-1, metavar="[-- COMMAND...]")
@click.option("--url", help="URL of the server.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="HTTP header for --url (repeatable).")
@click.option("--transport", type=click.Choice(["http", "sse", "websocket"]), help="Transport for --url.")
@click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="Variable of the process (repeatable).")
@click.option("--description", help="What the agent should use the server for.")
@click.option("-f", "--file", help=f"Your file (default: the first of {', '.join(FILES)}).")
@registry_option
@click.option("--version", help="Version of a server of the registry (default: the latest).")
@click.option("--use", type=click.Choice(_KINDS), help="Which package or address of the registry (default: the best).")
@click.option("--as", "own_name", help="Name for a server of the registry (default: made from its name).")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: add the server of the registry, allow the program.")
@json_option()
@print_errors_as_json
@click.pass_context
def command(ctx: click.Context, /, *, name: str | None, stray: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Add a server to your file: the command behind --, a --url, or NAME of the registry (with a slash).

    A command or a URL needs no NAME: it is made from it.
    """
    words = ctx.meta["command_line"]
    if stray:
        raise click.UsageError("Write -- before the command: holodeck mcp add NAME -- npx -y PACKAGE")
    if name is not None and is_url(name) and not options["url"]:
        name, options["url"] = None, name
    if words and options["url"]:
        raise click.UsageError("A command and --url exclude each other")
    own = open_own_file(options["file"])
    is_from_registry = not words and not options["url"]
    if words:
        addition = _take_command(name or own.find_free_name(name_for_command(words)), words, options)
    elif options["url"]:
        addition = _take_url(name, own, options)
    elif name is None:
        raise click.UsageError(
            "Which server? Write -- and its command, --url and its address, or a name of the registry"
        )
    else:
        addition = _take_from_registry(name, own, options)
    is_confirmed = not is_from_registry or options["yes"]
    try:
        result, _ = own.add_entries([addition.entry], keeps_trust=True, is_confirmed=is_confirmed)
    except ConfigError as error:
        if own.is_gateway or not _can_be_allowed(error, is_confirmed=options["yes"]):
            raise
        allow_commands([addition.entry["command"]], is_confirmed=options["yes"])
        result, _ = own.add_entries([addition.entry], keeps_trust=True)
    if as_json:
        notes = [{"key": each.key, "variable": each.variable} for each in addition.replaced]
        data = {"server": addition.entry, "replaced": notes, **result.to_data()}
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        what = f"Added '{addition.entry['name']}' to {own.path}: {describe_entry(addition.entry)}"
        click.echo(escape_unprintable(what))
        _print_replaced(addition.replaced)
    return 0


def _can_be_allowed(error: ConfigError, *, is_confirmed: bool) -> bool:
    """Return whether all that is wrong is a program that the person may allow, now."""
    return all(map(_may_be_allowed, error.problems)) and (is_confirmed or can_ask())


def _may_be_allowed(problem: Problem) -> bool:
    return _is_command_problem(problem) and "allowed_commands" in problem.fix


def _print_replaced(replaced: Sequence[ReplacedSecret]) -> None:
    """Print which secrets were not written into a file, and what to do about each."""
    for each in replaced:
        text = (
            f"The value of {each.key} looks like a secret and was not written: the file has ${{{each.variable}}}. "
            f"Set it: export {each.variable}=..., or put it in a .env file beside the file."
        )
        click.secho(escape_unprintable(text), fg="yellow", err=True)


def _take_command(name: str, words: Sequence[str], options: dict[str, Any]) -> _Addition:
    if options["headers"] or options["transport"]:
        raise click.UsageError("--header and --transport are for --url")
    entry: dict[str, Any] = {**_head_of(name, options), "command": words[0], "args": list(words[1:])}
    env = dict(_parse_variable(text) for text in options["env"])
    if env:
        entry["env"] = env
    return _without_secrets(entry)


def _take_url(name: str | None, own: OwnFile, options: dict[str, Any]) -> _Addition:
    if options["env"]:
        raise click.UsageError("--env is for a command, not for --url")
    url = options["url"]
    if not is_url(url):
        raise click.UsageError("--url needs a URL, such as https://mcp.example.com/mcp")
    name = name or own.find_free_name(name_for(url.split("/")[2]))
    entry: dict[str, Any] = {**_head_of(name, options), "transport": options["transport"] or transport_of(url)}
    entry["url"] = url
    headers = dict(_parse_header(text) for text in options["headers"])
    if headers:
        entry["headers"] = headers
    return _without_secrets(entry)


def _without_secrets(entry: dict[str, Any]) -> _Addition:
    clean, replaced = replace_secrets(entry)
    return _Addition(entry=clean, replaced=replaced)


def _head_of(name: str, options: dict[str, Any]) -> dict[str, Any]:
    about = {"description": options["description"]} if options["description"] else {}
    return {"type": "mcp", "name": name, **about}


def _parse_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise click.UsageError("--env needs NAME or NAME=VALUE")
    return name, value if equals else f"${{{name}}}"


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header needs 'NAME: VALUE'")
    return name.strip(), value.strip()


def _take_from_registry(name: str, own: OwnFile, options: dict[str, Any]) -> _Addition:
    """Find the server in the registry, and show what would be written. Raises `ConfigError` for an unusable one."""
    if "/" not in name:
        fix = "Write its command behind --, or its address with --url; a name of the registry has a slash."
        raise ConfigError.of([Problem(message=f"'{name}': which server is it?", fix=fix)])
    if options["headers"] or options["env"] or options["transport"]:
        raise click.UsageError("--header, --env and --transport are for a command or --url")
    from holodeck.tools.mcp.registry.server_entry import escape_references

    registry = choose_registry(options["registry"])
    version = options["version"] or "latest"
    server = run_request(registry.find_server(name, version), "asking the registry")
    if server is None:
        fix = "'holodeck mcp search WORDS' shows the names."
        raise ConfigError.of([Problem(message=f"the registry has no server '{name}' ({version})", fix=fix)])
    launch = _choose_launch(server, options["own_name"] or name_for(server.name), options["use"])
    about = options["description"] or escape_references(one_line(server.description, _MAX_SHOWN))
    head = _head_of(options["own_name"] or name_for(server.name), {"description": about})
    addition = _Addition(entry={**head, **launch.entry}, variables=launch.variables)
    _show_launch(server, addition, own)
    return addition


def _choose_launch(server: RegistryServer, label: str, kind: str | None) -> ServerLaunch:
    from holodeck.tools.mcp.registry.server_entry import find_launches

    if server.status == "deleted":
        raise ConfigError.of([Problem(message=f"'{server.name}' was deleted from the registry")])
    launches, reasons = find_launches(server, label)
    chosen = next((each for each in launches if kind in {None, each.kind}), None)
    if chosen is None:
        known = ", ".join(dict.fromkeys(each.kind for each in launches))
        fix = f"It can be used as: {known}." if known else " ".join(one_line(each, _MAX_SHOWN) for each in reasons)
        what = f"as {kind}" if kind else "here"
        raise ConfigError.of([Problem(message=f"'{server.name}' cannot be used {what}", fix=fix)])
    return chosen


def _show_launch(server: RegistryServer, addition: _Addition, own: OwnFile) -> None:
    def show(text: str, **style: Any) -> None:
        click.secho(one_line(text, 10 * _MAX_SHOWN), err=True, **style)

    entry = addition.entry
    show(f"{server.name} {server.version}: {server.description}", bold=True)
    if server.status == "deprecated":
        show("It is deprecated: its author advises against it.", fg="yellow")
    verb = "Connects to" if entry.get("url") else "Starts"
    show(f"{verb}: {describe_entry(entry)}")
    for each in addition.variables:
        kind = "secret" if each.is_secret else "needed" if each.is_required else "optional"
        show(f"Variable {each.name} ({kind}): {each.description}".rstrip(": "))
    show(f"This would be added to {own.path}:")


@click.command("remove", epilog=_REMOVE_EPILOG)
@click.argument("name")
@click.option("-f", "--file", help=f"Your file (default: the first of {', '.join(FILES)}).")
@json_option()
@print_errors_as_json
def remove_command(*, name: str, file: str | None, as_json: bool) -> int:
    """Remove a server from your file. Everything else in the file stays as it is, comments included."""
    own = open_own_file(file)
    result = own.remove_entry(name)
    if as_json:
        click.echo(json.dumps({"removed": name, **result.to_data()}, indent=2))
    else:
        click.echo(escape_unprintable(f"Removed '{name}' from {own.path}."))
    return 0


@click.command("import", epilog=_IMPORT_EPILOG)
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("servers", nargs=-1)
@click.option("--into", help=f"Your file (default: the first of {', '.join(FILES)}).")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: allow the programs of the servers in your settings.")
@json_option()
@print_errors_as_json
def import_command(*, source: Path, servers: tuple[str, ...], into: str | None, yes: bool, as_json: bool) -> int:
    """Copy the servers of FILE, which another program wrote, into your file. FILE stays as it is."""
    own = open_own_file(into)
    found = read_own_entries(source, own.path.absolute().parent)
    chosen = _select(found, servers, source)
    fresh = _leave_out_equal(own, {name: found.entries[name] for name in chosen})
    result, tolerated = own.add_entries(list(fresh.values()), keeps_trust=False, tolerates=_is_command_problem)
    refused = _find_refused_commands(tolerated, fresh)
    if refused and (yes or can_ask()) and _allow(refused, is_confirmed=yes):
        tolerated = tuple(each for each in tolerated if not _may_be_allowed(each))
        refused = []
    left_out = {name: problems for name, problems in found.refused.items() if not servers}
    warnings = [problem for problem in found.problems if problem.severity == "warning"]
    errors = [problem for problems in left_out.values() for problem in problems]
    replaced = [each for name in fresh for each in found.replaced[name]]
    if as_json:
        data = {
            "imported": list(fresh.values()),
            "left_out": sorted(left_out),
            "problems": [problem_data(problem) for problem in (*errors, *warnings, *tolerated)],
            "replaced": [{"key": each.key, "variable": each.variable} for each in replaced],
            **result.to_data(),
        }
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        _print_imported(own, fresh)
        _print_replaced(replaced)
        _print_commands(refused)
        others = [each for each in tolerated if not _may_be_allowed(each)]
        if errors or warnings or others:
            print_problems([*errors, *warnings, *others])
    return 1 if left_out else 0


def _select(found: OwnEntries, names: Sequence[str], source: Path) -> list[str]:
    """Return the names to import. Raises `ConfigError` for a name that is not there or cannot be used."""
    if not names:
        return list(found.entries)
    for name in names:
        if name in found.refused:
            raise ConfigError.of(found.refused[name])
        if name not in found.entries:
            raise unknown_server_error(name, list(found.entries), str(source))
    return list(dict.fromkeys(names))


def _leave_out_equal(own: OwnFile, entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the entries that the file does not have yet. Raises `ConfigError` for another entry of the same name."""
    there = {entry.get("name"): entry for entry in own.list_entries() if isinstance(entry, dict)}
    fresh: dict[str, dict[str, Any]] = {}
    for name, entry in entries.items():
        if name not in there:
            fresh[name] = entry
        elif {"type": "mcp", **there[name]} != {"type": "mcp", **entry}:
            fix = f"Remove it first (holodeck mcp remove {name}), or name the servers to import."
            message = f"there is another server '{name}' already"
            raise ConfigError.of([Problem(message=message, file=str(own.path), fix=fix)])
    return fresh


def _is_command_problem(problem: Problem) -> bool:
    return problem.key.endswith(".command") and problem.message.startswith("Invalid command")


def _print_imported(own: OwnFile, entries: dict[str, dict[str, Any]]) -> None:
    for name, entry in entries.items():
        click.echo(escape_unprintable(f"Added '{name}' to {own.path}: {describe_entry(entry)}"))
    if not entries:
        click.echo(escape_unprintable(f"{own.path} has them already; nothing was written."))


def _find_refused_commands(problems: Sequence[Problem], entries: dict[str, dict[str, Any]]) -> list[str]:
    """Return the programs of the entries that the person may allow and has not, each once."""
    allowable = [problem for problem in problems if _may_be_allowed(problem)]
    commands = dict.fromkeys(str(entry["command"]) for entry in entries.values() if "command" in entry)
    return [command for command in commands if any(quote_value(command) in each.message for each in allowable)]


def _allow(commands: Sequence[str], *, is_confirmed: bool) -> bool:
    """Show the change of the person's settings that allows these programs, and return whether it was agreed to."""
    try:
        allow_commands(commands, is_confirmed=is_confirmed)
    # The servers are imported; a no leaves only the settings as they were.
    except ConfigError as error:
        print_problems(error.problems)
        return False
    return True


def _print_commands(commands: Sequence[str]) -> None:
    if commands:
        names = ", ".join(commands)
        text = (
            f"Your file is invalid until you allow these programs, because a file cannot allow them itself: write "
            f"'allowed_commands: [{names}]' in {USER_SETTINGS}, or in a gateway file."
        )
        click.secho(escape_unprintable(text), fg="yellow", err=True)
