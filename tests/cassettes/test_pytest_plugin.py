"""The pytest plugin that comes with the package: a cassette for each test that wants one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import asyncio, os
import holodeck, pytest
from holodeck.testing import ScriptedModel, say

# Built before any fixture: its context does not have the cassette.
LOOP = asyncio.Runner()
LOOP.get_loop()

async def ask(question="Hello?"):
    answers = [say("Hi.")] if os.environ.get("HAS_MODEL") else []
    return (await holodeck.Agent(ScriptedModel(*answers)).run(question)).text

def test_greets(cassette):
    assert asyncio.run(ask()) == "Hi."

@pytest.mark.parametrize("word", ["a/b", "c"])
def test_words(cassette, word):
    assert LOOP.run(ask(word)) == "Hi."

@pytest.mark.cassette("mine/greeting.yaml")
def test_marked():
    assert asyncio.run(ask()) == "Hi."

def test_other():
    pass
"""

OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-p", "holodeck.testing.pytest_plugin"),
    *("--strict-markers", "--strict-config", "-W", "error"),
)


def run_tests(folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *options],
        cwd=folder,
        env={**inherited, **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_greetings.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_tests_are_recorded_once_and_replayed_from_then_on(folder: Path) -> None:
    done = run_tests(folder, HAS_MODEL="1")
    assert "5 passed" in done.stdout, done.stdout
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.yaml")}
    beside = "cassettes/test_greetings"
    assert files == {
        f"{beside}/test_greets.yaml",
        f"{beside}/test_words-a-b.yaml",
        f"{beside}/test_words-c.yaml",
        "mine/greeting.yaml",
    }
    done = run_tests(folder, CI="true")
    assert "5 passed" in done.stdout, done.stdout


def test_a_difference_fails_the_test_itself_and_can_be_recorded(folder: Path) -> None:
    run_tests(folder, HAS_MODEL="1")
    (folder / "test_greetings.py").write_text(TEST.replace("Hello?", "Good day?"))
    done = run_tests(folder)
    assert "2 failed, 3 passed" in done.stdout, done.stdout
    assert "error" not in done.stdout.splitlines()[-1]
    for words in ("-  - user: Hello?", "+  - user: Good day?", "pytest --cassette-record=always"):
        assert words in done.stdout
    done = run_tests(folder, "--cassette-record=always", HAS_MODEL="1")
    assert "5 passed" in done.stdout
    assert "5 passed" in run_tests(folder, "--cassette-record=never").stdout


def test_a_test_without_its_cassette_fails_in_ci(folder: Path) -> None:
    done = run_tests(folder, CI="true", HAS_MODEL="1")
    assert "1 passed, 4 errors" in done.stdout
    assert "there is no such cassette" in done.stdout
    assert not list(folder.rglob("*.yaml"))


def test_the_package_brings_the_plugin() -> None:
    from importlib.metadata import entry_points

    assert "holodeck.testing.pytest_plugin" in {each.value for each in entry_points(group="pytest11")}
