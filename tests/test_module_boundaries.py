"""One module each dials, parses JSON from outside, and uses the JSON Schema library."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "holodeck"
NET = SOURCE / "lib" / "net"
HTTP1_POOL = NET / "http1_pool.py"
# Reads the environment as the standard library does, and connects to nothing.
PROXIES = NET / "proxies.py"
OTHER_CLIENTS = {"aiohttp", "urllib.request", "http.client", "requests", "httpx", "urllib3"}
# The second is the program of a process that can be killed.
SCHEMA_MODULES = {SOURCE / "lib" / "json" / name for name in ("schema.py", "schema_worker_program.py")}
MAKERS = {"ClientSession", "AsyncClient"}
DIALLERS = {"create_connection", "open_connection", "start_connection"}
# Modules that parse JSON without the limits of `lib/json/parse.py`, because this program or its user wrote it.
PARSERS_OF_OWN_JSON = {
    SOURCE / path
    for path in (
        "agents/sessions.py",
        "cassettes/server_data.py",
        "cli/commands/mcp/call.py",
        "cli/commands/mcp/target.py",
        "durable/dbos_engine.py",
        "evaluation/measures/pattern_program.py",
        "gateway/app.py",
        "gateway/audit/entry.py",
        "gateway/continuation/conversation_lock.py",
        "gateway/continuation/message_threads.py",
        "gateway/continuation/pending_calls.py",
        "gateway/continuation/resolve.py",
        "gateway/endpoints/conversations.py",
        "gateway/endpoints/elicitations.py",
        "gateway/endpoints/responses.py",
        "gateway/endpoints/responses_ws.py",
        "gateway/endpoints/runs.py",
        "gateway/http/errors.py",
        "gateway/mcp/elicitations.py",
        "gateway/mcp_endpoint/endpoint_sessions.py",
        "gateway/mcp_endpoint/relays.py",
        "gateway/runs/finisher.py",
        "gateway/runs/response_builder.py",
        "gateway/runs/run_rows.py",
        "gateway/runs/run_trace.py",
        "gateway/server/http_protocol.py",
        "gateway/wire/compaction_item.py",
        "gateway/wire/request/parsed_input.py",
        "gateway/wire/response/sent_events.py",
        "lib/extras.py",
        "lib/json/schema_worker.py",
        "lib/json/schema_worker_program.py",
        "lib/system/landlock.py",
        "models/items.py",
        # A model of this machine, whose answer is as long as the context that it was loaded with.
        "providers/local/model.py",
        # Finds the id of a malformed message, in 64 KiB at most.
        "tools/mcp/protocol/jsonrpc.py",
    )
}
# Servers and models of tests.
TESTING = SOURCE / "testing"


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


def test_no_module_uses_the_http_client_of_a_library() -> None:
    trees = _parse_modules(imported=OTHER_CLIENTS, called=MAKERS)
    others = {path for path, tree in trees.items() if _imported(tree) & OTHER_CLIENTS or _calls(tree, MAKERS)}
    assert {path for path in others if not path.is_relative_to(TESTING)} == {PROXIES}


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


def test_json_from_outside_is_parsed_by_one_module() -> None:
    parsing = {
        path
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"loads", "load", "JSONDecoder"}
        if isinstance(node.value, ast.Name) and node.value.id in {"json", "orjson"}
    }
    outside = {path for path in parsing if not path.is_relative_to(TESTING)}
    assert outside == PARSERS_OF_OWN_JSON | {SOURCE / "lib" / "json" / "parse.py"}
