"""A table in a TOML file is set and removed, and nothing else in the file changes."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.config.edit.formats import remove_toml_entry, set_toml_entry
from holodeck.lib.errors import ConfigError

SERVERS = ("mcp_servers",)
ENTRY = {"command": "/opt/holodeck", "args": ["mcp", 'a"b\n'], "env": {"A B": "ü"}, "tool_timeout_sec": 30}
FILE = """# my Codex
model = "gpt-5"   # the usual one

[mcp_servers.files]
command = "npx"
args = [
  "-y",   # yes
  "[x]",
]

[mcp_servers.files.env]
KEY = "value"

# about the profile
[profiles.fast]
model = "small"
"""
PARTS = st.lists(
    st.sampled_from(
        [
            "# a comment\n",
            "\n",
            "[profiles.a]\nx = 1 # one\n",
            "[profiles.\"b c\"]\ntext = '''\n[no.table]\n# no comment\n'''\n",
            "[[hooks]]\nrun = 1\n",
            "[[hooks]]\nrun = 2\n# tail\n",
            "[mcp_servers.one]\ncommand = 'x'\n\n[mcp_servers.one.env]\nA = 'b'\n",
            "[mcp_servers]\n",
            '[mcp_servers . "two"]\nurl = "u" # here\n',
        ]
    ),
    max_size=6,
    unique=True,
)


@settings(max_examples=300, deadline=None)
@given(PARTS, st.sampled_from(["", "a = 1\n", "\n# top\nb.c = [1,\n2]\n"]))
def test_a_table_is_added_and_removed_and_nothing_else_changes(parts: list[str], top: str) -> None:
    text = top + "".join(parts)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    new = set_toml_entry(text, SERVERS, "holodeck", ENTRY, "config.toml")
    data.setdefault("mcp_servers", {})["holodeck"] = ENTRY
    assert tomllib.loads(new) == data
    assert new.startswith(text)
    assert set_toml_entry(new, SERVERS, "holodeck", ENTRY, "config.toml") == new
    assert remove_toml_entry(new, SERVERS, "holodeck", "config.toml") == text


def test_the_end_of_a_table_is_a_list_of_tables_as_well() -> None:
    text = "[mcp_servers.a]\ncommand = 'x'\n\n[[hooks]]\nrun = 1\n"
    assert remove_toml_entry(text, SERVERS, "a", "config.toml") == "\n[[hooks]]\nrun = 1\n"


def test_a_table_with_tables_below_it_is_replaced_and_comments_stay() -> None:
    new = set_toml_entry(FILE, SERVERS, "files", {"command": "uvx"}, "config.toml")
    assert tomllib.loads(new)["mcp_servers"] == {"files": {"command": "uvx"}}
    assert "# about the profile\n[profiles.fast]\n" in new
    assert new.startswith('# my Codex\nmodel = "gpt-5"   # the usual one\n')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "not valid TOML"),
        ("mcp_servers = 5\n", "must be a table"),
        ("mcp_servers = {holodeck = {command = 'x'}}\n", "without a change to something else"),
        ("mcp_servers = {a = {command = 'x'}}\n", "without a change to something else"),
        ("mcp_servers.holodeck.command = 'x'\n", "without a change to something else"),
        ("a = '''\n[mcp_servers.holodeck]\n'''\n[mcp_servers.holodeck]\nx = 1\n", "without a change to something else"),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        set_toml_entry(text, SERVERS, "holodeck", ENTRY, "config.toml")
    assert message in caught.value.problems[0].message
