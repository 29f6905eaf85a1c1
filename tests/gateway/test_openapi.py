"""The OpenAPI document of the gateway says what the gateway does: all of it, and nothing else.

Beside the tests here, `documented_gateway` compares the traffic of all other tests with the document.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from async_tests import async_test
from gateway.documented_gateway import document, document_problems, validator
from gateway.running_gateway import run_gateway
from gateway.schema_samples import ADDED, SchemaSamples
from gateway.source_error_codes import codes_in
from openapi_spec_validator import OpenAPIV31SpecValidator

from holodeck.gateway.all_endpoints import list_routes
from holodeck.gateway.http.error_codes import ERROR_CODES, GROUP_TITLES
from holodeck.gateway.openapi.document import TAGS
from holodeck.gateway.openapi.schemas.schema import ref
from holodeck.gateway.wire.chat.request import read_chat_request
from holodeck.gateway.wire.request.body import read_request, read_socket_message
from holodeck.gateway.wire.request.compact import read_compact_request
from holodeck.lib.errors import BadRequestError

SOURCE = Path(__file__).parents[2] / "src" / "holodeck"
READERS: dict[str, Callable[[Any], object]] = {
    "CreateResponse": read_request,
    "SocketMessage": read_socket_message,
    "CompactConversation": read_compact_request,
    "CreateChatCompletion": read_chat_request,
}
# Fields that a body needs beside those of a sample, by rules that no schema expresses.
COMPANIONS = {"stream_options": {"stream": True}}
# Refusals of bodies that the document allows: they depend on what is stored, or on where an object is.
STATEFUL = {"invalid_encrypted_content", "item_not_found"}


@async_test
async def test_the_document_is_served_without_a_key_and_has_every_route(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, keys=["hd-one"]) as gateway, aiohttp.ClientSession(gateway.url) as session:
        async with session.get("/openapi.json") as answer:
            served = orjson.loads(await answer.read())
            assert (answer.status, answer.content_type) == (200, "application/json")
        routes = {(route.method.lower(), route.path): route for route in gateway.service.app.routes}
        described = {(method, path) for path, item in served["paths"].items() for method in item}
        assert described == routes.keys()
        public = {
            path for path, item in served["paths"].items() for each in item.values() if each.get("security") == []
        }
        assert public == {route.path for route in routes.values() if route.is_public}
        async with session.get("/v1/models") as answer:
            assert answer.status == 401
    assert b"hd-one" not in orjson.dumps(served)


def test_the_document_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(document()).validate()
    ids = [operation["operationId"] for item in document()["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids)) == len(list_routes())
    assert {route.tag for route in list_routes()} == set(TAGS)


def test_every_schema_is_used() -> None:
    text = orjson.dumps(document()).decode()
    # A WebSocket is described in prose, which names its schemas.
    unused = {name for name in document()["components"]["schemas"] if f'schemas/{name}"' not in text}
    assert unused == {"SocketMessage", "SocketError"}


def test_examples_are_valid_under_their_schemas() -> None:
    for route in list_routes():
        if route.reply is not None and route.example is not None:
            assert not document_problems(route.reply, route.example), route.id
        if route.body is not None:
            assert not document_problems(route.body, route.example_body), route.id


@pytest.mark.parametrize("name", READERS)
def test_a_body_is_accepted_if_and_only_if_the_document_allows_it(name: str) -> None:
    samples = SchemaSamples()
    differences = []
    for body in (*samples.allowed(ref(name), name), *samples.mutated(ref(name), name)):
        code = _refusal_code(name, body)
        if validator(name).is_valid(body) is not (code is None) and not _is_explained(code, body):
            differences.append((code, body))
    assert not differences


@async_test
async def test_the_smallest_bodies_that_the_document_allows_miss_nothing_at_any_route(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, admins=["hd-ops"]) as gateway:
        _, made = await gateway.send("POST", "/v1/conversations", {}, key="hd-ops")
        for route in list_routes():
            path = route.path
            if route.body is None or path.startswith("/mcp"):
                continue
            body = next(SchemaSamples().allowed(ref(route.body), route.body))
            _, said = await gateway.send(route.method, path.replace("{id}", made["id"]), body, key="hd-ops")
            assert "missing_required" not in str(said), (path, body, said)


@pytest.mark.parametrize("name", READERS)
def test_a_field_that_is_read_and_not_documented_is_refused(name: str) -> None:
    samples = SchemaSamples()
    for body in samples.allowed(ref(name), name):
        _refusal_code(name, body)
    hidden = [(location, key) for location, keys in samples.reads.items() for key in keys - samples.fields[location]]
    for location, key in hidden:
        samples.add_field(location, key)
        bodies = [body for body in samples.allowed(ref(name), name) if ADDED in str(body)]
        assert bodies
        assert {_refusal_code(name, body) for body in bodies} == {"unsupported_parameter"}, (location, key)


def _refusal_code(name: str, body: Any) -> str | None:
    """The code with which a body is refused; None for one that is accepted."""
    if isinstance(body, dict):
        for field, companion in COMPANIONS.items():
            body.update(companion if field in body else {})
    try:
        READERS[name](body)
    except BadRequestError as error:
        return error.code
    return None


def _is_explained(code: str | None, body: Any) -> bool:
    # Tools that a search has found may have it, those of a request may not.
    is_deferred = code == "unsupported_parameter" and "'defer_loading': True" in str(body)
    # An empty value of any type has no effect.
    is_empty_bias = code is None and body.get("logit_bias") == []
    return code in STATEFUL or is_deferred or is_empty_bias


def test_every_error_code_in_the_source_is_in_the_table() -> None:
    # Only these packages raise errors that become replies of the gateway.
    paths = [path for name in ("engine", "gateway", "providers") for path in (SOURCE / name).rglob("*.py")]
    used = {code for path in paths for code in codes_in(path)}
    listed = {each.code for each in ERROR_CODES}
    # Codes of the engine, which callers of a gateway know as `server_error`. Hooks are only in agents in code.
    assert used - listed == {"model_error", "run_error", "hook_failed"}
    # Written into events and replies by other means than an error of their own.
    assert listed - used == {"server_error", "cancelled"}


def test_every_entry_of_the_table_of_errors_says_when_it_happens_and_what_to_do() -> None:
    for each in ERROR_CODES:
        assert each.when.endswith(".")
        assert each.advice.endswith(".")
        assert each.groups
    assert {group for each in ERROR_CODES for group in each.groups} == set(GROUP_TITLES)
    assert len({(each.status, each.code) for each in ERROR_CODES}) == len(ERROR_CODES)
