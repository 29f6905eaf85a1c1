"""No list of a request takes more steps than its bytes allow, however long it is: a small one stops no event loop.

The lists are those of the OpenAPI document, so that a new one is walked by being documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from async_tests import async_test
from counted_calls import CountedCalls
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.schema_samples import RecordedObject, SchemaSamples

from holodeck.gateway.all_endpoints import list_routes
from holodeck.gateway.openapi.schemas.schema import ref
from holodeck.lib.json.parse import MAX_JSON_VALUES
from holodeck.lib.limits import MAX_INPUT_ITEMS
from holodeck.testing import Fault, FaultyMCPServer, ScriptedModel, say

SIZE = 1_000_000
# An item of 30 bytes takes some 160 calls, of Python and of C, on its way to the model.
MAX_CALLS_PER_BYTE = 8
# Of a request that has a few bytes.
MAX_FIXED_CALLS = 10_000
# The server that samples of MCP declarations name.
SERVER = "x"


def _documented_lists() -> Iterator[tuple[str, str, RecordedObject, list[Any]]]:
    """The path of a route, the name of a list, a body that has it with one element, and the list in that body.

    Each list of each schema once. Those of the MCP endpoint are of the protocol, which the document does not describe.
    """
    seen: set[str] = set()
    for route in list_routes():
        if route.body is None or route.path.startswith("/mcp"):
            continue
        for body in SchemaSamples().allowed(ref(route.body), route.body):
            for name, found in _lists_in(body):
                if name not in seen:
                    seen.add(name)
                    yield route.path, name, body, found


def _lists_in(value: Any) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, RecordedObject):
        for key, each in value.items():
            if isinstance(each, list) and each:
                yield f"{value.place}.{key}", each
            yield from _lists_in(each)
    elif isinstance(value, list) and value:
        yield from _lists_in(value[0])


def _lengthen(found: list[Any], count: int) -> None:
    """Make a list of one element `count` elements long: texts that differ, or the same object again."""
    first = found[0]
    found[:] = [f"{first}{number}" for number in range(count)] if first == "x" else [first] * count


async def _post(gateway: RunningGateway, path: str, body: Any) -> tuple[bytes, float]:
    """The answer, and the calls of functions per byte of the body, without those of any request."""
    given = {"input": "x", "messages": [{"role": "user", "content": "x"}], "model": MODEL}
    # What the smallest body has not, and the model that there is.
    needed = {key: value for key, value in given.items() if key not in body or key == "model"}
    wanted = {"/v1/responses": ("input", "model"), "/v1/chat/completions": ("messages", "model")}
    names = wanted.get(path, ("model",) if "model" in body else ())
    data = orjson.dumps({**body, **{key: needed[key] for key in names if key in needed}})
    client, work = await gateway.http_client(), CountedCalls()
    with work.counting():
        async with client.post(path.replace("{id}", "conv_none"), data=data) as answer:
            said = await answer.read()
    return said, max(work.count - MAX_FIXED_CALLS, 0) / len(data)


@async_test(240)
async def test_every_list_of_a_request_takes_few_steps_per_byte(tmp_path: Path) -> None:
    counts: dict[str, float] = {}
    async with (
        FaultyMCPServer(Fault.NORMAL) as server,
        run_gateway(tmp_path, ScriptedModel(*[say("yes")] * 500), mcp={SERVER: server}) as gateway,
    ):
        for path, name, body, found in _documented_lists():
            count = min(SIZE // (len(orjson.dumps(found[0])) + 1), MAX_INPUT_ITEMS)
            _lengthen(found, count)
            said, counts[name] = await _post(gateway, path, body)
            if limit := re.search(rb"at most (\d+) elements", said):
                del found[int(limit[1]) :]
                _, counts[f"{name}, as long as it may be"] = await _post(gateway, path, body)

    assert len(counts) > 80, "the lists of the document, and those again that have a maximum of their own"
    assert {name: count for name, count in counts.items() if count > MAX_CALLS_PER_BYTE} == {}


@async_test
async def test_many_patterns_for_tools_are_refused_and_few_are_matched_in_few_steps(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer(Fault.NORMAL) as server,
        run_gateway(tmp_path, ScriptedModel(say("yes")), mcp={"files": server}) as gateway,
    ):
        declared = {"type": "mcp", "server_label": "files", "require_approval": "never"}
        patterns = [f"*{number}*" for number in range(30_000)]
        for keys in (("allowed_tools",), ("require_approval", "always"), ("require_approval", "never", "tool_names")):
            for given, text in ((patterns[:101], "wildcards"), (patterns, "array too long"), (["*" * 257], "too long")):
                filtered: Any = given
                for key in reversed(keys[1:]):
                    filtered = {key: filtered}
                tools = [{**declared, keys[0]: filtered}]
                status, said = await gateway.send(
                    "POST", "/v1/responses", {"model": MODEL, "input": "?", "tools": tools}
                )
                assert (status, text in said["error"]["message"]) == (400, True), said
                assert said["error"]["param"].startswith(f"tools[0].{'.'.join(keys)}")
        body = {"input": "?", "tools": [{**declared, "allowed_tools": [*patterns[:100], "echo"]}]}
        said, steps = await _post(gateway, "/v1/responses", body)
        assert orjson.loads(said)["status"] == "completed"
        assert [tool["function"]["name"] for tool in gateway.model_requests[0]["tools"]] == ["echo"]
        # Compiling a pattern takes some hundred calls, once.
        assert steps < 100


@async_test
async def test_a_body_of_too_many_values_is_refused_and_a_long_text_is_not(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("yes"))) as gateway:
        # Also before and behind a blob, which is not searched for values.
        for blob in ({}, {"user": "x" * 70_000}):
            values: dict[str, Any] = {"metadata": [{}] * (MAX_JSON_VALUES // 2)}
            for body in ({**values, **blob}, {**blob, **values}):
                status, said = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "?", **body})
                assert (status, said["error"]["code"]) == (413, "too_large")
        # Marks of more values than a text may have, all of them in one string.
        text = '"\\' + "[{," * (MAX_JSON_VALUES // 3) + '"'
        status, said = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": text})
        assert (status, said["status"]) == (200, "completed")
        assert gateway.model_requests[0]["messages"][0]["content"] == text
