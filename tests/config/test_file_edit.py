"""An edit of a file: another program's change is not overwritten, and what is not a change is not written."""

from __future__ import annotations

from pathlib import Path

import pytest

from holodeck.config.edit.file_edit import FileEdit
from holodeck.config.edit.yaml_entries import append_yaml_item
from holodeck.lib.errors import ExecutionError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text("keys: []\n")
    return path


def test_a_file_that_another_program_changes_meanwhile_is_not_overwritten(file: Path) -> None:
    def edit(text: str) -> str:
        file.write_text("keys: [{name: other}]\n")
        return append_yaml_item(text, "keys", {"name": "mine"}, "gateway.yaml")

    with pytest.raises(ExecutionError, match="changed by another program meanwhile"):
        FileEdit(path=file, edit=edit, keeps_backup=True).apply()
    assert file.read_text() == "keys: [{name: other}]\n"
    assert list(file.parent.iterdir()) == [file]


def test_a_plan_that_was_agreed_to_is_not_made_on_another_file(file: Path) -> None:
    edit = FileEdit(path=file, edit=lambda text: append_yaml_item(text, "keys", {"name": "mine"}, "gateway.yaml"))
    planned = edit.plan()
    file.write_text("keys: [{name: other}]\n")
    with pytest.raises(ExecutionError, match="changed by another program meanwhile"):
        edit.apply(agreed=planned)
    assert file.read_text() == "keys: [{name: other}]\n"


def test_an_edit_that_changes_nothing_does_not_replace_the_file(file: Path) -> None:
    before = file.stat()
    before_bytes = file.read_bytes()
    result = FileEdit(path=file, edit=lambda text: text, keeps_backup=True).apply()
    assert (result.is_changed, result.backup) == (False, None)
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert file.read_bytes() == before_bytes
