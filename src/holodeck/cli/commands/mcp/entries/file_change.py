"""A change of a configuration file by a command: the difference is shown, the person asked, and the file replaced.

The text is computed from the file as it is, and the file is replaced only if it still is as it was shown. A copy of the
old file is made beside it where the file belongs to another program. Secrets in the lines of the difference are masked.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from holodeck.cli.output.yes_or_no import ask_yes_or_no, can_ask
from holodeck.config.edit.formats import EntryFormat
from holodeck.config.files import decode_text, read_bytes
from holodeck.config.jsonc import MAX_EDITOR_FILE_BYTES
from holodeck.config.mcp_json.literal_secrets import find_secrets
from holodeck.lib.errors import ConfigError, ExecutionError, Problem
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.lib.redaction import SecretText
from holodeck.lib.system.file_replacement import lock_folder, make_backup, replace_file

_BOM = b"\xef\xbb\xbf"
_HELP = "  y: the file is changed as shown.\n  n, or Enter alone: nothing is written.\n"


@record
class ChangeResult:
    """What became of a file. `backup` is the copy of the old one, if there was a file and one was asked for."""

    path: Path
    is_changed: bool
    backup: Path | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the result as data for `--json`."""
        return {
            "file": str(self.path),
            "changed": self.is_changed,
            "backup": None if self.backup is None else str(self.backup),
        }


@record
class FileChange:
    """A change that is to be made. `edit` takes the text of the file (empty if there is none) and returns the new one.

    It is called again where the file has changed in between, and raises `ConfigError` for a file it cannot change.
    """

    path: Path
    file_format: EntryFormat
    edit: Callable[[str], str]
    question: str = "Write this?"
    is_confirmed: bool = False
    """Whether the person has agreed already, so that nothing is asked."""
    keeps_backup: bool = True
    check: Callable[[str], None] | None = None
    """Called with the new text before it is written. Raises `ConfigError` for one that must not be."""

    def apply(self) -> ChangeResult:
        """Make the change. Raises `ConfigError` for a file that cannot be edited and for a no.

        Raises `ExecutionError` for a file that cannot be written, or has changed while the person was asked.
        """
        shown: bytes | None = None
        if not self.is_confirmed:
            shown = self._read()
            after = self._edit(shown)
            if after is None or after == shown:
                return ChangeResult(path=self.path, is_changed=False)
            self._show(shown, after)
            self._ask()
        try:
            self.path.resolve().parent.mkdir(parents=True, exist_ok=True)
            with lock_folder(self.path.resolve().parent):
                return self._replace(shown)
        except OSError as error:
            reason = error.strerror or "it cannot be written"
            hint = " Nothing was written." if error.errno != errno.ENOSPC else ""
            raise ExecutionError(f"Cannot write {self.path}: {reason}.{hint}") from None

    def _replace(self, shown: bytes | None) -> ChangeResult:
        """Write the new content, under the lock. `shown`: the content that the person has agreed to change."""
        before = self._read()
        if not self.is_confirmed and before != shown:
            what = "was changed by another program meanwhile: nothing was written. Try again"
            raise ExecutionError(f"{self.path} {what}.")
        after = self._edit(before)
        if after is None or after == before:
            return ChangeResult(path=self.path, is_changed=False)
        if self.is_confirmed:
            self._show(before, after)
        backup = make_backup(self.path, before) if self.keeps_backup and before is not None else None
        try:
            replace_file(self.path, after)
        except BaseException:
            if backup is not None:
                backup.unlink(missing_ok=True)
            raise
        return ChangeResult(path=self.path, is_changed=True, backup=backup)

    def _read(self) -> bytes | None:
        if not self.path.exists() and not self.path.is_symlink():
            return None
        return read_bytes(self.path, str(self.path), MAX_EDITOR_FILE_BYTES)

    def _edit(self, before: bytes | None) -> bytes | None:
        """The new content; the same, also None, where there is nothing to change."""
        text = decode_text(before or b"", str(self.path))
        edited = self.edit(text)
        if edited == text:
            return before
        if self.check is not None:
            self.check(edited)
        return (_BOM if (before or b"").startswith(_BOM) else b"") + edited.encode()

    def _show(self, before: bytes | None, after: bytes) -> None:
        old, new = (decode_text(content or b"", str(self.path)) for content in (before, after))
        mask = SecretText(self._find_secrets(old)).mask
        for line in difflib.unified_diff(
            old.splitlines(), new.splitlines(), str(self.path), str(self.path), n=3, lineterm=""
        ):
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[0])
            click.secho(escape_unprintable(mask(line)), fg=colour, err=True)

    def _ask(self) -> None:
        if not can_ask():
            fix = "Run it at a terminal, or use --yes."
            raise ConfigError.of([Problem(message="there is no terminal to ask at", file=str(self.path), fix=fix)])
        if not ask_yes_or_no(self.question, _HELP):
            raise ConfigError.of([Problem(message="nothing was written", file=str(self.path))])

    def _find_secrets(self, text: str) -> Iterator[str]:
        if text.strip():
            yield from find_secrets(self.file_format.parse(text, str(self.path)).value)
