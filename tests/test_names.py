"""How the source reads: names are verbs, docstrings speak of components, modules and functions have a size to hold.

The counts may fall, and never rise: lower a limit when it can be lowered.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "holodeck"
Function = ast.FunctionDef | ast.AsyncFunctionDef

PARTICIPLES = re.compile(
    r"_?(told|kept|held|found|known|sent|left|lost|made|gone|given|taken|shown|said|begun|done|\w+ed)"
)
# Names that are seen outside: of the public fakes, and of the protocol that authentication providers implement.
PUBLIC = {"received", "refused"}
NOT_PARTICIPLES = {"feed", "_feed", "embed", "seed", "need", "exceed", "proceed"}
PEOPLE = re.compile(r"\b(who|whom|whoever|nobody|somebody|anybody|everybody)\b", re.IGNORECASE)
QUESTION_WORDS = re.compile(r"(What|How|Where|Who)\b")

MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 550
MAX_MODULES_IN_A_FOLDER = 22


@cache
def parse_modules() -> dict[Path, ast.Module]:
    # Not when this is imported: every worker imports it, and one runs these tests.
    return {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def functions() -> Iterator[tuple[Path, Function]]:
    for path, tree in parse_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield path.relative_to(SOURCE), node


def test_no_function_is_named_by_a_bare_participle() -> None:
    named = {
        f"{path}: {node.name}"
        for path, node in functions()
        if PARTICIPLES.fullmatch(node.name)
        and "_" not in node.name.strip("_")
        and node.name not in PUBLIC | NOT_PARTICIPLES
        and not any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
    }
    assert not named


def test_docstrings_describe_components_and_not_people() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = {
        f"{path.relative_to(SOURCE)}: {getattr(node, 'name', 'module')}": ast.get_docstring(node) or ""
        for path, tree in parse_modules().items()
        for node in ast.walk(tree)
        if isinstance(node, documented)
    }
    assert not {where for where, text in texts.items() if PEOPLE.search(text)}


def test_classes_and_modules_are_described_by_a_noun() -> None:
    """Functions are described in the imperative, which ruff checks. Models of files have words for users."""
    documented = {
        f"{path.relative_to(SOURCE)}: {getattr(node, 'name', 'module')}": ast.get_docstring(node) or ""
        for path, tree in parse_modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module) or (isinstance(node, ast.ClassDef) and not _is_file_model(node))
    }
    assert not {where for where, text in documented.items() if QUESTION_WORDS.match(text)}


def _is_file_model(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "FileModel" for base in node.bases)


def test_functions_fit_on_a_screen() -> None:
    lengths = {f"{path}: {node.name}": (node.end_lineno or 0) - node.lineno + 1 for path, node in functions()}
    assert not {where: lines for where, lines in lengths.items() if lines > MAX_FUNCTION_LINES}


def test_modules_and_folders_are_small_enough_to_hold() -> None:
    lines = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in parse_modules()}
    assert not {path: count for path, count in lines.items() if count > MAX_MODULE_LINES}
    folders = Counter(path.parent for path in parse_modules())
    assert not {str(folder): count for folder, count in folders.items() if count > MAX_MODULES_IN_A_FOLDER}


# The main task of a program, a run whose end is stored before its task is awaited, and requests, whose tasks uvicorn's
# server has; a comment there says why.
SCOPED_TASKS = {"cli/interruptible.py", "gateway/runs/live_run.py", "gateway/server/http_protocol.py"}


@pytest.mark.parametrize("called", ["create_task", "ensure_future"])
def test_tasks_are_started_by_a_group_or_a_task_set(called: str) -> None:
    """`group.create_task` is a `TaskGroup`'s; everything else goes through `lib.tasks.TaskSet`."""
    loose = {
        str(path.relative_to(SOURCE))
        for path, tree in parse_modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == called
        and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "group")
    }
    assert loose <= {"lib/tasks.py", *SCOPED_TASKS}
