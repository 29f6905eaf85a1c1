"""`holodeck mcp lock`: writes `holodeck.lock`, compares servers with it, and accepts what has changed.

The first lock accepts all tools of the servers of a file. Later only `--accept` and `--ignore` change it, after the
differences are shown, and what lint finds in the tools that differ. An error of lint holds up the first lock: it is
written after a yes at the terminal, or with `--accept`, which says yes already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.commands.mcp.connect import ServerResult, query_all, reason_text, run_with_logging, with_timeout
from holodeck.cli.commands.mcp.target import Target, start_timeout_option, target_options
from holodeck.cli.output.config_problems import count_findings, findings_data, has_error, print_findings
from holodeck.cli.output.stdin import ask_yes_or_no, can_ask
from holodeck.cli.output.tables import count_of
from holodeck.config.actions import describe_server
from holodeck.config.agent_loader import LoadedTool
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.models.tool import MCPTool
from holodeck.runtime import lint_servers
from holodeck.tools.mcp.lock.current_lock import build_current_lock
from holodeck.tools.mcp.lock.drift import FIELDS, LISTS, OTHER, ServerLock, ToolDrift
from holodeck.tools.mcp.lock.lock_file import LOCK_FILE, LockFile, read_lock, write_lock

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.lint.finding import Finding
    from holodeck.tools.mcp.plugin import MCPPlugin

DRIFT_EXIT_CODE = 3
_EVERYTHING = "*"
_EPILOG = """\b
Examples:
  holodeck mcp lock                          write holodeck.lock; later: show what differs from it
  holodeck mcp lock --check                  for CI: exit code 3 when a tool differs
  holodeck mcp lock --accept files           accept all changes of the server 'files'
  holodeck mcp lock --accept files.read      accept one tool
  holodeck mcp lock --ignore clock.now:description
  holodeck mcp lock --ignore files:resources

\b
Exit codes: 0 all tools are as locked, 1 a server failed, 2 wrong configuration or usage, 3 a tool differs or nothing is
locked."""
_ACCEPT_HELP = (
    "  y: write the lock with these tools. Models get them.\n"
    "  n, or Enter alone: write nothing. 'holodeck mcp tools -v' shows the texts in full.\n"
)

Servers = Mapping[str, ServerLock]
Rule = tuple[str, str, str]
"""Server, tool and field that may change. Without a tool, the field is a list of the server, or its instructions."""
_IGNORABLE_LISTS = (*(key for noun, key in LISTS.items() if noun != "tool"), "instructions")


@record
class _Comparison:
    """The servers of one file beside their lock."""

    file: Path
    locked: Servers | None
    """None: there is no lock yet."""
    current: Servers
    """The servers that answered, as they are now."""
    errors: Mapping[str, str]
    """By name, why a server did not answer."""
    findings: Sequence[Finding]
    """What lint has found in the tools that differ from the lock; without one, in all."""
    names: frozenset[str]
    """All servers that the file defines."""

    def find_drift(self, locked: Servers | None) -> dict[str, tuple[ToolDrift, ...]]:
        """Return the drift of each server that answered, and of servers that are not in the file any more."""
        known = locked or {}
        drift = {name: known.get(name, ServerLock()).compare(server) for name, server in self.current.items()}
        drift |= {name: server.compare(ServerLock()) for name, server in known.items() if name not in self.names}
        return {name: found for name, found in drift.items() if found}


@click.command("lock", epilog=_EPILOG)
@click.option("--check", is_flag=True, help="Change nothing; exit code 3 when a tool differs or there is no lock.")
@click.option(
    "--accept",
    is_flag=False,
    flag_value=_EVERYTHING,
    metavar="[SERVER[.TOOL]]",
    help="Show what differs, and accept it: everything, one server, or one tool.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="SERVER.TOOL:FIELD|SERVER:LIST",
    help=f"Let a field of a tool change from now on: {', '.join(FIELDS)}, {OTHER}NAME. Or what a server has beside its "
    f"tools: {', '.join(_IGNORABLE_LISTS)} (repeatable).",
)
@start_timeout_option
@target_options
def command(target: Target, check: bool, accept: str | None, ignored: tuple[str, ...], timeout: float | None) -> int:
    """Lock the tools of all servers: write holodeck.lock beside the file, or compare with the one that is there.

    While there is a lock, a tool that is new or has changed is withheld from models, and all others work. The same
    holds for prompts, resources, templates and the instructions of a server. What `mcp lint` finds in tools that are
    not locked yet is shown. Without --accept, an error among it is asked about.
    """
    if target.file is None:
        raise _usage_error("a lock belongs to a file", "Name it with -f instead of --url or --command.")
    if check and (accept is not None or ignored):
        raise _usage_error("--check changes nothing", "Leave out --accept and --ignore, or --check.")
    rules = [_parse_rule(text) for text in ignored]
    loaded = target.load_servers()
    if loaded.refused:
        raise ConfigError.of([problem for problems in loaded.refused.values() for problem in problems])
    # Servers of the user's own settings belong to no project.
    servers = [with_timeout(item, timeout) for item in loaded.tools if not item.is_personal]
    work = query_all(servers, _read_server, on_result=lambda _: None, verb="asking", is_locked=False)
    results = run_with_logging(work, verbose=target.verbose)
    compared = [
        _compare(file, [result for result in results if result.loaded.file == file])
        for file in dict.fromkeys(item.file for item in servers)
    ]
    _check_selection(accept, rules, compared)
    updated = []
    for each in compared:
        if not target.as_json:
            _print_difference(each)
        is_refused = not check and not _may_write(each, accept, can_be_asked=not target.as_json)
        updated.append(None if check or is_refused else _update_lock(each, accept, rules))
        if not target.as_json:
            _print_result(each, updated[-1], is_refused=is_refused)
    if target.as_json:
        data = [_comparison_data(each, after) for each, after in zip(compared, updated, strict=True)]
        click.echo(json.dumps({"files": data}, indent=2))
    return _exit_code_of(compared, updated)


def _may_write(each: _Comparison, accept: str | None, *, can_be_asked: bool) -> bool:
    """Return whether the lock may be written. An error of lint in the first one needs `--accept`, or a yes now."""
    if each.locked is not None or accept is not None or not has_error(each.findings):
        return True
    return can_be_asked and can_ask() and ask_yes_or_no("Lock these tools all the same?", _ACCEPT_HELP)


@record
class _Answer:
    """The lists of one server, and the same as a lock has them."""

    tools: Sequence[MCPToolInfo]
    lock: ServerLock


async def _read_server(plugin: MCPPlugin) -> _Answer:
    return _Answer(tools=await plugin.list_tools(), lock=await build_current_lock(plugin))


def _compare(file: str, results: Sequence[ServerResult[_Answer]]) -> _Comparison:
    path = Path(file).absolute()
    lock = read_lock(path.parent)
    locked = None if lock is None else lock.files.get(path.name)
    current = {
        result.name: replace(result.answer.lock, launch=_describe_launch(result.loaded))
        for result in results
        if result.answer is not None
    }
    return _Comparison(
        file=path,
        locked=locked,
        current=current,
        findings=_find_findings(results, locked or {}, current),
        errors={result.name: reason_text(result.error) for result in results if result.error is not None},
        names=frozenset(result.name for result in results),
    )


def _find_findings(results: Sequence[ServerResult[_Answer]], locked: Servers, current: Servers) -> list[Finding]:
    """Return the findings in the tools that differ from the lock. Those in entries are shown by other commands."""
    tools = {result.name: result.answer.tools for result in results if result.answer is not None}
    found = lint_servers([result.loaded for result in results], tools, [result.name for result in results])
    differing = {
        (name, drift.tool)
        for name, server in current.items()
        for drift in locked.get(name, ServerLock()).compare(server)
    }
    return [finding for finding in found if (finding.server, finding.tool) in differing]


def _describe_launch(loaded: LoadedTool) -> str:
    return describe_server(loaded.tool, loaded.written) if isinstance(loaded.tool, MCPTool) else ""


def _update_lock(each: _Comparison, accept: str | None, rules: Sequence[Rule]) -> Servers | None:
    """Write what is accepted, and return the servers as they are locked now. None: nothing was changed."""
    if each.locked is None:
        accept = _EVERYTHING
    after = dict(each.locked or {})
    for name, current in each.current.items():
        if accept in (_EVERYTHING, name):
            after[name] = _accept_server(after.get(name, ServerLock()), current)
        elif accept is not None and accept.startswith(f"{name}."):
            tool = accept.removeprefix(f"{name}.")
            after[name] = _accept_server(after.get(name, ServerLock()), current, tool=tool)
    if accept == _EVERYTHING:
        after = {name: server for name, server in after.items() if name in each.names}
    for server, tool, field in rules:
        if server in after and not tool:
            after[server] = replace(after[server], ignored=after[server].ignored | {field})
        elif server in after and tool in after[server].tools:
            after[server] = _ignore_field(after[server], tool, field)
    if after == each.locked:
        return None
    folder = each.file.parent
    lock = read_lock(folder) or LockFile()
    write_lock(folder, lock.replace_servers(each.file.name, after))
    return after


def _accept_server(locked: ServerLock, current: ServerLock, *, tool: str | None = None) -> ServerLock:
    """Return the lock with everything as it is now, or with one tool as it is."""
    for drift in locked.compare(current):
        if tool is None or (drift.noun, drift.tool) == ("tool", tool):
            locked = locked.accept(drift)
    return replace(locked, launch=current.launch, version=current.version)


def _ignore_field(server: ServerLock, tool: str, field: str) -> ServerLock:
    locked = server.tools[tool]
    return replace(server, tools={**server.tools, tool: locked.without_fields(locked.ignored | {field})})


def _exit_code_of(compared: Sequence[_Comparison], updated: Sequence[Servers | None]) -> int:
    if any(each.errors for each in compared):
        return 1
    pairs = zip(compared, updated, strict=True)
    states = [(each, each.locked if after is None else after) for each, after in pairs]
    return DRIFT_EXIT_CODE if any(locked is None or each.find_drift(locked) for each, locked in states) else 0


def _print_difference(each: _Comparison) -> None:
    """Print what differs from the lock, what lint has found in it, and which servers failed."""
    drift = {} if each.locked is None else each.find_drift(each.locked)
    for server, tools in drift.items():
        for tool in tools:
            _print_drift(server, tool)
    print_findings(each.findings)
    for server, error in each.errors.items():
        click.echo(f"{escape_unprintable(server)}: {escape_unprintable(error)}", err=True)


def _print_result(each: _Comparison, after: Servers | None, *, is_refused: bool) -> None:
    """Print what was written or why not. `after`: see `_update_lock`."""
    if after is not None:
        total = sum(len(server.tools) for server in after.values())
        counts = f"{count_of(len(after), 'server')}, {count_of(total, 'tool')}"
        click.echo(f"Wrote {LOCK_FILE}: {counts} of {each.file.name}.")
        remaining = [drift for found in each.find_drift(after).values() for drift in found]
        if remaining:
            click.echo(f"Still withheld: {count_of(len(remaining), _noun_of(remaining))}.")
    elif is_refused:
        click.echo(
            f"Nothing was written: there are {count_findings(each.findings)} in the tools of {each.file.name}. "
            "'holodeck mcp lock --accept' locks them all the same."
        )
    elif each.locked is None:
        click.echo(f"There is no {LOCK_FILE} for {each.file.name}. 'holodeck mcp lock' writes it.")
    elif drift := [one for found in each.find_drift(each.locked).values() for one in found]:
        nouns = "these tools" if _noun_of(drift) == "tool" else "any of this"
        click.echo(f"Models do not get {nouns}. 'holodeck mcp lock --accept' accepts them as they are now.")
    elif not each.errors:
        click.echo(f"All tools of {each.file.name} are as {LOCK_FILE} has them.")


def _print_drift(server: str, drift: ToolDrift) -> None:
    label = {"new": "is new", "missing": "is gone", "changed": "has changed"}[drift.kind]
    name = f"{server}.{drift.tool}" if drift.noun == "tool" else f"{server}: {drift.noun} {drift.tool}".rstrip()
    click.secho(escape_unprintable(f"{name} {label}"), bold=True)
    for change in drift.changes if drift.noun == "tool" else drift.shown_changes:
        click.echo(f"  {change.field}")
        for mark, text, colour in (("-", change.locked, "red"), ("+", change.current, "green")):
            for line in escape_unprintable(text).splitlines():
                click.secho(f"    {mark} {line}", fg=colour)


def _drift_data(drift: ToolDrift) -> dict[str, Any]:
    changes = [asdict(change) for change in drift.changes]
    return {drift.noun: drift.tool, "kind": drift.kind, "changes": changes}


def _comparison_data(each: _Comparison, after: Servers | None) -> dict[str, Any]:
    drift = {} if each.locked is None else each.find_drift(each.locked)
    servers = [
        {"name": name, "drift": [_drift_data(tool) for tool in drift.get(name, ())]}
        | ({"error": {"message": each.errors[name]}} if name in each.errors else {})
        for name in sorted({*each.names, *drift})
    ]
    return {
        "file": str(each.file),
        "is_locked": each.locked is not None or after is not None,
        "is_written": after is not None,
        "servers": servers,
        "findings": findings_data(each.findings),
    }


def _parse_rule(text: str) -> Rule:
    target, _, field = text.rpartition(":")
    server, _, tool = target.partition(".")
    is_field = field in FIELDS or (field.startswith(OTHER) and field != OTHER)
    if not server or not (is_field if tool else field in _IGNORABLE_LISTS):
        fix = f"Write SERVER.TOOL:FIELD with one of {', '.join(FIELDS)}, {OTHER}NAME, or SERVER:LIST with one of "
        raise _usage_error(f"--ignore '{text}' names no field of a tool", f"{fix}{', '.join(_IGNORABLE_LISTS)}.")
    return server, tool, field


def _check_selection(accept: str | None, rules: Sequence[Rule], compared: Sequence[_Comparison]) -> None:
    """Raise `ConfigError` for a server or a tool that no file has."""
    known = {name for each in compared for name in {*each.names, *(each.locked or ())}}
    tools = {
        f"{server}.{tool}"
        for each in compared
        for servers in (each.current, each.locked or {})
        for server, lock in servers.items()
        for tool in lock.tools
    }
    wanted = [f"{server}.{tool}" if tool else server for server, tool, _ in rules]
    if accept not in (None, _EVERYTHING) and accept not in known:
        wanted.append(str(accept))
    for name in wanted:
        if name not in tools and name not in known:
            raise _usage_error(f"there is no '{name}'", f"Servers: {', '.join(sorted(known)) or 'none'}.")


def _noun_of(drift: Sequence[ToolDrift]) -> str:
    return "tool" if all(each.noun == "tool" for each in drift) else "change"


def _usage_error(message: str, fix: str) -> ConfigError:
    return ConfigError.of([Problem(message=message, fix=fix)])
