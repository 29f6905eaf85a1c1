"""A client that sends its whole history again finds the calls that it never saw: each runs once, and has one output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aio import aio
from gateway.conversing import ASKING, DECLARED, GET_TIME, MIXED, ask, noon, told, types, yes
from gateway.stand import MODEL, serving

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GO = {"role": "user", "content": "Go"}
THANKS = {"role": "user", "content": "Thanks"}
BOTH = ("add", "3"), ("get_time", "noon")


def bare(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls as clients write them that keep no ids of items."""
    keys = ("type", "call_id", "name", "arguments")
    return [{key: item[key] for key in keys} if item["type"] == "function_call" else item for item in items]


@pytest.mark.proves("D-23", "D-25", "D-16")
@pytest.mark.parametrize("tools", [(GET_TIME,), (GET_TIME, DECLARED)], ids=["portable", "declared"])
@pytest.mark.parametrize("has_ids", [True, False])
@aio(30)
async def test_a_call_that_waited_runs_when_the_client_sends_everything_again(
    tmp_path: Path, tools: tuple[dict[str, Any], ...], has_ids: bool
) -> None:
    model = ScriptedModel(MIXED, say("3, at noon."), say("Bye."), say("Bye."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, [GO], *tools)
        assert first["status"] == "requires_action"
        shown = first["output"] if has_ids else bare(first["output"])
        given = [GO, *shown, noon(first)]
        second = await ask(stand, given, *tools)
        assert types(second)[-1] == "message"
        assert told(stand) == ["Go", ["add", "get_time"], *BOTH]
        await ask(stand, [*given, *second["output"], THANKS], *tools)
        lines = told(stand)
        assert (lines[0], lines[-2:]) == ("Go", ["3, at noon.", "Thanks"])
        assert sorted(line for line in lines if isinstance(line, tuple)) == list(BOTH)
        assert len(server.calls()) == 1
        await ask(stand, "Thanks", *tools, previous_response_id=second["id"])
        assert told(stand) == ["Go", ["add", "get_time"], *BOTH, "3, at noon.", "Thanks"]


@pytest.mark.proves("D-23", "D-25", "D-16")
@aio(30)
async def test_the_same_history_sent_twice_has_its_call_run_once_and_both_hear_the_result(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED, say("3, at noon."), say("3, at noon."), say("3, at noon."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, [GO])
        given = [GO, *first["output"], noon(first)]
        for more in ({"store": True}, {"store": False}, {"background": True}):
            answer = await ask(stand, given, **more)
            await stand.stream(f"/v1/responses/{answer['id']}?stream=true") if "background" in more else None
            assert told(stand) == ["Go", ["add", "get_time"], *BOTH]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-16")
@aio(30)
async def test_what_came_of_a_call_is_not_made_up_where_nobody_kept_it(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED, say("3, at noon."), say("I see."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, [GO])
        given = [GO, *first["output"], noon(first)]
        await ask(stand, given, store=False)
        await ask(stand, given, store=False)
        assert told(stand)[:2] == ["Go", ["add", "get_time"]]
        words = dict(told(stand)[2:])
        assert words["get_time"] == "noon"
        assert "What came of it is not known here" in words["add"]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-26")
@pytest.mark.parametrize("is_approved", [True, False])
@aio(30)
async def test_a_turn_with_all_three_kinds_of_calls_is_sent_again(tmp_path: Path, is_approved: bool) -> None:
    model = ScriptedModel([call("echo", text="hi"), *MIXED], say("Done."), say("Bye."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        tools = (GET_TIME, ASKING)
        first = await ask(stand, [GO], *tools)
        assert types(first)[1:] == ["function_call", "mcp_approval_request"]
        given = [GO, *first["output"], {**yes(first), "approve": is_approved}, noon(first)]
        second = await ask(stand, given, *tools)
        assert types(second) == ["mcp_call", *(["mcp_call"] if is_approved else []), "message"]
        assert told(stand)[:2] == ["Go", ["echo", "add", "get_time"]]
        words = dict(told(stand)[2:])
        assert (words["echo"], words["get_time"]) == ("hi", "noon")
        assert words["add"] == "3" if is_approved else "did not approve" in words["add"]
        await ask(stand, [*given, *second["output"], THANKS], *tools)
        names = [line[0] for line in told(stand) if isinstance(line, tuple)]
        assert sorted(names) == ["add", "echo", "get_time"]
        assert [one.params["name"] for one in server.calls()] == ["echo", *(["add"] if is_approved else [])]


@pytest.mark.proves("D-23", "D-29")
@aio(30)
async def test_another_s_call_of_the_same_id_brings_nothing_back(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED, say("Noon."))
    keys = ("alice", "bob")
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}, keys=keys) as stand:
        body = {"model": MODEL, "input": [GO], "tools": [GET_TIME]}
        _, first = await stand.send("POST", "/v1/responses", body, key="alice")
        body["input"] = [GO, *first["output"], noon(first)]
        code, _ = await stand.send("POST", "/v1/responses", body, key="bob")
        assert (code, told(stand)) == (200, ["Go", ["get_time"], ("get_time", "noon")])
        assert not server.calls()


@pytest.mark.proves("D-23")
@aio(30)
async def test_a_call_that_only_looks_like_one_that_paused_brings_nothing_back(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED, say("Noon."), say("Noon."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        first = await ask(stand, [GO])
        (called,) = first["output"]
        for other in ({**called, "id": "fc_other"}, {**bare([called])[0], "arguments": '{"zone": "UTC"}'}):
            await ask(stand, [GO, other, noon(first)])
            assert told(stand) == ["Go", ["get_time"], ("get_time", "noon")]
        assert not server.calls()


@pytest.mark.proves("D-23", "D-26", "D-25")
@aio(30)
async def test_of_a_turn_that_nobody_kept_each_call_has_its_output_before_the_next_one_is_made(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="hi"), *MIXED], say("Done."), say("Bye."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        tools = (GET_TIME, ASKING)
        first = await ask(stand, [GO], *tools, store=False)
        assert types(first)[1:] == ["function_call", "mcp_call", "mcp_approval_request"]
        given = [GO, *first["output"], noon(first), yes(first)]
        second = await ask(stand, given, *tools, store=False)
        calls = ["Go", ["get_time", "echo"], ("get_time", "noon"), ("echo", "hi"), ["add"], ("add", "3")]
        assert told(stand) == calls
        await ask(stand, [*given, *second["output"], THANKS], *tools, store=False)
        assert told(stand) == [*calls, "Done.", "Thanks"]
        assert len(server.calls()) == 2
