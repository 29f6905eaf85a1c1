"""What the tests do with each other's state: a test that changes this process for the next one fails."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

import pytest
from process_state import ProcessState, restore_logging, restore_secrets
from run_home import PersonsHome, replace_home

from holodeck.lib.redaction import OPERATOR_SECRETS, register_secrets

VARIABLE: ContextVar[str] = ContextVar("of_a_test")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda: os.environ.update(LEFT_BEHIND="1"), "the environment variable LEFT_BEHIND"),
        (lambda: os.environ.pop("HOME"), "the environment variable HOME"),
        (lambda: os.chdir("/"), "the working folder (now /)"),
        (lambda: os.umask(0o077), "the umask (now 077)"),
        (lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN), "the handler of signal 10 (now 1)"),
        (lambda: sys.modules.update(json=sys), "the imported module json"),
        (lambda: VARIABLE.set("left"), "the context variable of_a_test"),
    ],
    ids=["variable", "no-variable", "folder", "umask", "signal", "module", "context"],
)
def test_a_change_of_the_process_is_named_and_undone(change: Callable[[], object], name: str) -> None:
    before = ProcessState()
    assert before.restore() == []
    change()
    (sentence,) = before.restore()
    assert sentence.startswith(name)
    assert before.restore() == []


def test_functions_of_an_agent_are_forgotten_so_that_the_next_test_imports_its_own(tmp_path: Path) -> None:
    for number in ("1", "2"):
        before, path = ProcessState(), list(sys.path)
        folder = tmp_path / number
        folder.mkdir()
        (folder / "functions_of_an_agent.py").write_text(f"NUMBER = {number}")
        sys.path.insert(0, str(folder))
        assert int(number) == importlib.import_module("functions_of_an_agent").NUMBER
        assert before.restore() == []
        assert sys.path == path


def test_loggers_are_as_before_whatever_a_test_did_to_them(caplog: pytest.LogCaptureFixture) -> None:
    known, child = logging.getLogger("known"), logging.getLogger("known.child")
    handlers = list(logging.root.handlers)
    with restore_logging():
        known.propagate, known.disabled = False, True
        known.addHandler(logging.NullHandler())
        known.addFilter(lambda _: False)
        child.setLevel(logging.CRITICAL)
        logging.root.handlers[:] = [logging.NullHandler()]
        logging.disable(logging.CRITICAL)
        logging.getLogger("added").propagate = False
        child.warning("not written")
    assert logging.root.handlers == handlers
    child.warning("one")
    logging.getLogger("added").warning("two")
    assert caplog.messages == ["one", "two"]


def test_secrets_that_a_test_reads_are_masked_for_no_other_test() -> None:
    before = OPERATOR_SECRETS.values
    with restore_secrets():
        register_secrets("of-one-test-only")
        assert OPERATOR_SECRETS.mask("it is of-one-test-only") == "it is ***"
    assert OPERATOR_SECRETS.values == before
    assert OPERATOR_SECRETS.mask("it is of-one-test-only") == "it is of-one-test-only"
    assert not OPERATOR_SECRETS.may_be_in(b"of-one-test-only")


def test_files_in_a_persons_home_that_name_a_folder_of_the_run_are_found(tmp_path: Path) -> None:
    home, run = tmp_path / "home", tmp_path / "run"
    (home / ".holodeck").mkdir(parents=True)
    (home / ".holodeck" / "old.json").write_text(str(run))
    persons = PersonsHome({"HOME": str(home), "XDG_STATE_HOME": str(home / "state")})
    assert persons.find_written_files(run) == []
    for file in (".holodeck/trust.json", "state/holodeck/sessions.db", ".cache/holodeck/npx"):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(f"{run}/agent.yaml")
    (home / ".holodeck" / "of-the-person.json").write_text("elsewhere")
    written = {str(file.relative_to(home)) for file in persons.find_written_files(run)}
    assert written == {".holodeck/trust.json", "state/holodeck/sessions.db", ".cache/holodeck/npx"}


def test_the_home_of_a_run_is_empty_and_programs_find_their_caches(tmp_path: Path) -> None:
    (tmp_path / ".pyenv").mkdir()
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    replace_home(environ)
    assert environ["HOME"] != str(tmp_path)
    assert list(Path(environ["HOME"]).iterdir()) == []
    assert environ["UV_CACHE_DIR"] == str(tmp_path / ".cache" / "uv")
    assert environ["PYENV_ROOT"] == str(tmp_path / ".pyenv")
    assert not environ.keys() & {"XDG_CONFIG_HOME", "NVM_DIR"}
