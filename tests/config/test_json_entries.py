"""An entry in a JSON file with comments is set and removed, and nothing else in the file changes."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.config.edit.formats import remove_json_entry, set_json_entry
from holodeck.config.jsonc import parse_jsonc
from holodeck.lib.errors import ConfigError

SERVERS = ("mcpServers",)
ENTRY = {"command": "/opt/holodeck", "args": ["mcp", "serve", "/home/me/agent.yaml"], "env": {"KEY": "${KEY}"}}
KEYS = st.sampled_from(["a", "b", "editor.fontSize", "päth", 'quo"te', "mcpServers2"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "text", "// no comment", 'a"}b', "ünïcode"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
NOISE = st.sampled_from(
    ["", " ", "\n", "\n  ", "\n\t", "\r\n  ", " /* {,} */ ", " // it's }, here\n", "\n/* a\n b */\n"]
)

BOOLEANS = st.booleans()


@st.composite
def json_texts(draw: st.DrawFn, value: Any) -> str:
    """A text of the value, with whitespace, comments and trailing commas of all kinds."""
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}{draw(NOISE)}:{draw(NOISE)}{draw(json_texts(item))}" for key, item in value.items()]
    elif isinstance(value, list):
        items = [draw(json_texts(item)) for item in value]
    else:
        return json.dumps(value, ensure_ascii=draw(BOOLEANS))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    text = ",".join(f"{draw(NOISE)}{item}{draw(NOISE)}" for item in items)
    has_trailing_comma = draw(BOOLEANS)
    trailing = f",{draw(NOISE)}" if items and has_trailing_comma else ""
    return f"{opening}{text or draw(NOISE)}{trailing}{closing}"


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A file with settings of its program, and with servers or without."""
    value = draw(st.dictionaries(KEYS, VALUES, max_size=3))
    if draw(st.booleans()):
        value["mcpServers"] = draw(st.dictionaries(KEYS, VALUES, max_size=3))
    return draw(NOISE) + draw(json_texts(value)) + draw(NOISE), value


def is_part(old: str, new: str) -> bool:
    """Whether everything in the old text but whitespace is in the new one, in the same order."""
    rest = iter("".join(new.split()))
    return all(char in rest for char in "".join(old.split()))


@settings(max_examples=400, deadline=None)
@given(files())
def test_a_new_entry_is_added_and_everything_else_stays(file: tuple[str, dict[str, Any]]) -> None:
    text, value = file
    new = set_json_entry(text, SERVERS, "holodeck", ENTRY, "x.json")
    meant = copy.deepcopy(value)
    meant.setdefault("mcpServers", {})["holodeck"] = ENTRY
    assert json.dumps(parse_jsonc(new, "x.json").value) == json.dumps(meant)
    assert is_part(text, new)
    assert set_json_entry(new, SERVERS, "holodeck", ENTRY, "x.json") == new


@settings(max_examples=400, deadline=None)
@given(files())
def test_an_entry_that_was_added_is_removed_again_with_nothing_else(file: tuple[str, dict[str, Any]]) -> None:
    text, value = file
    new = set_json_entry(text, SERVERS, "holodeck", ENTRY, "x.json")
    back = remove_json_entry(new, SERVERS, "holodeck", "x.json")
    meant = {**value, "mcpServers": value.get("mcpServers", {})}
    assert json.dumps(parse_jsonc(back, "x.json").value) == json.dumps(meant)
    assert is_part(text.replace(",", ""), back)


@settings(max_examples=300, deadline=None)
@given(files(), st.data())
def test_any_entry_is_replaced_and_removed_without_a_change_to_the_others(
    file: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    text, value = file
    names = list(value.get("mcpServers", {}))
    if not names:
        assert remove_json_entry(text, SERVERS, "a", "x.json") == text
        return
    name = data.draw(st.sampled_from(names))
    new = set_json_entry(text, SERVERS, name, ENTRY, "x.json")
    meant = copy.deepcopy(value)
    meant["mcpServers"][name] = ENTRY
    assert json.dumps(parse_jsonc(new, "x.json").value) == json.dumps(meant)
    del meant["mcpServers"][name]
    assert json.dumps(parse_jsonc(remove_json_entry(text, SERVERS, name, "x.json"), "x.json").value) == json.dumps(
        meant
    )


def test_an_entry_follows_the_style_of_the_file_and_leaves_its_comments() -> None:
    text = (
        '// my editor\n{\n\t// servers\n\t"mcpServers": {\n'
        '\t\t"files": {"command": "npx"} // mine\n\t\t// "old": {}\n\t},\n\t"theme": "dark", // nice\n}\n'
    )
    new = set_json_entry(text, SERVERS, "holodeck", {"command": "x", "args": ["a"]}, "x.json")
    assert new == text.replace(
        '{"command": "npx"} // mine\n',
        '{"command": "npx"}, // mine\n\t\t"holodeck": {\n\t\t\t"command": "x",\n\t\t\t"args": ["a"]\n\t\t}\n',
    )
    assert remove_json_entry(new, SERVERS, "holodeck", "x.json") == text


def test_a_strict_json_file_stays_strict() -> None:
    text = json.dumps({"globalShortcut": "", "mcpServers": {"a": {"command": "npx"}}}, indent=2)
    new = set_json_entry(text, SERVERS, "holodeck", ENTRY, "x.json")
    assert json.loads(new)["mcpServers"]["holodeck"] == ENTRY
    assert json.loads(remove_json_entry(new, SERVERS, "a", "x.json"))["mcpServers"] == {"holodeck": ENTRY}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mcpServers": {', "not valid JSON"),
        ("[]", "must hold a JSON object"),
        ('{"mcpServers": []}', "must be an object"),
        ('{"a": 1, "a": 2}', "given twice"),
    ],
)
def test_a_file_that_is_not_as_expected_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        set_json_entry(text, SERVERS, "holodeck", ENTRY, "x.json")
    assert message in caught.value.problems[0].message
