"""`/v1/responses` over a WebSocket, with the stock package and with a bare client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.wire.open_responses_contract import contract_problems, event_contract_problems
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
)
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from holodeck.gateway.endpoints.responses_ws import MAX_QUEUED_MESSAGES
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import status

LANES = ResponsesWebSocketLimits(
    max_lanes=4, max_events_per_lane=500, max_events=1_000, max_bytes_per_lane=1 << 20, max_bytes=1 << 22
)
ENDS = ("response.completed", "response.failed", "response.incomplete")
GET_TIME = {"type": "function", "name": "get_time", "description": "The time.", "parameters": {"type": "object"}}


def _address(gateway: RunningGateway) -> str:
    return gateway.url.replace("http", "ws", 1) + "/v1/responses"


async def _turn(socket: ClientConnection, **body: Any) -> list[dict[str, Any]]:
    await socket.send(orjson.dumps({"type": "response.create", "model": MODEL, **body}).decode())
    events: list[dict[str, Any]] = []
    while not events or (events[-1]["type"] not in ENDS and "status" not in events[-1]):
        events.append(orjson.loads(await socket.recv()))
    return events


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_stock_package_creates_responses_over_a_websocket(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        async with (await gateway.openai_client()).responses.connect() as connection:
            await connection.response.create(model=MODEL, input="1 + 2?")
            events = [await connection.recv()]
            while events[-1].type != "response.completed":
                events.append(await connection.recv())
            assert events[-1].response.output_text == "It is 3."
            await connection.response.create(
                model=MODEL, input="Bye", previous_response_id=events[-1].response.id, store=False
            )
            while (event := await connection.recv()).type != "response.completed":
                assert event.type != "error"
            assert event.response.output_text == "Bye."
        assert [message["role"] for message in gateway.model_requests[-1]["messages"]][:2] == ["user", "assistant"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_lanes_of_the_stock_package_each_get_their_own_events(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: say(f"You said {request.json['messages'][-1]['content']}."))
    async with (
        run_gateway(tmp_path, model) as gateway,
        (await gateway.openai_client()).responses.connect() as connection,
        AsyncResponsesWebSocketSession(connection, limits=LANES) as session,
    ):
        lanes = [session.default, *[session.lane(name) for name in ("one", "two.2")]]
        for turn in ("first", "second"):
            for number, lane in enumerate(lanes):
                await lane.send({"type": "response.create", "model": MODEL, "input": f"{turn} {number}"})
            for number, lane in enumerate(lanes):
                assert (await lane.get_final_response()).output_text == f"You said {turn} {number}."
        await lanes[1].send({"type": "response.create", "model": "unknown", "input": "Hi"})
        with pytest.raises(ResponsesWebSocketError):
            await lanes[1].get_final_response()
        await connection.send_raw(orjson.dumps({"type": "response.create", "input": "Hi", "stream_id": 'a"b'}).decode())
        error: dict[str, Any] = (await session.default.recv()).to_dict()
        assert (error["type"], error["error"]["param"]) == ("error", "stream_id")


@pytest.mark.proves("D-25", "D-28")
@async_test(30)
async def test_a_websocket_continues_responses_that_are_not_stored(tmp_path: Path) -> None:
    model = ScriptedModel([call("get_time"), call("add", a=1, b=2)], say("Noon, and 3."), say("Again."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, mcp_output="portable") as gateway,
    ):
        async with connect(_address(gateway)) as socket:
            first = await _turn(socket, input="Time? And 1 + 2?", store=False, tools=[GET_TIME])
            assert first[-1]["response"]["status"] == "requires_action"
            assert not server.calls()
            (function_call,) = [item for item in first[-1]["response"]["output"] if item["type"] == "function_call"]
            answer = {"type": "function_call_output", "call_id": function_call["call_id"], "output": "noon"}
            before = first[-1]["response"]["id"]
            second = await _turn(socket, input=[answer], store=False, tools=[GET_TIME], previous_response_id=before)
            assert second[-1]["response"]["status"] == "completed"
            assert len(server.calls("add")) == 1
            for event in second:
                assert not event_contract_problems(event), event
            third = await _turn(socket, input="Again?", previous_response_id=second[-1]["response"]["id"])
        code, _ = await gateway.send("GET", f"/v1/responses/{before}")
        assert code == 404
        last_messages = gateway.model_requests[-1]["messages"]
        assert [message["role"] for message in last_messages] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "user",
        ]
        follow_up = {"model": MODEL, "input": "And?", "previous_response_id": third[-1]["response"]["id"]}
        await gateway.send("POST", "/v1/responses", follow_up)
        assert len(gateway.model_requests[-1]["messages"]) == len(last_messages) + 2


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_failed_continuation_drops_the_unstored_response_and_the_websocket_stays_open(tmp_path: Path) -> None:
    model = ScriptedModel(say("One."), status(400), say("Four."))
    async with run_gateway(tmp_path, model) as gateway, connect(_address(gateway)) as socket:
        first = await _turn(socket, input="1", store=False)
        before = first[-1]["response"]["id"]
        failed = await _turn(socket, input="2", store=False, previous_response_id=before)
        assert [event["type"] for event in failed[-2:]] == ["error", "response.failed"]
        (missing,) = await _turn(socket, input="3", store=False, previous_response_id=before)
        assert not contract_problems("WebSocketErrorEvent", missing)
        assert (missing["status"], missing["error"]["code"]) == (400, "previous_response_not_found")
        for wrong in ("{", "[]", '{"type":"response.cancel"}', '{"type":"response.create","stream":false,"input":"x"}'):
            await socket.send(wrong)
            error = orjson.loads(await socket.recv())
            assert not contract_problems("WebSocketErrorEvent", error)
            assert error["status"] == 400
        last = await _turn(socket, input="4", store=False)
        assert last[-1]["type"] == "response.completed"


@pytest.mark.proves("D-29")
@async_test(30)
async def test_a_websocket_needs_a_key_an_allowed_origin_and_a_known_path(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hello.")), keys=["hd-alice"]) as gateway:
        address, key = _address(gateway), {"authorization": "Bearer hd-alice"}
        for url, headers, code in (
            (address, {}, 401),
            (address, {"authorization": "Bearer hd-mallory"}, 401),
            (address, {**key, "origin": "https://evil.example"}, 403),
            (address + "/other", key, 404),
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(url, additional_headers=headers):
                    pass
            assert refused.value.response.status_code == code
            assert orjson.loads(refused.value.response.body or b"{}")["error"]["message"]
        async with connect(address, additional_headers=key) as socket:
            assert (await _turn(socket, input="Hi"))[-1]["type"] == "response.completed"


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_response_with_generate_false_prepares_the_next(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        async with (await gateway.openai_client()).responses.connect() as connection:
            await connection.response.create(model=MODEL, input="1 + 2?", store=False, generate=False)
            while (event := await connection.recv()).type != "response.completed":
                assert event.type != "error"
            assert (event.response.output, event.response.status) == ([], "completed")
            assert not gateway.model_requests
            await server.received("tools/list")
            before = event.response.id
            await connection.response.create(model=MODEL, input="Well?", store=False, previous_response_id=before)
            while (event := await connection.recv()).type != "response.completed":
                assert event.type != "error"
            assert event.response.output_text == "It is 3."
        assert [message["content"] for message in gateway.model_requests[0]["messages"]] == ["1 + 2?", "Well?"]


@async_test(30)
async def test_closing_a_websocket_cancels_its_run_at_the_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        async with connect(_address(gateway)) as socket:
            await socket.send(orjson.dumps({"type": "response.create", "model": MODEL, "input": "Wait"}).decode())
            await server.received("tools/call", name="slow")
        await server.received("notifications/cancelled")


@async_test(30)
async def test_a_websocket_is_closed_at_its_time_limit_with_the_reason(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits={"socket_seconds": 0.01}) as gateway, connect(_address(gateway)) as socket:
        error = orjson.loads(await socket.recv())
        assert error["error"]["code"] == "websocket_connection_limit_reached"
        await socket.wait_closed()


@async_test(30)
async def test_closing_a_websocket_with_a_full_message_queue_cancels_its_run(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        async with connect(_address(gateway)) as socket:
            message = orjson.dumps({"type": "response.create", "model": MODEL, "input": "Wait"}).decode()
            await socket.send(message)
            await server.received("tools/call", name="slow")
            for _ in range(MAX_QUEUED_MESSAGES + 1):
                await socket.send(message)
            while "status" not in (error := orjson.loads(await socket.recv())):
                pass
            assert not contract_problems("WebSocketErrorEvent", error)
            assert (error["status"], error["error"]["code"]) == (429, "too_many_messages")
        await server.received("notifications/cancelled")
        assert len(gateway.model_requests) == 1


@async_test(60)
async def test_clients_that_disconnect_during_a_stream_cause_no_error_in_the_log(tmp_path: Path) -> None:
    async with (
        ScriptedModel(lambda _: say("word " * 500), chunk=2).serve() as model,
        run_gateway_process(write_gateway_file(tmp_path, model.url)) as served,
    ):

        async def leave() -> None:
            address = served.url.replace("http", "ws", 1) + "/v1/responses"
            socket = await connect(address, close_timeout=0.1)  # its queue is full, so it reads no close frame
            await socket.send(orjson.dumps({"type": "response.create", "model": MODEL, "input": "Talk"}).decode())
            for _ in range(20):
                await socket.recv()
            await socket.close()

        for _ in range(3):
            await asyncio.gather(*[leave() for _ in range(10)])
        assert (await served.create_response("Still there?"))[0] == 200
        served.stop()
        assert await served.wait_exit() == 0
    assert not [line for line in served.stderr_lines if "ERROR" in line or "Traceback" in line]
