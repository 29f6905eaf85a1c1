"""The public names have types that find mistakes, in both type checkers that people use."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from pydantic import BaseModel

from holodeck import LLM, OAuthAuthorizationCode, OAuthClientCredentials
from holodeck.models.provider import Provider, ProviderName

ROOT = Path(__file__).parents[2]
RIGHT, WRONG = (Path(__file__).with_name(name) for name in ("right_uses.py", "wrong_uses.py"))


class Report(NamedTuple):
    """An error that a type checker reports."""

    file: str
    line: int
    message: str


def test_mypy_accepts_right_uses_and_reports_each_wrong_one(tmp_path: Path) -> None:
    # Not in this repository, whose settings for mypy would hold.
    options = ["--strict", "--python-executable", sys.executable, "--cache-dir", str(ROOT / ".cache" / "mypy-uses")]
    done = _run_checker(
        [sys.executable, "-m", "mypy", *options, "--output", "json", str(RIGHT), str(WRONG)], folder=tmp_path
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    _check_reports(
        [
            Report(Path(each["file"]).name, each["line"], each["message"])
            for each in found
            if each["severity"] == "error"
        ],
        done,
    )


@pytest.mark.long
def test_pyright_accepts_right_uses_and_reports_each_wrong_one(tmp_path: Path) -> None:
    pyright = ROOT / ".cache" / "servers" / "bin" / "pyright"
    done = _run_checker(
        [str(pyright), "--outputjson", "--pythonpath", sys.executable, str(RIGHT), str(WRONG)], folder=tmp_path
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    _check_reports(
        [
            Report(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
            for each in found
            if each["severity"] == "error"
        ],
        done,
    )


@pytest.mark.parametrize("model", [LLM, OAuthClientCredentials, OAuthAuthorizationCode])
def test_constructors_for_type_checkers_have_the_fields_of_their_models(model: type[BaseModel]) -> None:
    tree = ast.parse(Path(inspect.getfile(model)).read_text())
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    (init,) = (
        node
        for node in ast.walk(classes[model.__name__])
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    # The class says what the `type` is.
    assert [each.arg for each in init.args.kwonlyargs] == [name for name in model.model_fields if name != "type"]


def test_type_checkers_know_the_names_of_all_providers() -> None:
    assert set(get_args(ProviderName)) == {str(each) for each in Provider}


def _run_checker(command: list[str], *, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def _check_reports(reports: list[Report], done: subprocess.CompletedProcess[str]) -> None:
    assert reports, done
    assert [each for each in reports if each.file == RIGHT.name] == []
    by_line: dict[int, str] = {}
    for each in reports:
        by_line[each.line] = f"{by_line.get(each.line, '')}{each.message}\n"
    marked = dict(_read_marks())
    assert {line: by_line[line] for line in by_line.keys() - marked.keys()} == {}
    assert {line: words for line, words in marked.items() if words not in by_line.get(line, "")} == {}


def _read_marks() -> Iterator[tuple[int, str]]:
    """The lines of the wrong uses that are wrong, with words of the message."""
    for number, line in enumerate(WRONG.read_text().splitlines(), start=1):
        if mark := re.search(r"# wrong: (.+)$", line):
            yield number, mark[1]
