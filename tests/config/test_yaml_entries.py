"""An item of a list in a YAML file is added, changed and removed, and nothing else in the file changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.config.edit.yaml_entries import (
    append_yaml_item,
    change_yaml_item,
    remove_yaml_entry,
    remove_yaml_item,
    set_yaml_entry,
)
from holodeck.config.yaml_reader import parse_document
from holodeck.lib.errors import ConfigError

ITEM = {
    "type": "mcp",
    "name": "new",
    "description": "It's: a #test \u200b",
    "args": ["-y", "@scope/p@1.0", "no", "", "${A:-b}"],
    "env": {"KEY": "${KEY}", "ON": "yes"},
    "request_timeout": 30,
}
KEY = {"name": "new", "allow": {"tools": ["a.*", "!a.b"]}}
KEY_LINES = '  - name: new\n    allow:\n      tools: ["a.*", "!a.b"]\n'
SCALARS = st.sampled_from(
    [
        "text",
        "'it''s'",
        '"a: b # c"',
        "5",
        "{a: [1, 2]}",
        "[x, {y: z}]",
        "# nothing",
        "|\n@  one\n@\n@  two",
        ">-\n@  folded\n@  text",
    ]
)
COMMENTS = st.sampled_from(["", "# a comment\n", "\n", "  # indented\n", "      # deep\n\n", "\n\n# - name: old\n"])


@st.composite
def blocks(draw: st.DrawFn, indent: str, dash: str = "") -> str:
    """A mapping in block style, as an item of a list if there is a dash."""
    lines = ""
    for index, key in enumerate(draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))):
        prefix = f"{indent}{dash}" if index == 0 else indent + " " * len(dash)
        value = draw(SCALARS).replace("@", prefix.replace("-", " ") + "  ")
        note = draw(st.sampled_from(["", "  # on the line"])) if "\n" not in value else ""
        lines += f"{prefix}{key}: {value}{note}\n"
        if draw(st.booleans()):
            lines += f"{indent}{' ' * len(dash)}# below {key}\n"
    return lines


@st.composite
def lists(draw: st.DrawFn) -> str:
    """The key `tools` in one of its forms."""
    style = draw(st.sampled_from(["block", "flow", "empty", "null", "nothing", "missing"]))
    note = draw(st.sampled_from(["", "  # servers"]))
    if style == "missing":
        return ""
    if style == "flow":
        return f"tools: [{{a: 1}}, {{name: 'x'}}{draw(st.sampled_from(['', ', ']))}]{note}\n"
    if style != "block":
        return f"tools:{ {'empty': ' []', 'null': ' null', 'nothing': ''}[style] }{note}\n"
    indent = draw(st.sampled_from(["", "  ", "    "]))
    items = draw(st.lists(blocks(indent, draw(st.sampled_from(["- ", "-   "]))), min_size=1, max_size=3))
    return f"tools:{note}\n" + "".join(draw(COMMENTS) + item for item in items)


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file with comments, keys before and behind the list, and either line ending."""
    before = f"name: demo  # the name\n{draw(COMMENTS)}"
    behind = draw(st.sampled_from(["", "model:\n  provider: x\n", "last: |\n  text\n\n"]))
    text = draw(COMMENTS) + before + draw(lists()) + draw(COMMENTS) + behind + draw(COMMENTS)
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def is_part(old: str, new: str) -> bool:
    """Whether everything in the old text is in the new one, in the same order."""
    rest = iter(new)
    return all(char in rest for char in old)


def parse(text: str) -> dict[str, Any]:
    document = parse_document(text, "x.yaml")
    assert not document.problems
    assert isinstance(document.value, dict)
    return document.value


@settings(max_examples=500, deadline=None)
@given(files())
def test_an_item_is_added_and_removed_and_every_other_byte_stays(text: str) -> None:
    value = parse(text)
    new = append_yaml_item(text, "tools", ITEM, "x.yaml")
    meant = dict(value)
    meant["tools"] = [*(value.get("tools") or []), ITEM]
    assert json.dumps(parse(new)) == json.dumps(meant)
    if value.get("tools"):
        assert is_part(text, new)
        assert remove_yaml_item(new, "tools", len(value["tools"]), "x.yaml") == text
    else:
        assert is_part(text.replace("tools: []", "tools:").replace("tools: null", "tools:"), new)


@settings(max_examples=300, deadline=None)
@given(files(), st.integers(0, 2))
def test_any_item_is_removed_without_a_change_to_the_others(text: str, index: int) -> None:
    value = parse(text)
    tools = value.get("tools") or []
    if index >= len(tools):
        return
    new = remove_yaml_item(text, "tools", index, "x.yaml")
    assert json.dumps(parse(new)) == json.dumps({**value, "tools": tools[:index] + tools[index + 1 :]})
    assert is_part(new.replace("tools: []", "tools:"), text)


def test_an_item_has_the_indentation_of_the_others_and_comments_stay_with_theirs() -> None:
    tools = "tools:\n- name: a   # first\n  # more of a\n# about b\n- name: b\n  args:\n  - x\n"
    text = f"{tools}\n# the model\nmodel: {{provider: x}}\n"
    new = append_yaml_item(text, "tools", {"type": "mcp", "name": "c", "args": ["-y", "c"]}, "x.yaml")
    assert new == text.replace("  - x\n", '  - x\n- type: mcp\n  name: c\n  args: ["-y", "c"]\n')
    without_a = remove_yaml_item(new, "tools", 0, "x.yaml")
    assert without_a.startswith("tools:\n# about b\n- name: b\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"keys:\n{KEY_LINES}"),
        ("# mine\nother: 1", f"# mine\nother: 1\nkeys:\n{KEY_LINES}"),
        ("keys:\nother: 1  # one\n", f"keys:\n{KEY_LINES}other: 1  # one\n"),
        ("keys: []  # none yet\nother: 1\n", f"keys:  # none yet\n{KEY_LINES}other: 1\n"),
        ("keys: null\n", f"keys:\n{KEY_LINES}"),
        (
            "keys:\n- name: a  # first\n  text: |\n    x\n\n# about other\nother: 1\n",
            "keys:\n- name: a  # first\n  text: |\n    x\n"
            '- name: new\n  allow:\n    tools: ["a.*", "!a.b"]\n\n# about other\nother: 1\n',
        ),
        (
            "keys:\n  - name: a  # first\n  # the end\n\nother: 1\n",
            f"keys:\n  - name: a  # first\n{KEY_LINES}  # the end\n\nother: 1\n",
        ),
        ("keys:\n  - {name: a}\n", f"keys:\n  - {{name: a}}\n{KEY_LINES}"),
        ("keys: [{name: a}]\n", 'keys: [{name: a}, {"name": "new", "allow": {"tools": ["a.*", "!a.b"]}}]\n'),
        (
            "other: 1\r\nkeys:\r\n  - name: a\r\n",
            f"other: 1\nkeys:\n  - name: a\n{KEY_LINES}".replace("\n", "\r\n"),
        ),
    ],
)
def test_an_item_is_added_in_the_form_of_the_list(before: str, after: str) -> None:
    assert append_yaml_item(before, "keys", KEY, "x.yaml") == after


@pytest.mark.parametrize(
    ("before", "index", "after"),
    [
        (
            "keys:\n  # of a\n  - name: a\n    x: 1\n  # of b\n  - name: b  # bee\n    # inside\n    y: 2\n# end\n",
            1,
            "keys:\n  # of a\n  - name: a\n    x: 1\n  # of b\n# end\n",
        ),
        ("keys:\n- name: b\n  y: {z: 1}\n- name: a\n", 0, "keys:\n- name: a\n"),
        ("keys:  # callers\n  - name: b\nother: 1\n", 0, "keys: []  # callers\nother: 1\n"),
        ("keys: [{name: a}, {name: b}, {name: c}]\n", 1, "keys: [{name: a}, {name: c}]\n"),
        ("keys: [{name: b}, {name: c}]\n", 0, "keys: [{name: c}]\n"),
        ("keys: [{name: b}]\n", 0, "keys: []\n"),
    ],
)
def test_an_item_is_removed_and_comments_around_it_stay(before: str, index: int, after: str) -> None:
    assert remove_yaml_item(before, "keys", index, "x.yaml") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "keys:\n  - name: b\n    hash: 'one'  # of b\n    # inside\n    admin: true\n",
            'keys:\n  - name: b\n    hash: "sha256:2"  # of b\n    old: one\n    # inside\n    admin: true\n',
        ),
        (
            "keys:\n  - hash: ${HASH}\n    name: b\n    gone: 1\n",
            'keys:\n  - hash: "sha256:2"\n    old: one\n    name: b\n',
        ),
        ("keys:\n- gone: 1  # with this\n  hash: one", 'keys:\n- hash: "sha256:2"\n  old: one\n'),
        ("keys:\n  - name: b\n    gone: {x: 1}\n", 'keys:\n  - name: b\n    hash: "sha256:2"\n    old: one\n'),
        ("keys:\n  - hash:  # later\n    old: |\n      zero\n", 'keys:\n  - hash: "sha256:2"  # later\n    old: one\n'),
        (
            "keys:\r\n  - name: b\r\n    hash: one\r\n",
            'keys:\r\n  - name: b\r\n    hash: "sha256:2"\r\n    old: one\r\n',
        ),
        (
            "keys:\n  - {name: b, gone: 1, hash: one, admin: true}\n",
            'keys:\n  - {name: b, hash: "sha256:2", old: "one", admin: true}\n',
        ),
        ("keys: [{name: b, hash: one, old: zero}]\n", 'keys: [{name: b, hash: "sha256:2", old: "one"}]\n'),
    ],
)
def test_fields_of_an_item_are_set_added_behind_the_one_before_and_removed(before: str, after: str) -> None:
    changes = {"hash": "sha256:2", "old": "one", "gone": None}
    assert change_yaml_item(before, "keys", 0, changes, "x.yaml") == after


def test_neighbouring_fields_are_removed_together() -> None:
    changes = dict.fromkeys(("old", "expires"))
    for before, after in (
        ("keys: [{old: 1, expires: 2, name: b}]\n", "keys: [{name: b}]\n"),
        ("keys: [{name: b, old: 1, expires: 2}]\n", "keys: [{name: b}]\n"),
        ("keys:\n  - name: b\n    old: 1\n    expires: 2\n", "keys:\n  - name: b\n"),
    ):
        assert change_yaml_item(before, "keys", 0, changes, "x.yaml") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "keys:\n  - name: b\n    # what it needs\n    allow:  # asked for by B\n      models: [x]  # cheap\n"
            "      # and these\n      tools: ['a.*']\n    admin: true\n",
            'keys:\n  - name: b\n    # what it needs\n    allow:  # asked for by B\n      models: ["x", "y"]  # cheap\n'
            '      servers: ["a"]\n      # and these\n    admin: false\n',
        ),
        (
            "keys:\n  - name: b\n    allow:\n      models:  # two\n        - x\n        - z  # once\n"
            "      servers: []\n    admin: true  # for now\n",
            'keys:\n  - name: b\n    allow:\n      models: ["x", "y"]  # two\n      servers: ["a"]\n'
            "    admin: false  # for now\n",
        ),
        (
            "keys:\n  - name: b\n    allow:  # later\n# callers end here\n",
            'keys:\n  - name: b\n    allow: {models: ["x", "y"], servers: ["a"]}  # later\n    admin: false\n'
            "# callers end here\n",
        ),
        (
            "keys:\n  - name: b\n",
            'keys:\n  - name: b\n    allow:\n      models: ["x", "y"]\n      servers: ["a"]\n    admin: false\n',
        ),
        (
            "keys: [{name: b, allow: {models: [x], tools: [t]}}]  # one\n",
            'keys: [{name: b, allow: {models: ["x", "y"], servers: ["a"]}, admin: false}]  # one\n',
        ),
        (
            "keys: [{name: b}]\n",
            'keys: [{name: b, allow: {models: ["x", "y"], servers: ["a"]}, admin: false}]\n',
        ),
    ],
)
def test_a_field_that_is_a_mapping_is_changed_field_by_field_and_comments_stay(before: str, after: str) -> None:
    changes = {"allow": {"models": ["x", "y"], "servers": ["a"]}, "admin": False}
    assert change_yaml_item(before, "keys", 0, changes, "x.yaml") == after
    assert change_yaml_item(after, "keys", 0, changes, "x.yaml") == after


@pytest.mark.parametrize(
    "text",
    [
        "base: &s {models: [x]}\nkeys:\n  - name: b\n    allow: *s\n",
        "base: &s {models: [x]}\nkeys:\n  - name: b\n    allow: {<<: *s, tools: [t]}\n",
        "keys:\n  - name: b\n    allow: &s\n      models: [x]\n  - name: c\n    allow: *s\n",
    ],
)
def test_a_mapping_that_others_share_is_not_changed(text: str) -> None:
    with pytest.raises(ConfigError, match="by hand"):
        change_yaml_item(text, "keys", 0, {"allow": {"models": ["y"]}}, "x.yaml")


@settings(max_examples=300, deadline=None)
@given(
    files(),
    st.integers(0, 2),
    st.sampled_from("abcde"),
    st.sampled_from(["two", "yes", "a: b # c", True, 5, ["x", "!y"], {}, {"a": ["b"], "c: d": 1}, None]),
)
def test_any_field_is_changed_without_a_change_to_the_others(text: str, index: int, field: str, new: Any) -> None:
    value = parse(text)
    tools = value.get("tools") or []
    if index >= len(tools):
        return
    item = tools[index]
    try:
        edited = change_yaml_item(text, "tools", index, {field: new}, "x.yaml")
    except ConfigError:
        assert new is None
        assert next(iter(item)) == field
        return
    changed = {**item, field: new} if new is not None else {name: item[name] for name in item if name != field}
    meant = {**value, "tools": [*tools[:index], changed, *tools[index + 1 :]]}
    assert json.dumps(parse(edited)) == json.dumps(meant)
    if new is None:
        assert is_part(edited, text)
    elif field not in item:
        assert is_part(text, edited)


def test_an_entry_of_a_mapping_is_set_and_removed() -> None:
    text = "# goose\nextensions:\n  developer:  # built in\n    enabled: true\n    type: builtin\n\nGOOSE_MODEL: x\n"
    new = set_yaml_entry(text, ("extensions",), "holodeck", {"cmd": "x", "args": ["a"], "envs": {}}, "config.yaml")
    added = '    type: builtin\n  holodeck:\n    cmd: x\n    args: ["a"]\n    envs: {}\n'
    assert new == text.replace("    type: builtin\n", added)
    assert remove_yaml_entry(new, ("extensions",), "holodeck", "config.yaml") == text


@pytest.mark.parametrize(
    "text",
    [
        "tools: &a\n  - name: x\nother: *a\n---\nb: 1\n",
        "base: &a [{name: x}]\ntools: *a\n",
        "base: &a {name: x}\ntools:\n  - *a\n",
        "tools: text\n",
        "tools:\n\t- a\n",
        "- a\n",
        "a: |\n  no end of line",
        "tools: [\n  # none\n]\n",
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        append_yaml_item(text, "tools", ITEM, "x.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "base: &b {name: b, hash: one}\nkeys:\n  - *b\n",
        "one: &list\n  - name: b\n    hash: one\nkeys: *list\n",
        "base: &b {hash: one}\nkeys:\n  - name: b\n    <<: *b\n",
        "keys:\n  - name: b\n    hash: &h one\nother: *h\n",
        "other: &h one\nkeys:\n  - name: b\n    hash: *h\n",
        "keys: {name: b}\n",
        "keys:\n  - b\n",
        "other: 1\n",
    ],
)
def test_an_item_that_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^x\.yaml") as refused:
        change_yaml_item(text, "keys", 0, {"hash": "two"}, "x.yaml")
    assert "by hand" in str(refused.value)
