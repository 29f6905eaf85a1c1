"""Edits of one list in a YAML file: the entry changes, and nothing else does."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from holodeck.config.edit.yaml_list import append_entry, change_entry, remove_entry, rewrite_file
from holodeck.lib.errors import ConfigError

NEW = {"name": "new", "allow": {"tools": ["a.*", "!a.b"]}}
LINES = '- name: "new"\n    allow: {tools: ["a.*", "!a.b"]}\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"keys:\n  {LINES}"),
        ("# mine\nother: 1", f"# mine\nother: 1\nkeys:\n  {LINES}"),
        ("keys:\nother: 1  # one\n", f"keys:\n  {LINES}other: 1  # one\n"),
        ("keys: []  # none yet\nother: 1\n", f"keys:  # none yet\n  {LINES}other: 1\n"),
        ("keys: null\n", f"keys:\n  {LINES}"),
        (
            "keys:\n- name: a  # first\n  text: |\n    x\n\n# about other\nother: 1\n",
            "keys:\n- name: a  # first\n  text: |\n    x\n"
            + LINES.replace("    allow", "  allow")
            + "\n# about other\nother: 1\n",
        ),
        (
            "keys:\n  - name: a  # first\n  # the end\n\nother: 1\n",
            f"keys:\n  - name: a  # first\n  {LINES}  # the end\n\nother: 1\n",
        ),
        ("keys:\n  - {name: a}\n", f"keys:\n  - {{name: a}}\n  {LINES}"),
        ("keys: [{name: a}]\n", 'keys: [{name: a}, {name: "new", allow: {tools: ["a.*", "!a.b"]}}]\n'),
        ("other: 1\r\nkeys:\r\n  - name: a\r\n", f"other: 1\r\nkeys:\r\n  - name: a\r\n  {LINES}".replace("\r", "")),
    ],
)
def test_an_entry_is_added_in_the_form_of_the_list(before: str, after: str) -> None:
    expected = after.replace("\n", "\r\n") if "\r" in before else after
    assert append_entry(before, "keys", NEW, "f").rstrip() == expected.rstrip()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "keys:\n  # of a\n  - name: a\n    x: 1\n  # of b\n  - name: b  # bee\n    # inside\n    y: 2\n# end\n",
            "keys:\n  # of a\n  - name: a\n    x: 1\n  # of b\n# end\n",
        ),
        ("keys:\n- name: b\n  y: {z: 1}\n- name: a\n", "keys:\n- name: a\n"),
        ("keys:  # callers\n  - name: b\nother: 1\n", "keys: []  # callers\nother: 1\n"),
        ("keys: [{name: a}, {name: b}, {name: c}]\n", "keys: [{name: a}, {name: c}]\n"),
        ("keys: [{name: b}, {name: c}]\n", "keys: [{name: c}]\n"),
        ("keys: [{name: b}]\n", "keys: []\n"),
    ],
)
def test_an_entry_is_removed_and_comments_around_it_stay(before: str, after: str) -> None:
    assert remove_entry(before, "keys", "b", "f") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "keys:\n  - name: b\n    hash: 'one'  # of b\n    # inside\n    admin: true\n",
            'keys:\n  - name: b\n    hash: "two"  # of b\n    old: "one"\n    # inside\n    admin: true\n',
        ),
        (
            "keys:\n  - hash: ${HASH}\n    name: b\n    gone: 1\n",
            'keys:\n  - hash: "two"\n    old: "one"\n    name: b\n',
        ),
        (
            "keys:\n  - {name: b, gone: 1, hash: one, admin: true}\n",
            'keys:\n  - {name: b, hash: "two", old: "one", admin: true}\n',
        ),
        ("keys: [{name: b, hash: one, old: zero}]\n", 'keys: [{name: b, hash: "two", old: "one"}]\n'),
    ],
)
def test_values_of_an_entry_are_replaced_added_and_removed(before: str, after: str) -> None:
    assert change_entry(before, "keys", "b", {"hash": "two", "old": "one", "gone": None}, "f") == after


@pytest.mark.parametrize(
    "text",
    [
        "base: &b {name: b, hash: one}\nkeys:\n  - *b\n",
        "one: &list\n  - name: b\n    hash: one\nkeys: *list\n",
        "keys: {name: b}\n",
        "keys:\n  -\n    name: a\n  - b\n",
    ],
)
def test_a_list_that_cannot_be_edited_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        remove_entry(text, "keys", "b", "f")
    with pytest.raises(ConfigError):
        change_entry(text, "keys", "b", {"hash": "two"}, "f")


def test_a_file_keeps_its_permissions_its_mark_and_the_link_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    file.write_bytes(b"\xef\xbb\xbfkeys: []\n")
    file.chmod(0o640)
    link.symlink_to(file)
    rewrite_file(link, lambda text: append_entry(text, "keys", {"name": "\u00e9"}, "f"))
    assert file.read_bytes() == '\ufeffkeys:\n  - name: "\u00e9"\n'.encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["link.yaml", "real.yaml"]


def test_a_file_that_changes_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("keys: []\n")

    def edit(text: str) -> str:
        file.write_text("keys: [{name: other}]\n")
        return append_entry(text, "keys", {"name": "mine"}, "f")

    with pytest.raises(ConfigError, match="changed at this moment"):
        rewrite_file(file, edit)
    assert file.read_text() == "keys: [{name: other}]\n"
