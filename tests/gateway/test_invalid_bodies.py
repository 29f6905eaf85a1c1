"""No request body causes a 500, and every refusal has an error object."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.gateway.server.http_protocol import MAX_HEAD_BYTES
from holodeck.lib.json.schema import MAX_SCHEMA_LEVELS
from holodeck.testing import ScriptedModel, say

MOST = 100
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CALL = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "sums", "name": "add"}
YES = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
HELLO = {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
LISTED = {"type": "mcp_list_tools", "server_label": "sums", "tools": [{"name": "add", "input_schema": SCHEMA}]}
FUNCTION = {"name": "f", "parameters": SCHEMA}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {
        "model": MODEL,
        "input": [HELLO, LISTED],
        "tools": [{"type": "function", **FUNCTION}, {"type": "mcp", "server_label": "sums", "headers": {"a": "b"}}],
        "metadata": {"a": "b"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
        "client_metadata": {"a": "b"},
    },
    "/v1/chat/completions": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": FUNCTION}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    },
    "/v1/responses/compact": {"model": MODEL, "input": [HELLO, LISTED]},
    "/v1/responses/input_tokens": {"model": MODEL, "input": [HELLO], "tools": [{"type": "function", **FUNCTION}]},
    "/v1/conversations": {"items": [HELLO, LISTED], "metadata": {"a": "b"}},
}
DEPTHS = (90, 96, 150, 250, 300, 1_000, 2_000)
ODD = (
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in DEPTHS),
    *(b"[" * depth + b"]" * depth for depth in DEPTHS),
    *(b"NaN", b"1e999", b"9" * 30, b"18446744073709551615", b"-", b"null", b"{}"),
    *(b'"\\ud800"', b'"\\u0000"', b'"\xff"'),
)


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def check_error(status: int, body: bytes) -> dict[str, Any]:
    """The error object of a refusal."""
    assert 400 <= status < 500, body
    error: dict[str, Any] = orjson.loads(body)["error"]
    assert {"message", "type", "code", "param"} <= set(error)
    assert error["message"]
    return error


async def post(gateway: RunningGateway, path: str, body: bytes) -> tuple[int, bytes]:
    async with (await gateway.http_client()).post(path, data=body) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize("depth", [MOST + 1, 254, 255, 1_000, 1_024, 100_000])
@pytest.mark.parametrize("path", BODIES)
@async_test(30)
async def test_a_body_that_is_nested_too_deep_is_refused(tmp_path: Path, path: str, depth: int) -> None:
    async with run_gateway(tmp_path) as gateway:
        assert check_error(*await post(gateway, path, nested(depth)))["code"] == "invalid_json"


@async_test(30)
async def test_a_schema_of_the_maximum_depth_is_accepted_and_a_deeper_one_refused(tmp_path: Path) -> None:
    above = b'{"model":"demo","input":"Hi","tools":[{"type":"function","name":"f","strict":false,"parameters":%b}]}'
    async with run_gateway(tmp_path, ScriptedModel(say("Hello."))) as gateway:
        status, body = await post(gateway, "/v1/responses", above % nested(MAX_SCHEMA_LEVELS - 1))
        assert (status, orjson.loads(body)["status"]) == (200, "completed")
        for depth, code in ((MAX_SCHEMA_LEVELS, "schema_above_max_size"), (MOST - 2, "invalid_json")):
            assert check_error(*await post(gateway, "/v1/responses", above % nested(depth)))["code"] == code


@async_test(30)
async def test_a_message_that_is_nested_too_deep_is_refused_and_its_connection_stays_open(tmp_path: Path) -> None:
    async with (
        run_gateway(tmp_path, ScriptedModel(say("Hello."))) as gateway,
        (await gateway.http_client()).ws_connect("/v1/responses") as socket,
    ):
        await socket.send_bytes(nested(MOST + 1))
        refused = await socket.receive_json()
        assert (refused["status"], refused["error"]["code"]) == (400, "invalid_json")
        await socket.send_json({"type": "response.create", "model": MODEL, "input": "Hi"})
        assert (await socket.receive_json())["type"] == "response.created"


@pytest.mark.parametrize("depth", [MOST + 1, 254, 255, 330, 900, 1_024])
@async_test(30)
async def test_arguments_that_are_nested_too_deep_fail_no_request(tmp_path: Path, depth: int) -> None:
    call = {**CALL, "arguments": nested(depth).decode()}
    async with run_gateway(tmp_path, ScriptedModel(say("Hello."))) as gateway:
        for items in ([HELLO, call, YES], [HELLO, {**call, "type": "mcp_call", "output": call["arguments"]}]):
            status, body = await post(gateway, "/v1/responses", orjson.dumps({"model": MODEL, "input": items}))
            assert status < 500, body


@async_test(60)
async def test_no_invalid_value_in_a_body_is_a_500(tmp_path: Path) -> None:
    chance = random.Random(1)
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("{}"))) as gateway:
        for path, body in BODIES.items():
            for _ in range(60):
                status, answer = await post(gateway, path, with_odd_value(body, chance))
                if status != 200:
                    check_error(status, answer)


def with_odd_value(body: dict[str, Any], chance: random.Random) -> bytes:
    """The body with one of its values replaced."""
    mark = "an odd value"
    copy = orjson.loads(orjson.dumps(body))
    container: Any = copy
    while True:
        key = chance.choice(list(container) if isinstance(container, dict) else range(len(container)))
        if not isinstance(container[key], dict | list) or not container[key] or chance.random() < 0.2:
            break
        container = container[key]
    container[key] = mark
    return orjson.dumps(copy).replace(orjson.dumps(mark), chance.choice(ODD))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nX-Long: " + b"x" * MAX_HEAD_BYTES,
        b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 1\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        b"GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"PUT /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: 0\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    ],
)
@async_test(30)
async def test_every_refusal_has_an_error_object(tmp_path: Path, request_bytes: bytes) -> None:
    async with run_gateway(tmp_path) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_bytes)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert b"content-type: application/json" in head.lower(), head
        assert b"content-length: %d" % len(body) in head.lower()
        check_error(int(head.split()[1]), body)
