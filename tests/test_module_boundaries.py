"""One door each: to models `lib.posting`, to other HTTP `lib.net`, to JSON Schema `lib.json_schema`."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "holodeck"
DOOR = SOURCE / "lib" / "net.py"
MODELS_DOOR = SOURCE / "lib" / "posting.py"
PROXIES = SOURCE / "lib" / "proxies.py"
"""Reads the environment as the standard library does, and asks nobody."""
OTHER_CLIENTS = {"urllib.request", "http.client", "requests", "httpx", "urllib3"}
SCHEMA_DOORS = {SOURCE / "lib" / "json_schema.py", SOURCE / "lib" / "schema_worker_program.py"}
"""The second is the program of a process that can be killed."""
MAKERS = {"ClientSession", "AsyncClient"}
DIALLERS = {"create_connection", "open_connection", "start_connection"}


def _imported(tree: ast.AST) -> set[str]:
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def _calls(tree: ast.AST, names: set[str]) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(getattr(called, "attr", getattr(called, "id", "")) in names for called in calls)


def test_no_other_module_makes_an_http_client() -> None:
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    others = {path for path, tree in trees.items() if _imported(tree) & OTHER_CLIENTS or _calls(tree, MAKERS)}
    assert others == {DOOR, PROXIES}


def test_no_other_module_dials_by_itself() -> None:
    dialling = {path for path in SOURCE.rglob("*.py") if _calls(ast.parse(path.read_text()), DIALLERS)}
    assert dialling == {MODELS_DOOR}


def test_no_other_module_uses_the_json_schema_library_and_none_lets_it_fetch() -> None:
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    users = {path: tree for path, tree in trees.items() if "jsonschema_rs" in _imported(tree)}
    assert users.keys() == SCHEMA_DOORS
    for tree in users.values():
        (used,) = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "jsonschema_rs"
        )
        (made,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func is used)
        assert used.attr == "validator_for"
        assert any(word.arg == "offline" and ast.literal_eval(word.value) is True for word in made.keywords)
