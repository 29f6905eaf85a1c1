"""The names of `holodeck`: every one that a program needs, none of them imported before its use."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import holodeck
import holodeck.testing
from holodeck import (
    Event,
    FunctionCall,
    HoloDeckError,
    Item,
    MCPError,
    ModelError,
    ModelEvent,
    RunCancelledError,
    RunError,
    RunFailedError,
    RunIncompleteError,
    RunPausedError,
    RunResult,
)
from holodeck.lib import errors
from holodeck.models.events import Failure, Status

# Raised to clients of a gateway, and inside a run, whose result tells of it.
NEVER_RAISED_TO_PROGRAMS = {"BadRequestError", "HookError"}


def _import_and_list(code: str) -> set[str]:
    probe = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    assert _import_and_list("import holodeck") == {"holodeck"}


def test_a_name_imports_only_its_own_part() -> None:
    modules = _import_and_list("from holodeck import ConfigError")
    assert "holodeck.lib.errors" in modules
    assert not modules & {"asyncio", "pydantic", "yaml", "holodeck.agents", "holodeck.engine.loop"}


@pytest.mark.parametrize("package", [holodeck, holodeck.testing], ids=["holodeck", "testing"])
def test_type_checkers_and_programs_import_the_same_names_from_the_same_modules(package: ModuleType) -> None:
    tree = ast.parse(Path(inspect.getfile(package)).read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    for_checkers = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    # `runs` is a module, and not a name in one.
    on_first_use = {name: module.removesuffix(f".{name}") for name, module in package._MODULES.items()}
    assert for_checkers == on_first_use
    assert [name for name in package.__all__ if getattr(package, name, None) is None] == []


def test_every_error_that_a_program_can_meet_is_public() -> None:
    classes = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, HoloDeckError)
    }
    assert classes - NEVER_RAISED_TO_PROGRAMS == classes & set(holodeck.__all__)


@pytest.mark.parametrize("union", [Event, Item, ModelEvent], ids=["Event", "Item", "ModelEvent"])
def test_every_kind_of_a_public_union_is_public(union: object) -> None:
    names = {(getattr(each, "__origin__", None) or each).__name__ for each in get_args(union)}
    assert names <= set(holodeck.__all__)


def test_an_unknown_name_is_an_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        getattr(holodeck, "Agnet")  # noqa: B009 - type checkers know that it is wrong


def test_errors_carry_values_for_programs() -> None:
    model = ModelError("busy", provider="openai", status=429, retry_after=2.5, is_retryable=True, code="overloaded")
    assert (model.provider, model.status, model.retry_after, model.is_retryable) == ("openai", 429, 2.5, True)
    mcp = MCPError("gone", server="files", phase="call", details={"code": 7})
    assert (mcp.server, mcp.phase, mcp.details) == ("files", "call", {"code": 7})


CALL = FunctionCall(call_id="c", name="pay", arguments="{}")
ENDINGS: list[tuple[Status, type[RunError], str]] = [
    ("failed", RunFailedError, "no model"),
    ("incomplete", RunIncompleteError, "the limit"),
    ("cancelled", RunCancelledError, "the limit"),
    ("requires_action", RunPausedError, "pay"),
]


@pytest.mark.parametrize(("status", "kind", "words"), ENDINGS, ids=[status for status, _, _ in ENDINGS])
def test_each_status_without_an_answer_has_its_error(status: Status, kind: type[RunError], words: str) -> None:
    failure = Failure(code="model_error", message="no model") if status == "failed" else None
    result: RunResult = RunResult(status=status, text="half", reason="the limit", error=failure, pending=(CALL,))
    with pytest.raises(kind, match=words) as caught:
        result.raise_for_status()
    assert caught.value.result is result
    with pytest.raises(kind):
        _ = result.output


def test_a_completed_run_raises_nothing() -> None:
    result: RunResult = RunResult(status="completed", text="3")
    result.raise_for_status()
    assert result.output == "3"
