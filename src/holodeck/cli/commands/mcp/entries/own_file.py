"""The server list of an agent or gateway file, changed by a command.

The new text is loaded with every check before it replaces the file, with values in place of variables that are not set.
Errors that were there before do not matter; one that the change brings refuses it. A file that was trusted as it stood
is trusted with what the person has added by typing it.

The difference is shown, with its secrets masked, and the person asked. A file is replaced only if it still is as shown.
"""

from __future__ import annotations

import difflib
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from holodeck.cli.commands.mcp.target import unknown_server_error
from holodeck.cli.default_file import resolve_file
from holodeck.cli.output.stdin import ask_yes_or_no, can_ask
from holodeck.config.actions import Actions, list_actions
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE, user_settings_file
from holodeck.config.edit.file_edit import EditResult, FileEdit, PlannedEdit
from holodeck.config.edit.formats import FORMATS, EntryFormat
from holodeck.config.edit.yaml_entries import append_yaml_item, remove_yaml_item
from holodeck.config.env_loader import PlaceholderVariables
from holodeck.config.files import decode_text
from holodeck.config.mcp_json.literal_secrets import find_secrets
from holodeck.config.server_names import make_unique_name
from holodeck.config.yaml_reader import parse_document, read_document
from holodeck.lib.errors import ConfigError, ExecutionError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.lib.redaction import SecretText
from holodeck.trust import check_trust, open_trust_store, save_trust

FILES = (DEFAULT_AGENT_FILE, DEFAULT_GATEWAY_FILE)
Tolerates = Callable[[Problem], bool]
"""Whether a change may bring a problem, which is then only reported."""
_SERVER_KINDS = frozenset({"process", "connection"})
_HELP = "  y: the file is changed as shown.\n  n, or Enter alone: nothing is written.\n"


@record
class OwnFile:
    """An agent or gateway file whose list of servers is to be changed."""

    path: Path
    tools_key: str
    """`tools` of an agent, `mcp_servers` of a gateway."""

    @property
    def is_gateway(self) -> bool:
        return self.tools_key == "mcp_servers"

    def list_entries(self) -> list[Any]:
        """Return the entries as written. Raises `ConfigError` for a file that cannot be parsed."""
        return _entries_of(read_document(self.path, str(self.path)).value, self.tools_key)

    def find_free_name(self, wanted: str) -> str:
        """Return the name, with a number if a server of the file has it."""
        entries = self.list_entries()
        return make_unique_name(wanted, {str(entry.get("name")) for entry in entries if isinstance(entry, dict)})

    def add_entries(
        self,
        entries: Sequence[Mapping[str, Any]],
        *,
        keeps_trust: bool,
        is_confirmed: bool = True,
        tolerates: Tolerates = lambda problem: False,
    ) -> tuple[EditResult, tuple[Problem, ...]]:
        """Append the entries, in the form of an agent file. Returns also the problems that were tolerated.

        `keeps_trust`: the person has typed or seen all of them. `is_confirmed`: nothing is asked. Raises `ConfigError`
        with the problems that they would bring, and `ExecutionError` for a file that cannot be written.
        """
        tolerated: list[Problem] = []

        def edit(text: str) -> str:
            for entry in entries:
                text = append_yaml_item(text, self.tools_key, self._own_form(entry), str(self.path))
            return text

        def check(text: str) -> None:
            brought = self._find_new_errors(text)
            refused = [problem for problem in brought if not tolerates(problem)]
            if refused:
                raise ConfigError.of(refused)
            tolerated[:] = brought

        agreed = _find_agreed_actions(self.path) if keeps_trust else None
        result = self._change(edit, check, is_confirmed=is_confirmed)
        if agreed is not None and not tolerated:
            self._keep_trust(agreed, {str(entry.get("name")) for entry in entries})
        return result, tuple(tolerated)

    def _keep_trust(self, agreed: Actions, names: set[str]) -> None:
        """Trust the file with the servers of these names and their scripts, unless it does something else that is new.

        A new reference may take its value from a `.env` file, which may be a stranger's: the next use asks.
        """
        # Without a store the next use asks, too.
        with suppress(ConfigError, ExecutionError):
            actions = _read_actions(self.path)
            new = [action for action in actions.actions if action not in agreed.actions]
            if all(
                action.kind == "script" or (action.kind in _SERVER_KINDS and action.name in names) for action in new
            ):
                save_trust(self.path, actions, open_trust_store())

    def remove_entry(self, name: str) -> EditResult:
        """Remove the server of this name. Raises `ConfigError` if there is none, or if the file needs it."""

        def edit(text: str) -> str:
            entries = _entries_of(parse_document(text, str(self.path)).value, self.tools_key)
            names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
            if name not in names:
                raise unknown_server_error(name, [str(each) for each in names if each], str(self.path))
            return remove_yaml_item(text, self.tools_key, names.index(name), str(self.path))

        def check(text: str) -> None:
            brought = self._find_new_errors(text)
            if brought:
                raise ConfigError.of(brought)

        return self._change(edit, check)

    def _change(
        self, edit: Callable[[str], str], check: Callable[[str], None], *, is_confirmed: bool = True
    ) -> EditResult:
        file_edit = FileEdit(path=self.path, edit=edit, check=check)
        return show_and_apply(file_edit, FORMATS["yaml"], is_confirmed=is_confirmed)

    def _own_form(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry for this file: the servers of a gateway have no `type`."""
        return {key: value for key, value in entry.items() if not (self.is_gateway and key == "type")}

    def _find_new_errors(self, text: str) -> list[Problem]:
        """Return the errors that the file would have with this text, and has not now."""
        before = Counter(problem.message for problem in _find_errors(self.path))
        brought: list[Problem] = []
        draft = self.path.with_name(f".{self.path.stem}.{secrets.token_hex(8)}.new{self.path.suffix}")
        try:
            draft.write_text(text, encoding="utf-8")
            found = _find_errors(draft)
        except OSError as error:
            raise ExecutionError(f"Cannot write in {self.path.absolute().parent}: {error.strerror}.") from None
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        for problem in found:
            if before[problem.message]:
                before[problem.message] -= 1
                continue
            is_here = problem.file == str(draft)
            brought.append(replace(problem, file=str(self.path)) if is_here else problem)
        return brought


def open_own_file(file: str | None) -> OwnFile:
    """Return the file with this path, or the default one. Raises `ConfigError` for a file of another program."""
    from holodeck.config.gateway_loader import is_gateway
    from holodeck.runtime import is_other_program_file

    path = resolve_file(file, FILES, fix="Name a file with -f, or make an agent with 'holodeck init'.")
    if is_other_program_file(path):
        fix = "Change it in that program, or with 'holodeck mcp export --install'."
        raise ConfigError.of([Problem(message="this is a file of another program", file=str(path), fix=fix)])
    return OwnFile(path=path, tools_key="mcp_servers" if is_gateway(path, str(path)) else "tools")


def allow_commands(commands: Sequence[str], *, is_confirmed: bool) -> None:
    """Allow programs in the person's own settings, for all agent files. The change is shown, and the person asked.

    Raises as `OwnFile.add_entries` does.
    """
    path = user_settings_file()

    def edit(text: str) -> str:
        for command in commands:
            text = append_yaml_item(text, "allowed_commands", command, str(path))
        return text

    names, one = ", ".join(f"'{command}'" for command in commands), len(commands) == 1
    verb, them = ("is", "it") if one else ("are", "them")
    what = f"{names} {verb} not npx, uvx or docker, so your own settings must allow {them}, for all your agents:"
    click.secho(escape_unprintable(what), bold=True, err=True)
    file_edit, question = FileEdit(path=path, edit=edit), f"Allow {them}?"
    show_and_apply(file_edit, FORMATS["yaml"], question=question, is_confirmed=is_confirmed)


def is_trusted(path: Path) -> bool:
    """Return whether the user trusts a file as it is. False for one that cannot be loaded."""
    return _find_agreed_actions(path) is not None


def _find_agreed_actions(path: Path) -> Actions | None:
    """Return the actions of a file that the user trusts as it is; None for any other."""
    try:
        actions = _read_actions(path)
        verdict = check_trust(path, actions, environ={}, store=open_trust_store())
    except ConfigError:
        return None
    return actions if verdict.state == "trusted" else None


def _read_actions(path: Path) -> Actions:
    from holodeck.config.gateway_loader import is_gateway
    from holodeck.runtime import is_other_program_file, read_agent, read_gateway, read_servers

    environ = PlaceholderVariables(os.environ)
    if is_other_program_file(path):
        return list_actions(read_servers(path, kind="file", environ=environ))
    if is_gateway(path, str(path)):
        return list_actions(read_gateway(path, environ=environ))
    return list_actions(read_agent(path, environ=environ))


def _find_errors(path: Path) -> list[Problem]:
    try:
        _read_actions(path)
    except ConfigError as error:
        return [problem for problem in error.problems if problem.severity == "error"]
    return []


def _entries_of(value: Any, tools_key: str) -> list[Any]:
    entries = value.get(tools_key) if isinstance(value, dict) else None
    return entries if isinstance(entries, list) else []


def show_and_apply(
    edit: FileEdit, file_format: EntryFormat, *, question: str = "Write this?", is_confirmed: bool = False
) -> EditResult:
    """Show the difference and make the edit. `is_confirmed`: the person has agreed already, and nothing is asked.

    Raises `ConfigError` for a file that cannot be edited and for a no, and `ExecutionError` for a file that cannot be
    written, or has changed while the person was asked.
    """

    def show(planned: PlannedEdit) -> None:
        _print_difference(planned, edit.path, file_format)

    if is_confirmed:
        return edit.apply(on_change=show)
    planned = edit.plan()
    if not planned.is_change:
        return EditResult(path=edit.path, is_changed=False)
    show(planned)
    _ask(edit.path, question)
    return edit.apply(agreed=planned)


def _print_difference(planned: PlannedEdit, path: Path, file_format: EntryFormat) -> None:
    old, new = (decode_text(content or b"", str(path)) for content in (planned.before, planned.after))
    mask = SecretText(_find_secrets(old, path, file_format)).mask
    for line in difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), str(path), n=3, lineterm=""):
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[0])
        click.secho(escape_unprintable(mask(line)), fg=colour, err=True)


def _ask(path: Path, question: str) -> None:
    if not can_ask():
        fix = "Run it at a terminal, or use --yes."
        raise ConfigError.of([Problem(message="there is no terminal to ask at", file=str(path), fix=fix)])
    if not ask_yes_or_no(question, _HELP):
        raise ConfigError.of([Problem(message="nothing was written", file=str(path))])


def _find_secrets(text: str, path: Path, file_format: EntryFormat) -> Iterator[str]:
    if text.strip():
        yield from find_secrets(file_format.parse(text, str(path)).value)
