"""A client that sends its whole history again: each pending call runs once and has one output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GO = {"role": "user", "content": "Go"}
THANKS = {"role": "user", "content": "Thanks"}
BOTH = ("add", "3"), ("get_time", "noon")


def bare(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls without item ids, as some clients send them."""
    keys = ("type", "call_id", "name", "arguments")
    return [{key: item[key] for key in keys} if item["type"] == "function_call" else item for item in items]


@pytest.mark.proves("D-23", "D-25", "D-16")
@pytest.mark.parametrize("tools", [(GET_TIME,), (GET_TIME, DECLARED_SERVER)], ids=["portable", "declared"])
@pytest.mark.parametrize("has_ids", [True, False])
@async_test(30)
async def test_a_pending_call_runs_when_the_client_sends_its_whole_history(
    tmp_path: Path, tools: tuple[dict[str, Any], ...], has_ids: bool
) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("Bye."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await create_response(gateway, [GO], *tools)
        assert first["status"] == "requires_action"
        shown = first["output"] if has_ids else bare(first["output"])
        items = [GO, *shown, answer_get_time(first)]
        second = await create_response(gateway, items, *tools)
        assert output_types(second)[-1] == "message"
        assert last_model_messages(gateway) == ["Go", ["add", "get_time"], *BOTH]
        await create_response(gateway, [*items, *second["output"], THANKS], *tools)
        lines = last_model_messages(gateway)
        assert (lines[0], lines[-2:]) == ("Go", ["3, at noon.", "Thanks"])
        assert sorted(line for line in lines if isinstance(line, tuple)) == list(BOTH)
        assert len(server.calls()) == 1
        await create_response(gateway, "Thanks", *tools, previous_response_id=second["id"])
        assert last_model_messages(gateway) == ["Go", ["add", "get_time"], *BOTH, "3, at noon.", "Thanks"]


@pytest.mark.proves("D-23", "D-25", "D-16")
@async_test(30)
async def test_a_history_sent_twice_runs_its_call_once_and_both_responses_have_the_result(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("3, at noon."), say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await create_response(gateway, [GO])
        items = [GO, *first["output"], answer_get_time(first)]
        for more in ({"store": True}, {"store": False}, {"background": True}):
            answer = await create_response(gateway, items, **more)
            await gateway.stream(f"/v1/responses/{answer['id']}?stream=true") if "background" in more else None
            assert last_model_messages(gateway) == ["Go", ["add", "get_time"], *BOTH]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-16")
@async_test(30)
async def test_the_output_of_a_repeated_unstored_call_says_that_its_result_is_unknown(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("I see."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await create_response(gateway, [GO])
        items = [GO, *first["output"], answer_get_time(first)]
        await create_response(gateway, items, store=False)
        await create_response(gateway, items, store=False)
        assert last_model_messages(gateway)[:2] == ["Go", ["add", "get_time"]]
        outputs = dict(last_model_messages(gateway)[2:])
        assert outputs["get_time"] == "noon"
        assert "What came of it is not known here" in outputs["add"]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-26")
@pytest.mark.parametrize("is_approved", [True, False])
@async_test(30)
async def test_a_resent_turn_with_all_three_kinds_of_calls_runs_each_allowed_call_once(
    tmp_path: Path, is_approved: bool
) -> None:
    model = ScriptedModel([call("echo", text="hi"), *MIXED_CALLS], say("Done."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        tools = (GET_TIME, APPROVAL_SERVER)
        first = await create_response(gateway, [GO], *tools)
        assert output_types(first)[1:] == ["function_call", "mcp_approval_request"]
        items = [GO, *first["output"], {**approve_call(first), "approve": is_approved}, answer_get_time(first)]
        second = await create_response(gateway, items, *tools)
        assert output_types(second) == ["mcp_call", *(["mcp_call"] if is_approved else []), "message"]
        assert last_model_messages(gateway)[:2] == ["Go", ["echo", "add", "get_time"]]
        outputs = dict(last_model_messages(gateway)[2:])
        assert (outputs["echo"], outputs["get_time"]) == ("hi", "noon")
        assert outputs["add"] == "3" if is_approved else "did not approve" in outputs["add"]
        await create_response(gateway, [*items, *second["output"], THANKS], *tools)
        names = [line[0] for line in last_model_messages(gateway) if isinstance(line, tuple)]
        assert sorted(names) == ["add", "echo", "get_time"]
        assert [one.params["name"] for one in server.calls()] == ["echo", *(["add"] if is_approved else [])]


@pytest.mark.proves("D-23", "D-29")
@async_test(30)
async def test_a_call_id_of_another_caller_restores_no_pending_call(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("Noon."))
    keys = ("alice", "bob")
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}, keys=keys) as gateway:
        body = {"model": MODEL, "input": [GO], "tools": [GET_TIME]}
        _, first = await gateway.send("POST", "/v1/responses", body, key="alice")
        body["input"] = [GO, *first["output"], answer_get_time(first)]
        code, _ = await gateway.send("POST", "/v1/responses", body, key="bob")
        assert (code, last_model_messages(gateway)) == (200, ["Go", ["get_time"], ("get_time", "noon")])
        assert not server.calls()


@pytest.mark.proves("D-23")
@async_test(30)
async def test_a_call_that_differs_from_the_paused_one_restores_no_pending_call(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("Noon."), say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await create_response(gateway, [GO])
        (called,) = first["output"]
        for other in ({**called, "id": "fc_other"}, {**bare([called])[0], "arguments": '{"zone": "UTC"}'}):
            await create_response(gateway, [GO, other, answer_get_time(first)])
            assert last_model_messages(gateway) == ["Go", ["get_time"], ("get_time", "noon")]
        assert not server.calls()


@pytest.mark.proves("D-23", "D-26", "D-25")
@async_test(30)
async def test_in_a_resent_unstored_turn_every_call_has_its_output_before_the_next_call(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="hi"), *MIXED_CALLS], say("Done."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        tools = (GET_TIME, APPROVAL_SERVER)
        first = await create_response(gateway, [GO], *tools, store=False)
        assert output_types(first)[1:] == ["function_call", "mcp_call", "mcp_approval_request"]
        items = [GO, *first["output"], answer_get_time(first), approve_call(first)]
        second = await create_response(gateway, items, *tools, store=False)
        calls = ["Go", ["echo", "get_time"], ("echo", "hi"), ("get_time", "noon"), ["add"], ("add", "3")]
        assert last_model_messages(gateway) == calls
        await create_response(gateway, [*items, *second["output"], THANKS], *tools, store=False)
        assert last_model_messages(gateway) == [*calls, "Done.", "Thanks"]
        assert len(server.calls()) == 2
