"""`holodeck mcp export`: an entry for another program's file, printed, installed there, or removed again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holodeck.cli.commands.mcp.entries.own_file import is_trusted, show_and_apply
from holodeck.cli.commands.mcp.target import print_errors_as_json, select_servers_by_names
from holodeck.cli.default_file import resolve_file
from holodeck.cli.main import json_option
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE
from holodeck.config.edit.file_edit import EditResult, FileEdit
from holodeck.config.edit.formats import FORMATS, EntryFormat
from holodeck.config.mcp_json.entry_writer import Loss, WrittenEntry, write_entry
from holodeck.config.mcp_json.programs import WRITABLE, Program
from holodeck.config.server_names import make_unique_name
from holodeck.config.yaml_reader import read_document
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record

KEY_VARIABLE = "HOLODECK_KEY"
"""The variable with the caller's key of a gateway, in an entry for its URL."""
_FILES = (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE)
_EPILOG = """\b
Examples:
  holodeck mcp export --for cursor                   prints the entry: your agent as one server
  holodeck mcp export --for claude --install         shows the difference, asks, and writes it
  holodeck mcp export --for claude --uninstall
  holodeck mcp export --for vscode --servers         the servers of your file, each as an entry
  holodeck mcp export files --for codex --install
  holodeck mcp export --for claude-code --url https://gateway.example.com/mcp

\b
Exit codes: 0 done, 1 a server was left out or a file cannot be written, 2 wrong configuration, or you said no."""


@record
class _Export:
    """An export: the entries for a program, and what it cannot say."""

    program: Program
    entries: tuple[WrittenEntry, ...]

    @property
    def values(self) -> dict[str, dict[str, Any]]:
        return {entry.name: entry.value for entry in self.entries if entry.value is not None}

    @property
    def lost(self) -> list[Loss]:
        return [loss for entry in self.entries for loss in entry.lost]

    @property
    def variables(self) -> list[str]:
        return list(dict.fromkeys(name for entry in self.entries for name in entry.variables))

    @property
    def text(self) -> str:
        return FORMATS[self.program.format].format_entries(self.program.list_path, self.values)


@click.command("export", epilog=_EPILOG)
@click.argument("servers", nargs=-1)
@click.option("--for", "program_name", required=True, type=click.Choice(list(WRITABLE)), help="Program to write for.")
@click.option("-f", "--file", help=f"Your file (default: the first of {', '.join(_FILES)}).")
@click.option("--servers", "all_servers", is_flag=True, help="Export each server of the file instead of the agent.")
@click.option("--url", help="Export the gateway at this URL, such as https://host/mcp, instead of a command.")
@click.option("--name", help="Name of the entry for the agent (default: the name of the agent).")
@click.option("--install", is_flag=True, help="Write it into the program's own file, after a question.")
@click.option("--uninstall", is_flag=True, help="Remove it from the program's own file, after a question.")
@click.option("--to", type=click.Path(path_type=Path), help="Another file of the program, such as .cursor/mcp.json.")
@click.option("-y", "--yes", is_flag=True, help="Write without the question.")
@json_option()
@print_errors_as_json
def command(
    *,
    servers: tuple[str, ...],
    program_name: str,
    file: str | None,
    all_servers: bool,
    url: str | None,
    name: str | None,
    install: bool,
    uninstall: bool,
    to: Path | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Print the entry with which another program uses your agent, its servers, or a gateway.

    The agent becomes one server: the program starts `holodeck mcp serve` with your file. Variables stay references, and
    what the program cannot say is named.
    """
    if install and uninstall:
        raise click.UsageError("--install and --uninstall exclude each other")
    if url and (servers or all_servers):
        raise click.UsageError("--url is for the agent as a whole, not for its servers")
    program = WRITABLE[program_name]
    source = resolve_file(file, _FILES, fix="Name your file with -f.")
    if servers or all_servers:
        entries = _write_servers(source, servers, program)
    else:
        entries = (_write_agent(source, url, name, program),)
    export = _Export(program=program, entries=entries)
    result = None
    if install or uninstall:
        result = _change_program_file(export, to or program.find_file(), yes=yes, removes=uninstall)
    served = None if url or servers or all_servers else source
    _print_export(export, result, served, as_json=as_json, removes=uninstall)
    if not export.values and not uninstall:
        raise ConfigError.of([_refusal(loss) for loss in export.lost if loss.key == "transport"])
    return 0 if len(export.values) == len(entries) or uninstall else 1


def _write_agent(source: Path, url: str | None, name: str | None, program: Program) -> WrittenEntry:
    """Return the entry for a file as one server: an agent, a gateway, or the servers of another program's file."""
    from holodeck.runtime import is_other_program_file

    value = None if is_other_program_file(source) else read_document(source, str(source)).value
    written = value.get("name") if isinstance(value, dict) else None
    label = make_unique_name(name or str(written or "holodeck"), ())
    description = value.get("description") if isinstance(value, dict) else None
    about = (
        {"description": description} if isinstance(description, str) and "description" in program.form.copied else {}
    )
    if url:
        headers = {"Authorization": f"Bearer ${{{KEY_VARIABLE}}}"}
        entry = {"name": label, "transport": "http", "url": url, "headers": headers, **about}
    else:
        # Programs with windows are not started by a shell, and have another PATH.
        found = shutil.which("holodeck")
        program_file = str(Path(found).absolute()) if found else "holodeck"
        args = ["mcp", "serve", str(source.absolute())]
        entry = {"name": label, "command": program_file, "args": args, **about}
    return write_entry(entry, program, source.absolute().parent)


def _write_servers(source: Path, names: Sequence[str], program: Program) -> tuple[WrittenEntry, ...]:
    entries: list[WrittenEntry] = []
    for item in select_servers_by_names(source, names):
        # In a gateway, servers of agents may have the name of their agent before theirs.
        name = make_unique_name(item.tool.name, {entry.name for entry in entries})
        folder = Path(item.file).expanduser().absolute().parent
        entries.append(write_entry({**item.written, "name": name}, program, folder))
    return tuple(entries)


def _change_program_file(export: _Export, path: Path, *, yes: bool, removes: bool) -> EditResult:
    program = export.program
    file_format: EntryFormat = FORMATS[program.format]

    def edit(text: str) -> str:
        for entry in export.entries:
            if removes:
                text = file_format.remove_entry(text, program.list_path, entry.name, str(path))
            elif entry.value is not None:
                text = file_format.set_entry(text, program.list_path, entry.name, entry.value, str(path))
        return text

    question = "Remove this?" if removes else "Write this?"
    file_edit = FileEdit(path=path, edit=edit, keeps_backup=True)
    return show_and_apply(file_edit, file_format, question=question, is_confirmed=yes)


def _print_export(
    export: _Export, result: EditResult | None, source: Path | None, *, as_json: bool, removes: bool
) -> None:
    """Print the result. `source`: the file that the program will have started."""
    if as_json:
        click.echo(json.dumps(_export_data(export, result), indent=2, ensure_ascii=False))
        return
    if result is None:
        click.echo(escape_unprintable(export.text), nl=False)
    elif not result.is_changed:
        what = "has no such entry" if removes else "has it already"
        click.echo(f"{escape_unprintable(str(result.path))} {what}; nothing was written.")
    else:
        backup = f" The old file is {result.backup.name}." if result.backup else ""
        what = "Removed from" if removes else "Installed in"
        again = f" Restart {export.program.label} to use it." if not removes else ""
        click.echo(escape_unprintable(f"{what} {result.path}.{backup}{again}"))
    if not removes:
        _print_losses(export)
        if source is not None and not is_trusted(source):
            click.echo(
                escape_unprintable(
                    f"{source} is not trusted yet, and {export.program.label} cannot answer the question: "
                    f"holodeck trust {source}"
                ),
                err=True,
            )


def _print_losses(export: _Export) -> None:
    for loss in export.lost:
        click.secho(escape_unprintable(f"{loss.server}: {loss.key}: {loss.reason}"), fg="yellow", err=True)
    if export.variables:
        names = ", ".join(export.variables)
        click.echo(f"{export.program.label} needs these variables in its environment: {names}", err=True)


def _export_data(export: _Export, result: EditResult | None) -> dict[str, Any]:
    return {
        "program": export.program.name,
        "entries": export.values,
        "text": export.text,
        "lost": [{"server": loss.server, "key": loss.key, "reason": loss.reason} for loss in export.lost],
        "variables": export.variables,
        **(result.to_data() if result else {"file": str(export.program.find_file())}),
    }


def _refusal(loss: Loss) -> Problem:
    return Problem(message=f"'{loss.server}' cannot be exported: {loss.reason}")
