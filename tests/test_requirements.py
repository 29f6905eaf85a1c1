"""The requirements and the tests agree; and a tree in which they do not is noticed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from requirement_manifest import TESTS, ManifestError, Requirement, Requirements, load_requirements
from requirement_proofs import Proof, read_proofs, unknown_ids, unproved_ids

DELIVERED = Requirement(id="000:FR-001", text="It works.", status="delivered")
PENDING = Requirement(id="000:FR-002", text="It will work.", status="pending")
KNOWN: Requirements = {each.id: each for each in (DELIVERED, PENDING)}

RUN_LIMIT_S = 60  # a pytest of one file needs two; a busy machine needs more
PYPROJECT = '[tool.pytest.ini_options]\nmarkers = ["proves(*ids): what a test proves"]\n'


def test_no_test_names_an_unknown_requirement() -> None:
    assert unknown_ids(load_requirements(), read_proofs()) == []


def test_every_delivered_requirement_is_named_by_a_test() -> None:
    assert unproved_ids(load_requirements(), read_proofs()) == []


def test_every_mark_is_attached_to_a_test() -> None:
    assert list(read_proofs().misplaced) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An empty tests folder."""
    tests = tmp_path / "tests"
    tests.mkdir()
    return tests


def write_test(tree: Path, source: str, *, name: str = "test_some.py") -> None:
    (tree / name).write_text("import pytest\n" + source, encoding="utf-8")


def write_manifest(tree: Path, text: str) -> None:
    (tree / "requirements.toml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("source", "test"),
    [
        pytest.param("@pytest.mark.proves('000:FR-001')\ndef test_a(): ...", "test_a", id="decorator"),
        pytest.param("@pytest.mark.proves('000:FR-001')\nasync def test_a(): ...", "test_a", id="async"),
        pytest.param("pytestmark = pytest.mark.proves('000:FR-001')\ndef test_a(): ...", "test_a", id="module"),
        pytest.param("pytestmark = [pytest.mark.proves('000:FR-001')]\ndef test_a(): ...", "test_a", id="module-list"),
        pytest.param(
            "@pytest.mark.proves('000:FR-001')\nclass TestIt:\n  def test_a(self): ...", "TestIt::test_a", id="class"
        ),
        pytest.param(
            "class TestIt:\n  pytestmark = pytest.mark.proves('000:FR-001')\n  def test_a(self): ...",
            "TestIt::test_a",
            id="class-body",
        ),
        pytest.param(
            "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.proves('000:FR-001'))])\n"
            "def test_a(x): ...",
            "test_a",
            id="parameter",
        ),
        pytest.param(
            "CASES = [pytest.param(1, marks=[pytest.mark.proves('000:FR-001')])]\n"
            "@pytest.mark.parametrize('x', CASES)\ndef test_a(x): ...",
            "test_a",
            id="parameter-by-name",
        ),
        pytest.param(
            "if True:\n  @pytest.mark.proves('000:FR-001')\n  def test_a(): ...", "test_a", id="under-a-condition"
        ),
    ],
)
def test_a_mark_counts_wherever_pytest_would_attach_it(tree: Path, source: str, test: str) -> None:
    write_test(tree, source)
    found = read_proofs(tree)
    assert found.proofs == (Proof(test=f"tests/test_some.py::{test}", id="000:FR-001"),)
    assert found.misplaced == ()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param("@pytest.mark.proves('000:FR-001')\ndef helper(): ...", "test_some.py", id="not-a-test"),
        pytest.param("@pytest.mark.proves('000:FR-001')\ndef test_a(): ...", "cases.py", id="not-a-test-file"),
        pytest.param("pytestmark = pytest.mark.proves('000:FR-001')", "test_some.py", id="module-without-tests"),
        pytest.param(
            "proves = pytest.mark.proves\n@proves('000:FR-001')\ndef test_a(): ...", "test_some.py", id="alias"
        ),
        pytest.param("@pytest.mark.proves\ndef test_a(): ...", "test_some.py", id="not-called"),
        pytest.param("@pytest.mark.proves()\ndef test_a(): ...", "test_some.py", id="no-id"),
        pytest.param("@pytest.mark.proves(f'000:FR-{1:03}')\ndef test_a(): ...", "test_some.py", id="computed-id"),
        pytest.param("@pytest.mark.proves('000:FR-001', *[])\ndef test_a(): ...", "test_some.py", id="unpacked-ids"),
    ],
)
def test_a_mark_that_proves_nothing_is_a_problem(tree: Path, source: str, name: str) -> None:
    write_test(tree, source, name=name)
    found = read_proofs(tree)
    assert found.proofs == ()
    assert len(found.misplaced) == 1
    assert found.misplaced[0].startswith(f"tests/{name}:")


def test_an_unknown_id_is_reported_with_the_test_that_names_it(tree: Path) -> None:
    write_test(tree, "@pytest.mark.proves('000:FR-001', '000:FR-999')\ndef test_a(): ...")
    (problem,) = unknown_ids(KNOWN, read_proofs(tree))
    assert "tests/test_some.py::test_a" in problem
    assert "000:FR-999" in problem


def test_a_delivered_id_without_a_test_is_reported(tree: Path) -> None:
    write_test(tree, "@pytest.mark.proves('000:FR-002')\ndef test_a(): ...")
    (problem,) = unproved_ids(KNOWN, read_proofs(tree))
    assert problem.startswith("000:FR-001 is delivered, but no test names it")


def test_a_pending_id_may_have_a_test_or_none(tree: Path) -> None:
    write_test(tree, "@pytest.mark.proves('000:FR-001')\ndef test_a(): ...")
    assert unproved_ids(KNOWN, read_proofs(tree)) == []
    write_test(tree, "@pytest.mark.proves('000:FR-001', '000:FR-002')\ndef test_a(): ...")
    assert unproved_ids(KNOWN, read_proofs(tree)) == []
    assert unknown_ids(KNOWN, read_proofs(tree)) == []


def test_marks_are_found_in_every_folder_of_the_tests(tree: Path) -> None:
    (tree / "deep").mkdir()
    write_test(tree, "@pytest.mark.proves('000:FR-001')\ndef test_a(): ...", name="deep/test_deep.py")
    assert read_proofs(tree).tests_by_id() == {"000:FR-001": ["tests/deep/test_deep.py::test_a"]}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param('"FR-1" = { text = "x", status = "pending" }', "is not an id", id="id"),
        pytest.param('"005:FR-001" = { text = "x", status = "pending" }', "is not an id", id="document"),
        pytest.param('"000:FR-001" = { text = "x" }', "needs exactly", id="no-status"),
        pytest.param('"000:FR-001" = "x"', "needs exactly", id="no-table"),
        pytest.param('"000:FR-001" = { text = " ", status = "pending" }', "has no text", id="no-text"),
        pytest.param('"000:FR-001" = { text = "x", status = "done" }', "use delivered or pending", id="status"),
        pytest.param('"D-1" = { text = "x", status = "pending" }\n' * 2, "cannot be read", id="twice"),
    ],
)
def test_a_malformed_manifest_says_which_line_and_why(tree: Path, line: str, reason: str) -> None:
    write_manifest(tree, line)
    with pytest.raises(ManifestError, match=reason):
        load_requirements(tree)


@pytest.fixture
def project(tree: Path) -> Path:
    """A project with this checker, a delivered id proved in one file, and a pending one."""
    (tree.parent / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    for name in (
        "conftest.py",
        "installed_servers.py",
        "process_state.py",
        "requirement_manifest.py",
        "requirement_proofs.py",
        "run_home.py",
        "requirements_report.py",
    ):
        shutil.copy(TESTS / name, tree)
    lines = [f'"{each.id}" = {{ text = "{each.text}", status = "{each.status}" }}' for each in KNOWN.values()]
    write_manifest(tree, "\n".join(lines))
    write_test(tree, "@pytest.mark.proves('000:FR-001', '000:FR-002')\ndef test_a(): ...", name="test_proof.py")
    write_test(
        tree,
        "from requirement_manifest import load_requirements\nfrom requirement_proofs import read_proofs, unproved_ids\n"
        "def test_delivered(): assert unproved_ids(load_requirements(), read_proofs()) == []",
        name="test_check.py",
    )
    return tree.parent


def run_python(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)


def test_a_run_of_one_file_passes_and_ends_with_the_count(project: Path) -> None:
    run = run_python(project, "-m", "pytest", "-q", "tests/test_check.py")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "requirements: 1 delivered, 1 pending" in run.stdout.splitlines()


def test_a_run_fails_once_the_proof_is_gone(project: Path) -> None:
    (project / "tests" / "test_proof.py").unlink()
    run = run_python(project, "-m", "pytest", "-q", "tests/test_check.py")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "000:FR-001 is delivered, but no test names it" in run.stdout


def test_a_run_with_a_broken_manifest_still_ends_in_order(project: Path) -> None:
    write_manifest(project / "tests", "nonsense")
    run = run_python(project, "-m", "pytest", "-q", "tests/test_proof.py")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "requirements: requirements.toml cannot be read" in run.stdout


def test_the_report_lists_what_may_be_marked_and_what_each_test_proves(project: Path) -> None:
    run = run_python(project, "tests/requirements_report.py")
    assert run.returncode == 0, run.stderr
    assert "tests/test_proof.py::test_a  000:FR-001\n" in run.stdout
    assert "000:FR-002  It will work.\n      tests/test_proof.py::test_a\n" in run.stdout


def test_the_report_fails_with_the_problems_of_the_tree(project: Path) -> None:
    write_test(project / "tests", "@pytest.mark.proves('000:FR-999')\ndef test_b(): ...")
    run = run_python(project, "tests/requirements_report.py")
    assert run.returncode == 1
    assert "tests/test_some.py::test_b names '000:FR-999'" in run.stdout
