"""Limits for many callers, and for one caller with many connections; each refusal names its limit."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.http.request import SMALL_BODY_BYTES
from holodeck.gateway.limits import CallerLimits, TooManyError
from holodeck.lib.json.schema import MAX_SCHEMA_BYTES
from holodeck.lib.limits import KIB
from holodeck.models.callers import KeyLimits
from holodeck.models.model_io import ToolSpec
from holodeck.providers.wrappers.schema_adapter import MAX_ADAPTED_BYTES
from holodeck.testing import ScriptedModel, say, wait

ALICE, BOB = "hd-alice", "hd-bob"


async def _socket(gateway: RunningGateway, key: str) -> ClientConnection:
    address = gateway.url.replace("http", "ws", 1) + "/v1/responses"
    return await connect(address, additional_headers={"authorization": f"Bearer {key}"})


async def _refused(gateway: RunningGateway, key: str) -> tuple[int, int, str]:
    """The status, the seconds of `Retry-After`, and the error message."""
    with pytest.raises(InvalidStatus) as refused:
        await _socket(gateway, key)
    answer = refused.value.response
    error = orjson.loads(answer.body or b"{}")["error"]
    assert (error["type"], error["code"]) == ("too_many_requests", "rate_limit_exceeded")
    return answer.status_code, int(answer.headers["retry-after"]), error["message"]


async def _metrics(gateway: RunningGateway) -> bytes:
    return bytes((await gateway.send("GET", "/metrics", key=ALICE))[1])


async def _until_open(gateway: RunningGateway, count: int) -> None:
    while f"\nholodeck_sockets {count}.0\n".encode() not in await _metrics(gateway):  # noqa: ASYNC110
        await asyncio.sleep(0)


@pytest.mark.proves("D-29")
@async_test(30)
async def test_idle_sockets_are_limited_per_caller_and_in_total(tmp_path: Path) -> None:
    limits, environ = {"sockets": 3, "drain_seconds": 0}, {"HOLODECK_LIMITS__KEY__SOCKETS": "2"}
    async with (
        AsyncExitStack() as stack,
        run_gateway(
            tmp_path, ScriptedModel(say("Hi.")), keys=[BOB], admins=[ALICE], limits=limits, environ=environ
        ) as gateway,
    ):
        first = await _socket(gateway, ALICE)
        await stack.enter_async_context(await _socket(gateway, ALICE))
        status, after, message = await _refused(gateway, ALICE)
        assert (status, after) == (429, 1)
        assert "2 open WebSockets" in message
        await stack.enter_async_context(await _socket(gateway, BOB))
        status, after, message = await _refused(gateway, BOB)
        assert (status, after) == (429, 1)
        assert "gateway" in message
        await first.send(orjson.dumps({"type": "response.create", "model": MODEL, "input": "Hi"}).decode())
        assert orjson.loads(await first.recv())["type"] == "response.created"
        await first.close()
        await _until_open(gateway, 2)
        await stack.enter_async_context(await _socket(gateway, BOB))
        assert (await _refused(gateway, ALICE))[2].startswith("The gateway")


def test_limits_of_callers_idle_for_a_minute_are_dropped() -> None:
    now = [0.0]
    limits = KeyLimits(requests_per_minute=2, tokens_per_minute=10)
    rates = CallerLimits(limits, 100, clock=lambda: now[0])
    for number in range(20_000):  # 100 callers a second, one request each
        caller = Caller(id=f"jwt:{number}")
        with rates.count_request(caller):
            rates.add_tokens(caller.id, 3)
        now[0] += 0.01
    assert len(rates) < 12_100, "those of the last minute, and hardly any more"
    late = Caller(id="jwt:19999")
    with rates.count_request(late):
        rates.add_tokens(late.id, 7)
    with pytest.raises(TooManyError, match="2 requests a minute"), rates.count_request(late):
        pass


def test_limits_of_refused_callers_are_not_stored() -> None:
    rates = CallerLimits(KeyLimits(), 1)
    with rates.count_request(Caller(id="a")):
        for number in range(1_000):
            with pytest.raises(TooManyError), rates.count_request(Caller(id=f"jwt:{number}")):
                pass
    assert len(rates) < 10


def test_tokens_of_a_run_that_ends_long_after_its_request_are_counted() -> None:
    now = [0.0]
    own = Caller(id="key:own", limits=KeyLimits(tokens_per_minute=5))
    rates = CallerLimits(KeyLimits(tokens_per_minute=10), 100, clock=lambda: now[0])
    other = Caller(id="jwt:other")
    for caller in (own, other):
        with rates.count_request(caller):
            pass
    now[0] = 300.0
    for number in range(10):
        with rates.count_request(Caller(id=f"jwt:{number}")):
            pass
    for caller in (own, other):
        rates.add_tokens(caller.id, 50)
        with pytest.raises(TooManyError, match="tokens a minute"), rates.count_request(caller):
            pass


@async_test(60)
async def test_tools_of_requests_in_memory_are_limited(tmp_path: Path) -> None:
    size = MAX_SCHEMA_BYTES - KIB
    fit = MAX_ADAPTED_BYTES // size
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi."))) as gateway:
        client = await gateway.openai_client()
        for number in range(fit + 8):
            schema: dict[str, object] = {
                "type": "object",
                "properties": {"text": {"type": "string", "description": "x" * size}},
            }
            await client.responses.create(
                model=MODEL,
                input="Hi",
                tools=[{"type": "function", "name": f"brought_{number}", "parameters": schema, "strict": False}],
            )
            gateway.model.received.clear()
        gc.collect()
        names_in_memory = {
            each.name for each in gc.get_objects() if isinstance(each, ToolSpec) and "brought" in each.name
        }
        assert len(names_in_memory) <= fit


async def _upload(gateway: RunningGateway, path: str, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request that has sent its head and not its body."""
    host = gateway.url.removeprefix("http://")
    name, port = host.split(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\nAuthorization: Bearer {ALICE}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()
    return reader, writer


@pytest.mark.proves("D-29")
@async_test(30)
async def test_a_body_counts_from_its_head_on(tmp_path: Path) -> None:
    limits = {"drain_seconds": 0, "key": {"in_flight": 1}}
    body = orjson.dumps({"model": MODEL, "input": "Hi"})
    async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), admins=[ALICE], limits=limits) as gateway:
        reader, writer = await _upload(gateway, "/v1/responses", len(body))
        while b"\nholodeck_in_flight 1.0\n" not in await _metrics(gateway):  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)
        status, error = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}, key=ALICE)
        assert (status, error["error"]["code"]) == (429, "rate_limit_exceeded")
        writer.write(body)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.proves("D-29")
@async_test(30)
async def test_uploads_and_followed_streams_are_limited_and_small_requests_still_pass(tmp_path: Path) -> None:
    never = asyncio.Event()
    limits = {"drain_seconds": 0, "key": {"in_flight": 2}}
    model = ScriptedModel(lambda _: [say("Hel"), wait(never)])
    async with AsyncExitStack() as stack, run_gateway(tmp_path, model, admins=[ALICE], limits=limits) as gateway:
        body = {"model": MODEL, "input": "Hi", "background": True}
        _, made = await gateway.send("POST", "/v1/responses", body, key=ALICE)
        path = f"/v1/responses/{made['id']}"
        session = await gateway.http_client(ALICE)
        for _ in range(2):
            answer = await stack.enter_async_context(session.get(f"{path}?stream=true"))
            assert answer.status == 200
            await answer.content.readline()
        status, error = await gateway.send("GET", f"{path}?stream=true", key=ALICE)
        assert (status, error["error"]["code"]) == (429, "rate_limit_exceeded")
        assert "followed streams" in error["error"]["message"]
        large = {"items": [{"type": "message", "role": "user", "content": "x" * SMALL_BODY_BYTES}]}
        assert (await gateway.send("POST", "/v1/conversations", large, key=ALICE))[0] == 429
        assert (await gateway.send("POST", "/v1/conversations", {}, key=ALICE))[0] == 200
        assert (await gateway.send("GET", path, key=ALICE))[0] == 200
        assert (await gateway.send("POST", f"{path}/cancel", {}, key=ALICE))[0] == 200
