"""An unstored turn that pauses on a WebSocket and is continued elsewhere: no call is lost, none runs twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.conversation_client import (
    APPROVAL_SERVER,
    DECLARED_SERVER,
    GET_TIME,
    MIXED_CALLS,
    answer_get_time,
    approve_call,
    create_response,
    last_model_messages,
    output_types,
)
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from websockets.asyncio.client import ClientConnection, connect

from holodeck.gateway.continuation.memory import PENDING_CALL_SECONDS, PendingCallCache
from holodeck.gateway.continuation.pending_calls import PendingCalls
from holodeck.models.items import FunctionCall
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import call_raw

GO = {"role": "user", "content": "Go"}
THANKS = {"role": "user", "content": "Thanks"}
BOTH = ("add", "3"), ("get_time", "noon")
SUM = call_raw("add", '{"a": 1, "b": 2}')
NAMED = [SUM, call_raw("get_time", "{}", call_id="call_Zk3mJ81pQwXt")]
NUMBERED = [SUM, call_raw("get_time", "{}", call_id="functions.get_time:0")]


def _open(gateway: RunningGateway) -> connect:
    return connect(gateway.url.replace("http", "ws", 1) + "/v1/responses")


async def _turn(socket: ClientConnection, items: Any, *tools: dict[str, Any], **body: Any) -> dict[str, Any]:
    """The response to a message, or the error instead of one. Nothing is stored."""
    message = {"type": "response.create", "model": MODEL, "input": items, "tools": tools or (GET_TIME,), "store": False}
    await socket.send(orjson.dumps({**message, **body}).decode())
    while True:
        event: dict[str, Any] = orjson.loads(await socket.recv())
        if event["type"] == "response.completed":
            return dict(event["response"])
        if "status" in event:
            return event


def _bare(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in item.items() if key != "id"} for item in items]


@pytest.mark.proves("D-23", "D-25", "D-16")
@pytest.mark.parametrize("tools", [(GET_TIME,), (GET_TIME, DECLARED_SERVER)], ids=["portable", "declared"])
@pytest.mark.parametrize("way", ["socket", "http"])
@async_test(30)
async def test_a_pending_call_runs_once_when_the_client_sends_its_whole_history(
    tmp_path: Path, tools: tuple[dict[str, Any], ...], way: str
) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("Again."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        async with _open(gateway) as socket:
            first = await _turn(socket, [GO], *tools)
        items = [GO, *first["output"], answer_get_time(first)]
        if way == "socket":
            async with _open(gateway) as socket:
                second = await _turn(socket, items, *tools)
        else:
            second = await create_response(gateway, items, *tools, store=False)
        assert output_types(second)[-1] == "message"
        assert last_model_messages(gateway) == ["Go", ["add", "get_time"], *BOTH]
        await create_response(gateway, items, *tools, store=False)
        assert "What came of it is not known here" in dict(last_model_messages(gateway)[2:])["add"]
        await create_response(gateway, [*items, *second["output"], THANKS], *tools, store=False)
        assert sorted(line for line in last_model_messages(gateway) if isinstance(line, tuple)) == list(BOTH)
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-16")
@async_test(30)
async def test_a_call_that_a_closed_websocket_interrupted_is_not_repeated_and_its_output_says_so(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([call("slow", seconds=60), call("get_time")], say("I see."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        async with _open(gateway) as socket:
            first = await _turn(socket, [GO])
            message = {"type": "response.create", "model": MODEL, "store": False, "tools": [GET_TIME]}
            message |= {"input": [answer_get_time(first)], "previous_response_id": first["id"]}
            await socket.send(orjson.dumps(message).decode())
            await server.received("tools/call", name="slow")
        await server.received("notifications/cancelled")
        async with _open(gateway) as socket:
            await _turn(socket, [GO, *first["output"], answer_get_time(first)])
        assert "It is not run again" in dict(last_model_messages(gateway)[2:])["slow"]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-25")
@pytest.mark.parametrize("has_ids", [True, False])
@async_test(30)
async def test_after_a_restart_an_unstored_paused_turn_is_refused_unless_its_results_are_in_the_history(
    tmp_path: Path, has_ids: bool
) -> None:
    model = ScriptedModel(NAMED, say("3, at noon."))
    async with FaultyMCPServer() as server:
        async with run_gateway(tmp_path, model, mcp={"sums": server}) as gateway, _open(gateway) as socket:
            first = await _turn(socket, [GO], GET_TIME, DECLARED_SERVER)
            shown = first["output"] if has_ids else [*first["output"][:-1], *_bare(first["output"][-1:])]
            items = [GO, *shown, answer_get_time(first)]
            more = {"previous_response_id": first["id"]}
            second = await _turn(socket, [answer_get_time(first)], GET_TIME, DECLARED_SERVER, **more)
            assert output_types(second) == ["mcp_call", "message"]
        async with run_gateway(tmp_path, ScriptedModel(say("Bye.")), mcp={"sums": server}) as gateway:
            body = {"model": MODEL, "input": items, "tools": [GET_TIME, DECLARED_SERVER], "store": False}
            code, refused = await gateway.send("POST", "/v1/responses", body)
            assert (code, refused["error"]["code"], refused["error"]["param"]) == (400, "paused_turn_gone", "input")
            assert first["id"] in refused["error"]["message"]
            async with _open(gateway) as socket:
                assert (await _turn(socket, items, GET_TIME))["error"]["code"] == "paused_turn_gone"
                last = await _turn(socket, [*items, *second["output"], THANKS], GET_TIME, DECLARED_SERVER)
            assert output_types(last)[-1] == "message"
            assert sorted(line for line in last_model_messages(gateway) if isinstance(line, tuple)) == list(BOTH)
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23")
@async_test(30)
async def test_a_call_that_shares_only_the_call_id_of_a_lost_turn_is_accepted(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        async with (
            run_gateway(tmp_path, ScriptedModel(NUMBERED), mcp={"sums": server}) as gateway,
            _open(gateway) as socket,
        ):
            first = await _turn(socket, [GO])
        model = ScriptedModel(lambda _: say("Noon."))
        async with run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
            (called,) = first["output"]
            for other in ({**called, "id": "fc_other"}, _bare([called])[0]):
                await create_response(gateway, [GO, other, answer_get_time(first)], store=False)
                assert last_model_messages(gateway) == ["Go", ["get_time"], ("get_time", "noon")]


@pytest.mark.proves("D-23", "D-28")
@async_test(30)
async def test_a_turn_whose_response_was_deleted_is_refused_when_it_is_sent_again(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, [call("get_time")], say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        for code in (400, 200):  # the second one has no pending call of the gateway
            first = await create_response(gateway, [GO])
            await gateway.send("DELETE", f"/v1/responses/{first['id']}")
            body = {"model": MODEL, "input": [GO, *first["output"], answer_get_time(first)], "tools": [GET_TIME]}
            assert (await gateway.send("POST", "/v1/responses", body))[0] == code
        assert not server.calls()


@pytest.mark.proves("D-23", "D-26", "D-16")
@pytest.mark.parametrize("is_approved", [True, False])
@pytest.mark.parametrize("way", ["socket", "http"])
@async_test(30)
async def test_a_call_pending_beside_an_approval_runs_once_when_the_history_is_sent_again(
    tmp_path: Path, is_approved: bool, way: str
) -> None:
    model = ScriptedModel([call("echo", text="hi"), call("add", a=1, b=2)], say("Done."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        if way == "socket":
            async with _open(gateway) as socket:
                first = await _turn(socket, [GO], APPROVAL_SERVER)
        else:
            first = await create_response(gateway, [GO], APPROVAL_SERVER)
        assert output_types(first) == ["mcp_list_tools", "mcp_approval_request"]
        items = [GO, *first["output"], {**approve_call(first), "approve": is_approved}]
        second = await create_response(gateway, items, APPROVAL_SERVER)
        assert last_model_messages(gateway)[:2] == ["Go", ["echo", "add"]]
        outputs = dict(last_model_messages(gateway)[2:])
        assert outputs["echo"] == "hi"
        assert outputs["add"] == "3" if is_approved else "did not approve" in outputs["add"]
        await create_response(gateway, [*items, *second["output"], THANKS], APPROVAL_SERVER)
        assert sorted(line[0] for line in last_model_messages(gateway) if isinstance(line, tuple)) == ["add", "echo"]
        assert [one.params["name"] for one in server.calls()] == ["echo", *(["add"] if is_approved else [])]


def test_unstored_paused_turns_expire_by_age_and_by_size() -> None:
    now = 0.0
    unstored = PendingCallCache(lambda: now, max_bytes=1_000)
    for name in ("one", "two", "three"):
        pending = FunctionCall(call_id=f"call_{name}", name="f", arguments=f'{{"text": "{"x" * 300}"}}')
        unstored.store("alice", name, PendingCalls(calls=(pending,)))
    assert unstored.find("alice", "one") is None
    assert unstored.find("alice", "three") is not None
    assert unstored.find("bob", "three") is None
    now = PENDING_CALL_SECONDS + 1
    unstored.store("alice", "four", PendingCalls(calls=(pending,)))
    assert unstored.find("alice", "three") is None
    assert unstored.find("alice", "four") is not None
