"""A command that is not there: the one that was meant, or all there are, at every level."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from holodeck_command import run_holodeck


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("chta",), "No such command 'chta'. Did you mean 'chat'?"),
        (("xyzzy",), "No such command 'xyzzy'. There are: init, validate, "),
        (("mcp", "lst"), "No such command 'lst'. Did you mean 'list'?"),
        (("mcp", "xyzzy"), "No such command 'xyzzy'. There are: list, "),
        (("runs", "resum"), "No such command 'resum'. Did you mean 'resume'?"),
    ],
)
def test_a_command_that_is_not_there_is_answered_with_what_there_is(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = run_holodeck(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("words", [(), ("mcp",), ("runs",)])
def test_each_command_of_the_help_is_there(tmp_path: Path, words: tuple[str, ...]) -> None:
    shown = run_holodeck(*words, "--help", cwd=tmp_path).stdout
    listed = shown.partition("Show this message")[2].partition("Examples:")[0]
    names = re.findall(r"^  (\w\S*)", listed, re.MULTILINE)
    assert len(names) > 3
    for name in names:
        assert run_holodeck(*words, name, "--help", cwd=tmp_path).returncode == 0
