"""An edit of a configuration file by a command: the difference is shown, the person asked, and the file replaced.

The file is replaced only if it still is as it was shown. Secrets in the lines of the difference are masked.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

import click

from holodeck.cli.output.yes_or_no import ask_yes_or_no, can_ask
from holodeck.config.edit.file_edit import EditResult, FileEdit, PlannedEdit
from holodeck.config.edit.formats import EntryFormat
from holodeck.config.files import decode_text
from holodeck.config.mcp_json.literal_secrets import find_secrets
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.redaction import SecretText

_HELP = "  y: the file is changed as shown.\n  n, or Enter alone: nothing is written.\n"


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
