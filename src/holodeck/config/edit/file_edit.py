"""An edit of a configuration file: its text is changed by a function, and the file is replaced whole or not at all.

`FileEdit.apply` reads, edits and replaces under the lock of the folder, so that commands that run at once do not lose
each other's edits. Programs that do not know the lock are noticed: a file that has changed since it was read is left as
it is. Its mode, its byte-order mark and a symbolic link to it stay. `plan` computes the same without writing, for
commands that ask first.

A splice replaces a range in a text; what splices did is checked before the text is used.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from holodeck.config.files import decode_text, file_error, read_bytes
from holodeck.config.jsonc import MAX_EDITOR_FILE_BYTES
from holodeck.lib.errors import ConfigError, ExecutionError
from holodeck.lib.record import record
from holodeck.lib.system.files import lock_folder, make_backup, replace_file

_BOM = b"\xef\xbb\xbf"
BY_HAND = "Make the change by hand."


@record
class PlannedEdit:
    """The content of a file before and after an edit. None: there is no file."""

    before: bytes | None
    after: bytes | None

    @property
    def is_change(self) -> bool:
        return self.before != self.after


@record
class EditResult:
    """The outcome of an edit. `backup` is the copy of the old one, if there was a file and one was asked for."""

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
class FileEdit:
    """An edit that is to be made. `edit` takes the text of the file (empty if there is none) and returns the new one.

    It raises `ConfigError` for a file that it cannot change.
    """

    path: Path
    edit: Callable[[str], str]
    check: Callable[[str], None] | None = None
    """Called with the new text before it is written. Raises `ConfigError` for one that must not be."""
    keeps_backup: bool = False

    def plan(self) -> PlannedEdit:
        """Compute the new content. Raises `ConfigError` for a file that cannot be read or edited."""
        before = self._read()
        text = decode_text(before or b"", str(self.path))
        edited = self.edit(text)
        if edited == text:
            return PlannedEdit(before=before, after=before)
        if self.check is not None:
            self.check(edited)
        mark = _BOM if (before or b"").startswith(_BOM) else b""
        return PlannedEdit(before=before, after=mark + edited.encode())

    def apply(
        self, *, agreed: PlannedEdit | None = None, on_change: Callable[[PlannedEdit], None] | None = None
    ) -> EditResult:
        """Make the edit. `agreed`: the plan that a person agreed to. `on_change` is called before a change is written.

        Raises as `plan` does, and `ExecutionError` for a file that cannot be written, or that another program has
        changed since it was read or agreed to.
        """
        folder = self.path.resolve().parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with lock_folder(folder):
                return self._replace(agreed, on_change)
        except OSError as error:
            reason = error.strerror or "it cannot be written"
            hint = " Nothing was written." if error.errno != errno.ENOSPC else ""
            raise ExecutionError(f"Cannot write {self.path}: {reason}.{hint}") from None

    def _replace(self, agreed: PlannedEdit | None, on_change: Callable[[PlannedEdit], None] | None) -> EditResult:
        planned = agreed or self.plan()
        if planned.after is None or not planned.is_change:
            return EditResult(path=self.path, is_changed=False)
        if on_change is not None:
            on_change(planned)
        if self._read() != planned.before:
            what = "was changed by another program meanwhile: nothing was written. Try again"
            raise ExecutionError(f"{self.path} {what}.")
        backup = make_backup(self.path, planned.before) if self.keeps_backup and planned.before is not None else None
        try:
            replace_file(self.path, planned.after)
        except BaseException:
            if backup is not None:
                backup.unlink(missing_ok=True)
            raise
        return EditResult(path=self.path, is_changed=True, backup=backup)

    def _read(self) -> bytes | None:
        if not self.path.exists() and not self.path.is_symlink():
            return None
        return read_bytes(self.path, str(self.path), MAX_EDITOR_FILE_BYTES)


class Splice(NamedTuple):
    """The range from `start` to `end` of a text, and what replaces it. An empty range is an insertion."""

    start: int
    end: int
    text: str


def apply_splices(text: str, splices: Iterable[Splice]) -> str:
    """Return the text with all ranges replaced. Ranges must not overlap; what is outside them stays as it is."""
    result = text
    for splice in sorted(splices, key=lambda each: (each.start, each.end), reverse=True):
        result = result[: splice.start] + splice.text + result[splice.end :]
    return result


def is_same_data(one: Any, other: Any) -> bool:
    """Return whether two values are the same, with the same order of keys and the same types of numbers."""
    return json.dumps(one, default=repr) == json.dumps(other, default=repr)


def require_same_data(found: Any, meant: Any, shown_as: str) -> None:
    """Raise `ConfigError` unless an edited text has exactly the data that was meant."""
    if not is_same_data(found, meant):
        raise cannot_edit(shown_as)


def cannot_edit(shown_as: str, *, line: int | None = None) -> ConfigError:
    """Return the error for a file whose form is too unusual for an edit that leaves everything else as it is."""
    message = "the file cannot be edited here without a change to something else, so it was left as it is"
    return file_error(shown_as, message, fix=BY_HAND, line=line)


def find_newline(text: str) -> str:
    """Return the line ending of a text: that of its first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def start_of_line(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def end_of_line(text: str, offset: int) -> int:
    """Return the offset behind the line break of the line, or the end of the text."""
    found = text.find("\n", offset)
    return len(text) if found < 0 else found + 1
