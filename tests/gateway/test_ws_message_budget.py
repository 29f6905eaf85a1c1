"""WebSocket messages count against the byte budget, also queued and partly received ones, until they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import ANY_KEY, MODEL, RunningGateway, run_gateway
from gateway.wire.open_responses_contract import contract_problems
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Frame, Opcode

from holodeck.gateway.endpoints.responses_ws import MAX_QUEUED_MESSAGES
from holodeck.testing import ScriptedModel, say, wait

KIB = 1024
LIMITS = {"body_bytes": 64 * KIB, "bodies_bytes": 128 * KIB, "drain_seconds": 0}
FULL = "The gateway is at its limit of bytes of requests at once."


def _open(gateway: RunningGateway, key: str = ANY_KEY) -> connect:
    headers = {"authorization": f"Bearer {key}"}
    return connect(gateway.url.replace("http", "ws", 1) + "/v1/responses", additional_headers=headers)


def _message(size: int = 60 * KIB, **more: Any) -> str:
    body = {"type": "response.create", "model": MODEL, "store": False, "input": "x" * size, **more}
    return orjson.dumps(body).decode()


async def _end(socket: ClientConnection) -> dict[str, Any]:
    """The last event of a response, or the error instead of one."""
    while True:
        event: dict[str, Any] = orjson.loads(await socket.recv())
        if event["type"] == "response.completed" or "status" in event:
            return event


async def _is_refused(socket: ClientConnection) -> bool:
    error = await _end(socket)
    assert not contract_problems("WebSocketErrorEvent", error)
    return (error["status"], error["error"]["type"], error["error"]["message"]) == (429, "too_many_requests", FULL)


async def _wait_model_requests(gateway: RunningGateway, times: int) -> None:
    while len(gateway.model_requests) < times:  # noqa: ASYNC110 - another task calls the model
        await asyncio.sleep(0.01)


async def _wait_budget_released(gateway: RunningGateway) -> None:
    """Wait until all bytes are released to the budget."""
    while gateway.service.budget.available < LIMITS["bodies_bytes"]:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(0.01)
    assert gateway.service.budget.available == LIMITS["bodies_bytes"]


async def _send_fragments(socket: ClientConnection, go: asyncio.Event, *, fragments: int = 6) -> None:
    """Send a message in fragments, the last one only after `go` is set."""

    async def parts() -> AsyncIterator[str]:
        text = _message(size=10 * KIB * fragments - 100)
        for at in range(0, 10 * KIB * (fragments - 1), 10 * KIB):
            yield text[at : at + 10 * KIB]
        await go.wait()
        yield text[10 * KIB * (fragments - 1) :]

    await socket.send(parts())


@async_test(30)
async def test_a_websocket_message_counts_against_the_byte_budget_until_its_response_has_ended(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel(*[[wait(go), say("done")]] * 2, say("again"), say("again"))
    async with (
        run_gateway(tmp_path, model, limits=LIMITS) as gateway,
        _open(gateway) as one,
        _open(gateway) as two,
        _open(gateway) as late,
    ):
        await one.send(_message())
        await two.send(_message())
        await _wait_model_requests(gateway, 2)
        await late.send(_message())
        assert await _is_refused(late)
        body = {"model": MODEL, "input": "x" * 60 * KIB}
        code, answer = await gateway.send("POST", "/v1/responses", body)
        assert (code, answer["error"]["message"]) == (429, FULL)
        await late.send("{}")
        assert (await _end(late))["status"] == 400, "a small message fits the budget"
        go.set()
        assert [(await _end(each))["type"] for each in (one, two)] == ["response.completed"] * 2
        await _wait_budget_released(gateway)
        await late.send(_message())
        assert (await _end(late))["type"] == "response.completed"
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 200


@async_test(30)
async def test_queued_websocket_messages_count_against_the_byte_budget_until_the_client_disconnects(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    model = ScriptedModel([wait(go), say("done")], say("again"))
    async with run_gateway(tmp_path, model, limits=LIMITS) as gateway, _open(gateway) as late:
        async with _open(gateway) as one:
            await one.send(_message())
            await _wait_model_requests(gateway, 1)
            await one.send(_message())
            await (await one.ping())
            await late.send(_message())
            assert await _is_refused(late)
        await _wait_budget_released(gateway)
        await late.send(_message())
        assert (await _end(late))["type"] == "response.completed"


@async_test(30)
async def test_a_partly_received_message_counts_against_the_byte_budget_and_one_over_it_is_dropped(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    model = ScriptedModel(lambda _: say("done"))
    async with (
        run_gateway(tmp_path, model, limits=LIMITS) as gateway,
        _open(gateway) as one,
        _open(gateway) as two,
        _open(gateway) as late,
    ):
        early = [asyncio.create_task(_send_fragments(each, go)) for each in (one, two)]
        for each in (one, two):
            await (await each.ping())
        refused = asyncio.create_task(_send_fragments(late, go))
        assert await _is_refused(late), "although its end has not come"
        await (await late.ping())
        go.set()
        await asyncio.gather(*early, refused)
        assert [(await _end(each))["type"] for each in (one, two)] == ["response.completed"] * 2
        await _wait_budget_released(gateway)
        await late.send(_message())
        assert (await _end(late))["type"] == "response.completed"
        assert len(gateway.model_requests) == 3


@async_test(30)
async def test_a_client_that_stops_in_the_middle_of_a_message_is_closed_with_the_reason(tmp_path: Path) -> None:
    limits = {**LIMITS, "request_seconds": 0.2}
    async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), limits=limits) as gateway:
        async with _open(gateway) as one, _open(gateway) as idle:
            never = asyncio.create_task(_send_fragments(one, asyncio.Event()))
            with pytest.raises(ConnectionClosedError) as closed:
                await one.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
            assert "Nothing of the message came for 0.2 seconds" in closed.value.rcvd.reason
            never.cancel()
            await idle.send(_message(10))
            assert (await _end(idle))["type"] == "response.completed", "a client may be silent between messages"
        await _wait_budget_released(gateway)


@async_test(30)
async def test_websocket_compression_is_not_negotiated(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), limits=LIMITS) as gateway, _open(gateway) as socket:
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers
        await socket.send(_message(65 * KIB))
        with pytest.raises(ConnectionClosedError, match="1009"):
            await socket.recv()


@async_test(30)
async def test_the_caller_with_the_most_remembered_history_loses_its_oldest_first(tmp_path: Path) -> None:
    keys, limits = ("alice", "bob"), {**LIMITS, "context_bytes": 128 * KIB}
    async with (
        run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=keys, limits=limits) as gateway,
        _open(gateway, "bob") as bob,
        _open(gateway, "alice") as one,
        _open(gateway, "alice") as two,
        _open(gateway, "alice") as three,
    ):
        before: dict[ClientConnection, str] = {}

        async def send_large(socket: ClientConnection, **more: Any) -> None:
            await socket.send(_message(**more))
            before[socket] = (await _end(socket))["response"]["id"]

        async def continue_response(socket: ClientConnection) -> dict[str, Any]:
            await socket.send(_message(5, previous_response_id=before[socket]))
            return await _end(socket)

        await send_large(bob, size=KIB)
        for socket in (one, two, three):
            await send_large(socket)
        assert (await continue_response(one))["error"]["code"] == "previous_response_not_found"
        for socket in (bob, two, three):
            assert (await continue_response(socket))["type"] == "response.completed"
        for socket in (one, two, three):
            await send_large(socket, store=True)
        for socket in (one, two, three):
            assert (await continue_response(socket))["type"] == "response.completed", (
                "stored responses can be continued"
            )


@async_test(90)
async def test_writing_to_a_websocket_that_was_just_closed_is_not_logged_as_an_error(tmp_path: Path) -> None:
    async with (
        ScriptedModel(say("Hi.")).serve() as model,
        run_gateway_process(write_gateway_file(tmp_path, model.url, limits=LIMITS)) as served,
    ):
        async with connect(served.url.replace("http", "ws", 1) + "/v1/responses") as socket:
            sent = [*[b"{}"] * (MAX_QUEUED_MESSAGES + 1), b"x" * 65 * KIB]  # the last but one is one too many
            socket.transport.write(b"".join(Frame(Opcode.TEXT, each).serialize(mask=True) for each in sent))
            await socket.wait_closed()
            assert socket.close_code == 1009
        assert (await served.create_response("Still there?"))[0] == 200
        served.stop()
        assert await served.wait_exit() == 0
    assert not [line for line in served.stderr_lines if "ERROR" in line or "Traceback" in line]
