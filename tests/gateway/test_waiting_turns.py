"""Conversations in which a turn waits, and what others do there meanwhile: nobody is locked out, nothing runs twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aio import aio
from gateway.conversing import ASKING, GET_TIME, MIXED, ask, begin, noon, told, types, yes
from gateway.stand import MODEL, Stand, serving

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GET_DATE = {**GET_TIME, "name": "get_date"}
UNKNOWN = "Whether the call took effect is unknown"


async def add(stand: Stand, here: dict[str, Any], *items: dict[str, Any]) -> None:
    status, answer = await stand.send("POST", f"/v1/conversations/{here['conversation']}/items", {"items": items})
    assert status == 200, answer


async def take(stand: Stand, here: dict[str, Any], response_id: str) -> None:
    """Take what waits for a response, as its request does before it begins."""
    store = stand.service.store
    seen = await store.thread(here["conversation"], "local", limit=100)
    assert seen is not None
    assert await store.take(here["conversation"], "local", seen, response_id)


@pytest.mark.proves("D-23", "D-26")
@aio
async def test_a_request_for_approval_that_was_passed_over_is_no_obstacle_to_going_on_from_a_later_response(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("As you like."), say("Bye."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        here = await begin(stand)
        await ask(stand, "Go", ASKING, **here)
        second = await ask(stand, "Never mind", ASKING, **here)
        await ask(stand, "Bye", ASKING, previous_response_id=second["id"])
        assert (told(stand)[-3:], server.calls()) == (["Never mind", "As you like.", "Bye"], [])


@pytest.mark.proves("D-23")
@aio
async def test_an_approval_is_nothing_any_more_when_the_client_leaves_its_turn_behind(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        serving(tmp_path, ScriptedModel(MIXED, say("As you like.")), mcp={"sums": server}) as stand,
    ):
        here, tools = await begin(stand), (GET_TIME, ASKING)
        await add(stand, here, yes(await ask(stand, "Go", *tools, **here)))
        assert types(await ask(stand, "Never mind", *tools, **here)) == ["message"]
        assert not server.calls()


@pytest.mark.proves("D-23")
@aio
async def test_of_calls_that_wait_together_the_one_that_is_deleted_is_gone_and_the_others_are_answered(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([*MIXED, call("get_date")], say("3, at noon."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        here, tools = await begin(stand), (GET_TIME, GET_DATE)
        first = await ask(stand, "Go", *tools, **here)
        time, date = first["output"]
        await stand.send("DELETE", f"/v1/conversations/{here['conversation']}/items/{date['id']}")
        await ask(stand, [noon({"output": [time]})], *tools, **here)
        assert told(stand)[:2] == ["Go", ["add", "get_time"]]
        assert set(told(stand)[2:]) == {("add", "3"), ("get_time", "noon")}


@pytest.mark.proves("D-23")
@aio
async def test_an_id_of_a_call_may_come_again_with_a_call_of_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedModel(lambda _: say("Noted."))) as stand:
        here = await begin(stand)
        for number in range(2):
            called = {"type": "function_call", "call_id": "call_0", "name": "get_time", "arguments": "{}"}
            output = {"type": "function_call_output", "call_id": "call_0", "output": f"{number} o'clock"}
            await ask(stand, [called, output, {"role": "user", "content": "So?"}], **here)
        assert [line for line in told(stand) if isinstance(line, tuple)] == [
            ("get_time", "0 o'clock"),
            ("get_time", "1 o'clock"),
        ]


@pytest.mark.proves("D-23", "D-16")
@aio
async def test_a_response_that_took_what_waits_and_failed_locks_nobody_out_and_its_calls_are_not_made_again(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(MIXED, say("I shall look."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        here = await begin(stand)
        first = await ask(stand, "Go", **here)
        kept = await stand.service.store.get(first["id"], "local")
        assert kept is not None
        await take(stand, here, "resp_dead")
        await stand.service.store.save(replace(kept, id="resp_dead", status="failed"))
        await ask(stand, [noon(first)], **here)
        assert UNKNOWN in dict(told(stand)[2:])["add"]
        assert not server.calls()


@pytest.mark.proves("D-23")
@aio
async def test_a_response_that_took_what_waits_and_never_began_locks_nobody_out(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED, say("I shall look."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        here = await begin(stand)
        first = await ask(stand, "Go", **here)
        await take(stand, here, "resp_left")
        assert types(await ask(stand, [noon(first)], **here))[-1] == "message"


@pytest.mark.proves("D-16", "D-26")
@aio
async def test_a_request_for_approval_that_was_brought_into_a_conversation_is_granted_once(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), lambda _: say("3."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, "Go", ASKING)
        here = await begin(stand)
        await add(stand, here, {"role": "user", "content": "Go"}, first["output"][-1])
        body = {"model": MODEL, "input": [yes(first)], "tools": [ASKING], **here}
        answers = await asyncio.gather(*(stand.send("POST", "/v1/responses", body) for _ in range(4)))
        assert sorted(status for status, _ in answers) == [200, 400, 400, 400]
        assert len(server.calls()) == 1
