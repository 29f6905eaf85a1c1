"""Conversations in which a turn waits, and what others do there meanwhile: nobody is locked out, nothing runs twice."""

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


async def add(stand: RunningGateway, here: dict[str, Any], *items: dict[str, Any]) -> None:
    status, answer = await stand.send("POST", f"/v1/conversations/{here['conversation']}/items", {"items": items})
    assert status == 200, answer


async def take(stand: RunningGateway, here: dict[str, Any], response_id: str) -> None:
    """Take what waits for a response, as its request does before it begins."""
    store = stand.service.store
    seen = await store.read_conversation(here["conversation"], "local", limit=100)
    assert seen is not None
    assert await store.lease_conversation(here["conversation"], "local", seen, response_id)


@pytest.mark.proves("D-23", "D-26")
@async_test
async def test_a_request_for_approval_that_was_passed_over_is_no_obstacle_to_going_on_from_a_later_response(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("As you like."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        await create_response(stand, "Go", APPROVAL_SERVER, **here)
        second = await create_response(stand, "Never mind", APPROVAL_SERVER, **here)
        await create_response(stand, "Bye", APPROVAL_SERVER, previous_response_id=second["id"])
        assert (last_model_messages(stand)[-3:], server.calls()) == (["Never mind", "As you like.", "Bye"], [])


@pytest.mark.proves("D-23")
@async_test
async def test_an_approval_has_no_effect_after_the_client_abandons_the_paused_turn(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(MIXED_CALLS, say("As you like.")), mcp={"sums": server}) as stand,
    ):
        here, tools = await create_conversation(stand), (GET_TIME, APPROVAL_SERVER)
        await add(stand, here, approve_call(await create_response(stand, "Go", *tools, **here)))
        assert output_types(await create_response(stand, "Never mind", *tools, **here)) == ["message"]
        assert not server.calls()


@pytest.mark.proves("D-23")
@async_test
async def test_of_calls_that_wait_together_the_one_that_is_deleted_is_gone_and_the_others_are_answered(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([*MIXED_CALLS, call("get_date")], say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here, tools = await create_conversation(stand), (GET_TIME, GET_DATE)
        first = await create_response(stand, "Go", *tools, **here)
        time, date = first["output"]
        await stand.send("DELETE", f"/v1/conversations/{here['conversation']}/items/{date['id']}")
        await create_response(stand, [answer_get_time({"output": [time]})], *tools, **here)
        assert last_model_messages(stand)[:2] == ["Go", ["add", "get_time"]]
        assert set(last_model_messages(stand)[2:]) == {("add", "3"), ("get_time", "noon")}


@pytest.mark.proves("D-23")
@async_test
async def test_an_id_of_a_call_may_come_again_with_a_call_of_its_own(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Noted."))) as stand:
        here = await create_conversation(stand)
        for number in range(2):
            called = {"type": "function_call", "call_id": "call_0", "name": "get_time", "arguments": "{}"}
            output = {"type": "function_call_output", "call_id": "call_0", "output": f"{number} o'clock"}
            await create_response(stand, [called, output, {"role": "user", "content": "So?"}], **here)
        assert [line for line in last_model_messages(stand) if isinstance(line, tuple)] == [
            ("get_time", "0 o'clock"),
            ("get_time", "1 o'clock"),
        ]


@pytest.mark.proves("D-23", "D-16")
@async_test
async def test_a_failed_response_unlocks_its_conversation_and_its_claimed_calls_are_not_repeated(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(MIXED_CALLS, say("I shall look."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", **here)
        kept = await stand.service.store.get(first["id"], "local")
        assert kept is not None
        await take(stand, here, "resp_dead")
        await stand.service.store.save(replace(kept, id="resp_dead", status="failed"))
        await create_response(stand, [answer_get_time(first)], **here)
        assert UNKNOWN in dict(last_model_messages(stand)[2:])["add"]
        assert not server.calls()


@pytest.mark.proves("D-23")
@async_test
async def test_a_response_that_never_started_unlocks_its_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("I shall look."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", **here)
        await take(stand, here, "resp_left")
        assert output_types(await create_response(stand, [answer_get_time(first)], **here))[-1] == "message"


@pytest.mark.proves("D-16", "D-26")
@async_test
async def test_a_request_for_approval_that_was_brought_into_a_conversation_is_granted_once(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), lambda _: say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await create_response(stand, "Go", APPROVAL_SERVER)
        here = await create_conversation(stand)
        await add(stand, here, {"role": "user", "content": "Go"}, first["output"][-1])
        body = {"model": MODEL, "input": [approve_call(first)], "tools": [APPROVAL_SERVER], **here}
        answers = await asyncio.gather(*(stand.send("POST", "/v1/responses", body) for _ in range(4)))
        assert sorted(status for status, _ in answers) == [200, 400, 400, 400]
        assert len(server.calls()) == 1
