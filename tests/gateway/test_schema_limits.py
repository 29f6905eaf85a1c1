"""JSON Schemas of clients and servers: nothing is fetched for one, and one over the limits is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from child_processes import running_children
from forbidden_listener import Canary, run_canary
from gateway.described_server import DescribedServer
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from hypothesis import given
from hypothesis import strategies as st

from holodeck.gateway.wire.request.schemas import MAX_REQUEST_SCHEMA_NODES
from holodeck.lib.json.schema import (
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_LEVELS,
    MAX_SCHEMA_NODES,
    SchemaBudget,
    SchemaError,
    SchemaTooLargeError,
    check_parsed_schema_size,
    check_schema_size,
)
from holodeck.testing import ScriptedModel, call, say
from holodeck.tools.mcp.discovery import MAX_LISTED_SCHEMA_NODES

Schema = dict[str, Any]
SECONDS = 30.0
WORKER = "schema_worker_program.py"


@pytest.fixture
def canary() -> Iterator[Canary]:
    with run_canary() as made:
        yield made
        assert made.connections == 0


def _nested(levels: int) -> Schema:
    schema: Schema = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


ELSEWHERE: Mapping[str, Callable[[str], Schema]] = {
    "$schema": lambda url: {"$schema": url},
    "$schema of a property": lambda url: {"properties": {"a": {"$schema": url}}},
    "$schema of a definition": lambda url: {"$defs": {"a": {"$id": "urn:a", "$schema": url}}},
    "$ref": lambda url: {"$ref": url},
    "$ref of a property": lambda url: {"properties": {"a": {"$ref": url}}},
    "$ref with a fragment": lambda url: {"properties": {"a": {"$ref": f"{url}#/$defs/a"}}},
    "$ref from an $id": lambda url: {"$id": url, "properties": {"a": {"$ref": "other.json"}}},
    "$ref of draft 4": lambda url: {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": url,
        "items": {"$ref": "other.json"},
    },
    "$ref of a file": lambda url: {"anyOf": [{"$ref": "file:///etc/hostname"}]},
    "$dynamicRef": lambda url: {"not": {"$dynamicRef": url}},
    "$recursiveRef": lambda url: {"if": {"$recursiveRef": url}},
}
"""Schemas that another document is part of."""
TOO_LARGE: Mapping[str, Schema] = {
    "bytes": {"description": "x" * MAX_SCHEMA_BYTES},
    "bytes of text that is not English": {"description": "数" * (MAX_SCHEMA_BYTES // 3 + 1)},
    "bytes of names": {"properties": {"x" * 100 + str(each): {} for each in range(3_000)}},
    "properties": {"properties": {f"a{each}": {} for each in range(MAX_SCHEMA_NODES)}},
    "elements": {"enum": [0] * MAX_SCHEMA_NODES},
    "empty ones": {"default": [[]] * MAX_SCHEMA_NODES},
    "levels": _nested(MAX_SCHEMA_LEVELS),
}
LARGEST: Schema = {"type": "object", "enum": [0] * (MAX_SCHEMA_NODES - 3)}
LOCATIONS: Mapping[str, tuple[str, str, Callable[[Schema], Schema]]] = {
    "function": (
        "/v1/responses",
        "tools[1].parameters",
        lambda schema: {
            "input": "hi",
            "tools": [
                {"type": "function", "name": "good", "parameters": {"type": "object"}},
                {"type": "function", "name": "bad", "parameters": schema},
            ],
        },
    ),
    "namespace": (
        "/v1/responses",
        "tools[0].tools[0].parameters",
        lambda schema: {
            "input": "hi",
            "tools": [
                {
                    "type": "namespace",
                    "name": "n",
                    "tools": [{"type": "function", "name": "f", "parameters": schema}],
                }
            ],
        },
    ),
    "search": (
        "/v1/responses",
        "tools[0].parameters",
        lambda schema: {
            "input": "hi",
            "tools": [{"type": "tool_search", "execution": "client", "parameters": schema}],
        },
    ),
    "found": (
        "/v1/responses",
        "input[0].tools[0].parameters",
        lambda schema: {
            "input": [
                {
                    "type": "tool_search_output",
                    "call_id": "c",
                    "tools": [{"type": "function", "name": "f", "parameters": schema}],
                }
            ]
        },
    ),
    "format": (
        "/v1/responses",
        "text.format.schema",
        lambda schema: {"input": "hi", "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}},
    ),
    "older function": (
        "/v1/chat/completions",
        "tools[0].function.parameters",
        lambda schema: {
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        },
    ),
    "older format": (
        "/v1/chat/completions",
        "response_format.json_schema.schema",
        lambda schema: {
            "messages": [{"role": "user", "content": "hi"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        },
    ),
}
"""Where a request may have a schema: the path, the name of the parameter, and the body around it."""


@pytest.mark.parametrize("location", LOCATIONS)
@async_test(SECONDS)
async def test_a_request_with_an_external_or_too_large_schema_is_refused_by_name(
    tmp_path: Path, canary: Canary, location: str
) -> None:
    path, param, body = LOCATIONS[location]
    async with run_gateway(tmp_path) as gateway:
        for form, elsewhere in ELSEWHERE.items():
            error = await _refused(gateway, path, body(elsewhere(canary.url)))
            assert (error["param"], error["code"]) == (param, "invalid_json_schema")
            named = "other.json" if "other.json" in str(elsewhere("")) else "file:///" if "file" in form else canary.url
            assert named in error["message"]
        for schema in TOO_LARGE.values():
            error = await _refused(gateway, path, body(schema))
            assert (error["param"], error["code"]) == (param, "schema_above_max_size")
        assert not gateway.model_requests


@async_test(SECONDS)
async def test_a_schema_in_a_websocket_message_has_the_same_limits(tmp_path: Path, canary: Canary) -> None:
    _, param, body = LOCATIONS["function"]
    async with run_gateway(tmp_path) as gateway, (await gateway.http_client()).ws_connect("/v1/responses") as socket:
        for schema in ({"$schema": canary.url}, TOO_LARGE["properties"]):
            await socket.send_json({"type": "response.create", "model": MODEL, **body(schema)})
            answer = await socket.receive_json()
            assert (answer["type"], answer["error"]["param"]) == ("error", param)
        assert not gateway.model_requests


@async_test(SECONDS)
async def test_all_schemas_of_a_request_have_a_limit_together(tmp_path: Path) -> None:
    fit = MAX_REQUEST_SCHEMA_NODES // MAX_SCHEMA_NODES
    tools = [{"type": "function", "name": f"f{each}", "parameters": LARGEST} for each in range(fit + 1)]
    async with run_gateway(tmp_path, ScriptedModel(say("Well."))) as gateway:
        error = await _refused(gateway, "/v1/responses", {"input": "hi", "tools": tools})
        assert (error["param"], error["code"]) == (f"tools[{fit}].parameters", "schema_above_max_size")
        body = {"model": MODEL, "input": "hi", "tools": tools[:fit]}
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 200


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "not": {"$ref": "#"}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {"a": {}}, "not": {"$ref": "#/$defs/a"}},
        {"$id": "https://example.com/a", "$defs": {"b": {"$id": "b"}}, "not": {"$ref": "https://example.com/b"}},
        {"default": {"$schema": "https://vega.github.io/schema/vega-lite/v5.json"}, "examples": [{"$ref": "x"}]},
        {"properties": {"$ref": {"type": "string"}, "$schema": {"const": "https://example.com"}}},
        {"properties": {f"a{each}": {"type": "string", "description": "d" * 100} for each in range(1_000)}},
        {"type": "banana", "minimum": "nonsense"},
    ],
    ids=["draft 7", "2020-12", "own id", "data", "properties", "large", "nonsense"],
)
@async_test(SECONDS)
async def test_a_self_contained_schema_is_offered_to_the_model(tmp_path: Path, schema: Schema) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", **schema}}
    async with run_gateway(tmp_path, ScriptedModel(say("Well."))) as gateway:
        assert (await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "hi", "tools": [tool]}))[0] == 200
        assert len(gateway.model_requests[0]["tools"]) == 1


@async_test(SECONDS)
async def test_a_tool_of_a_server_with_an_external_or_too_large_schema_is_dropped_by_name(
    tmp_path: Path, canary: Canary, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [elsewhere(canary.url) for elsewhere in ELSEWHERE.values()] + list(TOO_LARGE.values())
    described = [
        {"name": f"bad_{index}", "inputSchema": {**schema, "type": "object"}} for index, schema in enumerate(bad)
    ]
    outputs = [
        {"name": f"large_{index}", "inputSchema": {"type": "object"}, "outputSchema": schema}
        for index, schema in enumerate(TOO_LARGE.values())
    ]
    good = {"name": "good", "inputSchema": {"type": "object"}}
    async with DescribedServer(*described, *outputs, good).serve() as server:
        model = ScriptedModel(call("good"), say("Well."))
        async with _gateway(tmp_path, model, server) as gateway:
            assert await _answer(gateway) == "Well."
            assert [each["function"]["name"] for each in gateway.model_requests[0]["tools"]] == ["good"]
    dropped = [record.getMessage() for record in caplog.records if "mcp.dropped" in record.getMessage()]
    assert len(dropped) == len(described) + len(outputs)
    for tool, message in zip([*described, *outputs], dropped, strict=True):
        assert f"name={tool['name']} " in message
        assert ("its outputSchema" if tool in outputs else "its inputSchema") in message
    assert canary.url in dropped[0]


JSON_VALUES = st.recursive(
    st.none() | st.integers(0, 9) | st.text(',{["$r', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(",{[a", max_size=3), inner, max_size=4),
    max_leaves=12,
)


def _count_values(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count_values, inner))


@given(st.lists(JSON_VALUES, max_size=8))
def test_schemas_fit_together_by_their_values_and_bytes_and_not_by_the_commas_in_their_texts(
    schemas: list[object],
) -> None:
    budget = SchemaBudget(max_bytes=120, max_nodes=30)
    size = values = 0
    for schema in schemas:
        more, more_values = len(orjson.dumps(schema)), _count_values(schema)
        fits = size + more <= 120 and values + more_values <= 30
        try:
            budget.add(schema)
        except SchemaTooLargeError:
            assert not fits
        else:
            assert fits
            size, values = size + more, values + more_values


@pytest.mark.parametrize(
    "schema",
    [
        *TOO_LARGE.values(),
        LARGEST,
        _nested(MAX_SCHEMA_LEVELS - 1),
        _nested(MAX_SCHEMA_LEVELS),
        _nested(300),
        [0] * (MAX_SCHEMA_NODES - 1),
        [0] * MAX_SCHEMA_NODES,
        "," * MAX_SCHEMA_NODES,
        "[" * MAX_SCHEMA_LEVELS,
        {"const": 10**30},
    ],
)
def test_a_schema_from_json_has_the_limits_of_any_other(schema: object) -> None:
    def check(function: Callable[[object], bytes]) -> str | bytes:
        try:
            return function(schema)
        except SchemaError as error:
            return f"{type(error)}: {error}"

    assert check(check_parsed_schema_size) == check(check_schema_size)


@async_test(SECONDS)
async def test_all_schemas_of_a_server_have_a_limit_together(tmp_path: Path) -> None:
    fit = MAX_LISTED_SCHEMA_NODES // MAX_SCHEMA_NODES
    described = [{"name": f"t{index}", "inputSchema": LARGEST} for index in range(fit + 2)]
    small = {"name": "small", "inputSchema": {"type": "object"}}
    async with (
        DescribedServer(small, *described).serve() as server,
        _gateway(tmp_path, ScriptedModel(say("Well.")), server) as gateway,
    ):
        assert await _answer(gateway) == "Well."
        names = [each["function"]["name"] for each in gateway.model_requests[0]["tools"]]
        assert names == ["small", *(f"t{index}" for index in range(fit - 1))]


@async_test(SECONDS)
async def test_an_external_output_schema_of_a_server_is_not_fetched(tmp_path: Path, canary: Canary) -> None:
    described: list[Schema] = [
        {"name": f"t{index}", "inputSchema": {"type": "object"}, "outputSchema": {**elsewhere(canary.url)}}
        for index, elsewhere in enumerate(ELSEWHERE.values())
    ]
    async with DescribedServer(*described).serve() as server:
        model = ScriptedModel([call(each["name"]) for each in described], say("Well."))
        async with _gateway(tmp_path, model, server) as gateway:
            assert await _answer(gateway) == "Well."
        assert len(server.call_arguments) == len(described)


PATTERN: Schema = {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[A-Z]{3}$"}}}
ENDLESS: Schema = {
    "type": "object",
    "$defs": {
        **{f"d{each}": {"allOf": [{"$ref": f"#/$defs/d{each + 1}"}] * 2} for each in range(40)},
        "d40": {"type": "object"},
    },
    "allOf": [{"$ref": "#/$defs/d0"}],
}
"""Its references double 40 times: to check anything against it takes years."""


@async_test(SECONDS)
async def test_arguments_are_checked_against_costly_schemas_in_a_process_that_ends_with_the_gateway(
    tmp_path: Path,
) -> None:
    async with DescribedServer({"name": "look", "inputSchema": PATTERN}).serve() as server:
        model = ScriptedModel(call("look", code="abc"), call("look", code="ABC"), say("Well."))
        async with _gateway(tmp_path, model, server) as gateway:
            assert await _answer(gateway) == "Well."
            assert "The arguments do not fit the tool: code: " in gateway.model_requests[1]["messages"][-1]["content"]
            assert len(running_children(WORKER)) == 1
        assert server.call_arguments == [{"code": "ABC"}]
    assert not running_children(WORKER)


@async_test(SECONDS)
async def test_a_call_runs_unchecked_when_its_check_does_not_end_and_the_check_is_not_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    described = [{"name": "slow", "inputSchema": ENDLESS}, {"name": "look", "inputSchema": PATTERN}]
    async with DescribedServer(*described).serve() as server:
        calls = [call("slow", a=1), call("slow", a=2), [call("slow", a=3), call("look", code="abc")]]
        async with _gateway(tmp_path, ScriptedModel(*calls, say("Well.")), server) as gateway:
            assert await _answer(gateway) == "Well."
            assert "do not fit the tool: code: " in gateway.model_requests[3]["messages"][-1]["content"]
        assert server.call_arguments == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert not running_children(WORKER)
    unchecked = [record.getMessage() for record in caplog.records if "arguments_unchecked" in record.getMessage()]
    assert ["took more than" in each for each in unchecked] == [True, False, False]


def _gateway(folder: Path, model: ScriptedModel, server: DescribedServer) -> Any:
    described = {"name": "described", "type": "mcp", "description": "d", "transport": "http", "url": server.url}
    return run_gateway(folder, model, mcp_servers=[described])


async def _answer(gateway: RunningGateway) -> str:
    status, answer = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "hi"})
    assert status == 200, answer
    return str(answer["output"][-1]["content"][0]["text"])


async def _refused(gateway: RunningGateway, path: str, body: Schema) -> dict[str, Any]:
    status, answer = await gateway.send("POST", path, {"model": MODEL, **body})
    assert status == 400, answer
    error: dict[str, Any] = answer["error"]
    return error
