"""Conversations with a paused turn: other requests are not locked out for ever, and no call runs twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.conversation_client import (
    APPROVAL_SERVER,
    GET_TIME,
    MIXED_CALLS,
    answer_get_time,
    approve_call,
    create_conversation,
    create_response,
    last_model_messages,
    output_types,
)
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GET_DATE = {**GET_TIME, "name": "get_date"}
UNKNOWN = "Whether the call took effect is unknown"


async def add(gateway: RunningGateway, here: dict[str, Any], *items: dict[str, Any]) -> None:
    status, answer = await gateway.send("POST", f"/v1/conversations/{here['conversation']}/items", {"items": items})
    assert status == 200, answer


async def lease(gateway: RunningGateway, here: dict[str, Any], response_id: str) -> None:
    """Lease the conversation for a response, as its request does before it starts."""
    store = gateway.service.store
    seen = await store.read_conversation(here["conversation"], "local", limit=100)
    assert seen is not None
    assert await store.lease_conversation(here["conversation"], "local", seen, response_id)


@pytest.mark.proves("D-23", "D-26")
@async_test
async def test_an_unanswered_approval_request_does_not_block_continuing_from_a_later_response(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("As you like."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        await create_response(gateway, "Go", APPROVAL_SERVER, **here)
        second = await create_response(gateway, "Never mind", APPROVAL_SERVER, **here)
        await create_response(gateway, "Bye", APPROVAL_SERVER, previous_response_id=second["id"])
        assert (last_model_messages(gateway)[-3:], server.calls()) == (["Never mind", "As you like.", "Bye"], [])


@pytest.mark.proves("D-23")
@async_test
async def test_an_approval_has_no_effect_after_the_client_abandons_the_paused_turn(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(MIXED_CALLS, say("As you like.")), mcp={"sums": server}) as gateway,
    ):
        here, tools = await create_conversation(gateway), (GET_TIME, APPROVAL_SERVER)
        await add(gateway, here, approve_call(await create_response(gateway, "Go", *tools, **here)))
        assert output_types(await create_response(gateway, "Never mind", *tools, **here)) == ["message"]
        assert not server.calls()


@pytest.mark.proves("D-23")
@async_test
async def test_a_deleted_pending_call_is_removed_and_the_others_of_its_turn_are_answered(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([*MIXED_CALLS, call("get_date")], say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here, tools = await create_conversation(gateway), (GET_TIME, GET_DATE)
        first = await create_response(gateway, "Go", *tools, **here)
        time, date = first["output"]
        await gateway.send("DELETE", f"/v1/conversations/{here['conversation']}/items/{date['id']}")
        await create_response(gateway, [answer_get_time({"output": [time]})], *tools, **here)
        assert last_model_messages(gateway)[:2] == ["Go", ["add", "get_time"]]
        assert set(last_model_messages(gateway)[2:]) == {("add", "3"), ("get_time", "noon")}


@pytest.mark.proves("D-23")
@async_test
async def test_a_call_id_can_be_reused_by_a_later_call(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Noted."))) as gateway:
        here = await create_conversation(gateway)
        for number in range(2):
            called = {"type": "function_call", "call_id": "call_0", "name": "get_time", "arguments": "{}"}
            output = {"type": "function_call_output", "call_id": "call_0", "output": f"{number} o'clock"}
            await create_response(gateway, [called, output, {"role": "user", "content": "So?"}], **here)
        assert [line for line in last_model_messages(gateway) if isinstance(line, tuple)] == [
            ("get_time", "0 o'clock"),
            ("get_time", "1 o'clock"),
        ]


@pytest.mark.proves("D-23", "D-16")
@async_test
async def test_a_failed_response_unlocks_its_conversation_and_its_claimed_calls_are_not_repeated(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(MIXED_CALLS, say("I shall look."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", **here)
        stored = await gateway.service.store.get(first["id"], "local")
        assert stored is not None
        await lease(gateway, here, "resp_dead")
        await gateway.service.store.save(replace(stored, id="resp_dead", status="failed"))
        await create_response(gateway, [answer_get_time(first)], **here)
        assert UNKNOWN in dict(last_model_messages(gateway)[2:])["add"]
        assert not server.calls()


@pytest.mark.proves("D-23")
@async_test
async def test_a_response_that_never_started_unlocks_its_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("I shall look."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", **here)
        await lease(gateway, here, "resp_left")
        assert output_types(await create_response(gateway, [answer_get_time(first)], **here))[-1] == "message"


@pytest.mark.proves("D-16", "D-26")
@async_test
async def test_an_approval_request_added_to_a_conversation_can_be_approved_once(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), lambda _: say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await create_response(gateway, "Go", APPROVAL_SERVER)
        here = await create_conversation(gateway)
        await add(gateway, here, {"role": "user", "content": "Go"}, first["output"][-1])
        body = {"model": MODEL, "input": [approve_call(first)], "tools": [APPROVAL_SERVER], **here}
        answers = await asyncio.gather(*(gateway.send("POST", "/v1/responses", body) for _ in range(4)))
        assert sorted(status for status, _ in answers) == [200, 400, 400, 400]
        assert len(server.calls()) == 1
