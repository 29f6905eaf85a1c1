"""One door to the network: whoever wants an HTTP client asks `lib.net`, where its rules are."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "holodeck"
DOOR = SOURCE / "lib" / "net.py"
OTHER_CLIENTS = {"urllib.request", "http.client", "requests", "httpx", "urllib3"}
MAKERS = {"ClientSession", "AsyncClient"}


def _imported(tree: ast.AST) -> set[str]:
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def _makes_a_client(tree: ast.AST) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Attribute) and called.attr in MAKERS for called in calls)


def test_no_other_module_makes_an_http_client() -> None:
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    others = {path for path, tree in trees.items() if _imported(tree) & OTHER_CLIENTS or _makes_a_client(tree)}
    assert others == {DOOR}
