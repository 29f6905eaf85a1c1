"""One module each dials models and MCP servers, makes other HTTP clients, and uses the JSON Schema library."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "holodeck"
NET = SOURCE / "lib" / "net"
HTTP_CLIENT = NET / "aiohttp_client.py"
HTTP1_POOL = NET / "http1_pool.py"
# Reads the environment as the standard library does, and connects to nothing.
PROXIES = NET / "proxies.py"
OTHER_CLIENTS = {"urllib.request", "http.client", "requests", "httpx", "urllib3"}
# The second is the program of a process that can be killed.
SCHEMA_MODULES = {SOURCE / "lib" / "json" / name for name in ("schema.py", "schema_worker_program.py")}
MAKERS = {"ClientSession", "AsyncClient"}
DIALLERS = {"create_connection", "open_connection", "start_connection"}


def _parse_modules(*, imported: set[str], called: set[str]) -> dict[Path, ast.AST]:
    """Modules that may import or call these, by their text: parsing all of them takes seconds."""
    words = [rf"^\s*(?:import|from)\s.*\b{re.escape(name)}\b" for name in imported]
    pattern = re.compile("|".join([*words, *(rf"\b{name}\b" for name in called)]), re.MULTILINE)
    texts = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    return {path: ast.parse(text) for path, text in texts.items() if pattern.search(text)}


def _imported(tree: ast.AST) -> set[str]:
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def _calls(tree: ast.AST, names: set[str]) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(getattr(called, "attr", getattr(called, "id", "")) in names for called in calls)


def test_no_other_module_makes_an_http_client() -> None:
    trees = _parse_modules(imported=OTHER_CLIENTS, called=MAKERS)
    others = {path for path, tree in trees.items() if _imported(tree) & OTHER_CLIENTS or _calls(tree, MAKERS)}
    assert others == {HTTP_CLIENT, PROXIES}


def test_no_other_module_dials_by_itself() -> None:
    dialling = {
        path for path, tree in _parse_modules(imported=set(), called=DIALLERS).items() if _calls(tree, DIALLERS)
    }
    assert dialling == {HTTP1_POOL}


def test_no_other_module_uses_the_json_schema_library_and_none_lets_it_fetch() -> None:
    trees = _parse_modules(imported={"jsonschema_rs"}, called=set())
    users = {path: tree for path, tree in trees.items() if "jsonschema_rs" in _imported(tree)}
    assert users.keys() == SCHEMA_MODULES
    for tree in users.values():
        (used,) = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "jsonschema_rs"
        )
        (made,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func is used)
        assert used.attr == "validator_for"
        assert any(word.arg == "offline" and ast.literal_eval(word.value) is True for word in made.keywords)
