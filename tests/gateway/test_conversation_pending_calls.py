"""Calls that wait in a conversation are gone on with there: once, in order, by whoever comes first, also later."""

from __future__ import annotations

import asyncio
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
    conversation_item_types,
    create_conversation,
    create_response,
    last_model_messages,
    output_types,
)
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from websockets.asyncio.client import connect

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.script import status as failing

UNANSWERED = "Error: The client went on without an answer to this call."
UNDECIDED = "Error: The person went on without approving this call; it was not run."


async def _refused(stand: RunningGateway, given: Any, *tools: dict[str, Any], **body: Any) -> str:
    """The code of a request that is answered with 400."""
    body = {"model": MODEL, "input": given, "tools": tools or (GET_TIME,), **body}
    status, answer = await stand.send("POST", "/v1/responses", body)
    assert status == 400, answer
    return str(answer["error"]["code"])


@pytest.mark.proves("D-23", "D-26")
@pytest.mark.parametrize("stream", [False, True])
@async_test(30)
async def test_a_mixed_turn_is_gone_on_with_in_its_conversation(tmp_path: Path, stream: bool) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", **here)
        assert (first["status"], output_types(first)) == ("requires_action", ["function_call"])
        assert (await conversation_item_types(stand, here), server.calls()) == (["message", "function_call"], [])
        if stream:
            body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], "stream": True, **here}
            second = (await stand.stream("/v1/responses", body))[-1]["response"]
        else:
            second = await create_response(stand, [answer_get_time(first)], **here)
        assert output_types(second) == ["mcp_call", "message"]
        assert [one.params["arguments"] for one in server.calls()] == [{"a": 1, "b": 2}]
        assert last_model_messages(stand) == ["Go", ["add", "get_time"], ("add", "3"), ("get_time", "noon")]
        assert await conversation_item_types(stand, here) == [
            *["message", "function_call"],
            *["function_call_output", "mcp_call", "message"],
        ]
        await create_response(stand, "Thanks", **here)
        assert last_model_messages(stand)[-2:] == ["3, at noon.", "Thanks"]
        assert {line for line in last_model_messages(stand) if isinstance(line, tuple)} == {
            ("get_time", "noon"),
            ("add", "3"),
        }
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-26")
@async_test(30)
async def test_a_client_that_declares_the_server_finds_its_call_in_the_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here, tools = await create_conversation(stand), (GET_TIME, DECLARED_SERVER)
        first = await create_response(stand, "Go", *tools, **here)
        assert output_types(first) == ["mcp_list_tools", "function_call"]
        second = await create_response(stand, [answer_get_time(first)], *tools, **here)
        assert output_types(second) == ["mcp_call", "message"]
        assert (await conversation_item_types(stand, here))[1:] == [
            *output_types(first),
            "function_call_output",
            *output_types(second),
        ]
        await create_response(stand, "Thanks", *tools, **here)
        assert {line for line in last_model_messages(stand) if isinstance(line, tuple)} == {
            ("get_time", "noon"),
            ("add", "3"),
        }
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-26")
@pytest.mark.parametrize("is_approved", [True, False])
@async_test(30)
async def test_a_turn_that_waits_for_a_client_and_a_person_is_gone_on_with_when_both_have_answered(
    tmp_path: Path, is_approved: bool
) -> None:
    model = ScriptedModel([call("echo", text="hi"), *MIXED_CALLS], say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here, tools = await create_conversation(stand), (GET_TIME, APPROVAL_SERVER)
        first = await create_response(stand, "Go", *tools, **here)
        assert (first["status"], output_types(first)[1:]) == (
            "requires_action",
            ["function_call", "mcp_approval_request"],
        )
        assert await _refused(stand, [approve_call(first)], *tools, **here) == "missing_tool_output"
        assert not server.calls()
        second = await create_response(
            stand, [{**approve_call(first), "approve": is_approved}, answer_get_time(first)], *tools, **here
        )
        assert output_types(second) == ["mcp_call", *(["mcp_call"] if is_approved else []), "message"]
        assert len(server.calls("echo")) == 1
        assert len(server.calls("add")) == is_approved
        assert last_model_messages(stand)[:2] == ["Go", ["echo", "add", "get_time"]]
        words = dict(line for line in last_model_messages(stand)[2:])
        assert (words["echo"], words["get_time"]) == ("hi", "noon")
        assert words["add"] == "3" if is_approved else "did not approve" in words["add"]
        assert await _refused(stand, [approve_call(first)], *tools, **here) == "approval_request_not_found"


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_a_call_that_waited_beside_one_to_approve_runs_with_it(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="hi"), call("add", a=1, b=2)], say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", APPROVAL_SERVER, **here)
        assert (first["status"], output_types(first)[1:], server.calls()) == ("completed", ["mcp_approval_request"], [])
        assert output_types(await create_response(stand, [approve_call(first)], APPROVAL_SERVER, **here)) == [
            "mcp_call",
            "mcp_call",
            "message",
        ]
        assert last_model_messages(stand) == ["Go", ["echo", "add"], ("echo", "hi"), ("add", "3")]


@pytest.mark.proves("D-23")
@pytest.mark.parametrize("tools", [(GET_TIME,), (GET_TIME, APPROVAL_SERVER)], ids=["mixed", "approval"])
@async_test(30)
async def test_a_client_that_says_something_else_leaves_its_calls_behind(
    tmp_path: Path, tools: tuple[dict[str, Any], ...]
) -> None:
    model = ScriptedModel(MIXED_CALLS, say("As you like."), say("Bye."), say("Noon, then."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", *tools, **here)
        assert output_types(await create_response(stand, "Never mind", *tools, **here)) == ["message"]
        is_asked = APPROVAL_SERVER in tools
        left: list[Any] = [("get_time", UNANSWERED), *([("add", UNDECIDED)] if is_asked else [])]
        calls = ["add", "get_time"] if is_asked else ["get_time"]
        assert (last_model_messages(stand)[:2], set(last_model_messages(stand)[2:-1])) == (["Go", calls], set(left))
        await create_response(stand, "Bye", *tools, **here)
        assert {line for line in last_model_messages(stand) if isinstance(line, tuple)} == set(left)
        if not is_asked:
            await create_response(stand, [answer_get_time(first)], *tools, **here)
            assert ("get_time", "noon") in last_model_messages(stand)
        assert not server.calls()


@pytest.mark.proves("D-23")
@async_test(30)
async def test_an_unanswered_function_does_not_end_its_conversation(tmp_path: Path) -> None:
    model = ScriptedModel([call("get_time"), call("get_time")], say("As you like."), say("Bye."))
    async with run_gateway(tmp_path, model) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", **here)
        one = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "noon"}
        more = {"role": "user", "content": "And?"}
        assert await _refused(stand, [one, more], **here) == "missing_tool_output"
        await create_response(stand, "Never mind", **here)
        await create_response(stand, "Bye", **here)
        assert last_model_messages(stand)[:2] == ["Go", ["get_time", "get_time"]]
        assert last_model_messages(stand)[2:] == [*[("get_time", UNANSWERED)] * 2, "Never mind", "As you like.", "Bye"]


@pytest.mark.proves("D-23", "D-16")
@async_test(30)
async def test_of_concurrent_requests_that_continue_a_paused_turn_one_runs_and_the_others_get_conversation_locked(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    model = ScriptedModel(MIXED_CALLS, [wait(go), say("3, at noon.")], say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", **here)
        body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], **here}
        racing = [asyncio.create_task(stand.send("POST", "/v1/responses", body)) for _ in range(4)]
        lost: set[asyncio.Task[tuple[int, Any]]] = set()
        while len(lost) < len(racing) - 1:
            lost, _ = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        answers = [task.result() for task in lost]
        assert [(status, error["error"]["code"]) for status, error in answers] == [(400, "conversation_locked")] * 3
        assert "resp_" in answers[0][1]["error"]["message"]
        assert await _refused(stand, "Something else", **here) == "conversation_locked"
        go.set()
        (won,) = set(racing) - lost
        assert (await won)[0] == 200
        assert await _refused(stand, [answer_get_time(first)], **here) == "duplicate_tool_output"
        await create_response(stand, "Thanks", **here)
        assert last_model_messages(stand)[-2:] == ["3, at noon.", "Thanks"]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23")
@async_test(30)
async def test_pending_calls_survive_the_end_of_a_response_that_started_earlier(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([wait(go), say("Hello.")], MIXED_CALLS, say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        other = asyncio.create_task(create_response(stand, "Hello?", **here))
        while not stand.model_requests:  # noqa: ASYNC110 - until the model has it
            await asyncio.sleep(0)
        first = await create_response(stand, "Go", **here)
        go.set()
        await other
        assert output_types(await create_response(stand, [answer_get_time(first)], **here))[-1] == "message"
        calls = [["add", "get_time"], ("add", "3"), ("get_time", "noon")]
        assert last_model_messages(stand) == ["Go", *calls, "Hello?", "Hello."]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_an_approval_that_is_given_twice_at_once_is_used_once(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", APPROVAL_SERVER, **here)
        body = {"model": MODEL, "input": [approve_call(first)], "tools": [APPROVAL_SERVER], **here}
        answers = await asyncio.gather(*(stand.send("POST", "/v1/responses", body) for _ in range(4)))
        assert sorted(status for status, _ in answers) == [200, 400, 400, 400]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-23")
@async_test(30)
async def test_a_request_that_is_refused_leaves_what_waits_to_the_next(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", **here)
        await _refused(stand, [answer_get_time(first)], GET_TIME, {**DECLARED_SERVER, "server_label": "nobody"}, **here)
        await _refused(stand, [], **here)
        assert await _refused(stand, [*first["output"], answer_get_time(first)], **here) == "duplicate_item"
        await stand.send(
            "POST", "/v1/responses/input_tokens", {"model": MODEL, "input": [answer_get_time(first)], **here}
        )
        assert output_types(await create_response(stand, [answer_get_time(first)], **here))[-1] == "message"
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-28")
@async_test(30)
async def test_a_run_that_ends_early_leaves_a_conversation_that_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, failing(400), [call("slow", seconds=60), call("get_time")], say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", **here)
        body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], **here}
        assert (await stand.send("POST", "/v1/responses", body))[0] == 500
        third = await create_response(stand, "Again", **here)
        assert ("add", "3") in last_model_messages(stand)
        body["input"] = [answer_get_time(third)]
        leaving = asyncio.create_task(stand.send("POST", "/v1/responses", body))
        await server.received("tools/call", name="slow")
        leaving.cancel()
        await server.received("notifications/cancelled")
        while (await conversation_item_types(stand, here))[-1:] != ["mcp_call"]:  # noqa: ASYNC110 - kept soon
            await asyncio.sleep(0)
        await create_response(stand, "Bye", **here)
        (word,) = [line[1] for line in last_model_messages(stand) if isinstance(line, tuple) and line[0] == "slow"]
        assert "before this call had a result" in word
        assert len(server.calls()) == 2


@pytest.mark.proves("D-23")
@async_test(30)
async def test_what_was_deleted_from_a_conversation_is_not_gone_on_with(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("Hello."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        first = await create_response(stand, "Go", **here)
        await stand.send("DELETE", f"/v1/conversations/{here['conversation']}/items/{first['output'][0]['id']}")
        await create_response(stand, "Hello", **here)
        assert (last_model_messages(stand), server.calls()) == (["Go", "Hello"], [])


@pytest.mark.proves("D-23")
@async_test(30)
async def test_answers_that_are_added_to_a_conversation_are_answers(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="hi"), *MIXED_CALLS], say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here, tools = await create_conversation(stand), (GET_TIME, APPROVAL_SERVER)
        first = await create_response(stand, "Go", *tools, **here)
        added = {"items": [answer_get_time(first), approve_call(first)]}
        status, _ = await stand.send("POST", f"/v1/conversations/{here['conversation']}/items", added)
        assert status == 200
        assert output_types(await create_response(stand, "Well?", *tools, **here)) == [
            "mcp_call",
            "mcp_call",
            "message",
        ]
        assert last_model_messages(stand)[:2] == ["Go", ["echo", "add", "get_time"]]
        assert (set(last_model_messages(stand)[2:5]), last_model_messages(stand)[5:]) == (
            {("echo", "hi"), ("add", "3"), ("get_time", "noon")},
            ["Well?"],
        )


@pytest.mark.proves("D-23", "D-25")
@pytest.mark.parametrize("store", [True, False])
@async_test(30)
async def test_over_a_socket_and_unstored_it_is_the_same_conversation(tmp_path: Path, store: bool) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        body = {"model": MODEL, "tools": [GET_TIME], "store": store, **here}
        first = await create_response(stand, "Go", store=store, **here)
        assert first["status"] == "requires_action"
        headers = {"authorization": "Bearer hd-anybody"}
        async with connect(stand.url.replace("http", "ws") + "/v1/responses", additional_headers=headers) as socket:
            await socket.send(
                orjson.dumps({"type": "response.create", "input": [answer_get_time(first)], **body}).decode()
            )
            while (event := orjson.loads(await socket.recv()))["type"] != "response.completed":
                assert event["type"] != "error", event
        assert output_types(event["response"]) == ["mcp_call", "message"]
        assert last_model_messages(stand) == ["Go", ["add", "get_time"], ("add", "3"), ("get_time", "noon")]
        assert len(server.calls()) == 1
        assert (await stand.send("GET", f"/v1/responses/{first['id']}"))[0] == (200 if store else 404)


@pytest.mark.proves("D-23", "D-28")
@async_test(30)
async def test_a_background_response_goes_on_in_a_conversation_as_well(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        here = await create_conversation(stand)
        queued = await create_response(stand, "Go", background=True, **here)
        first = (await stand.stream(f"/v1/responses/{queued['id']}?stream=true"))[-1]["response"]
        queued = await create_response(stand, [answer_get_time(first)], background=True, **here)
        second = (await stand.stream(f"/v1/responses/{queued['id']}?stream=true"))[-1]["response"]
        assert output_types(second) == ["mcp_call", "message"]
        await create_response(stand, "Thanks", **here)
        assert last_model_messages(stand)[-2:] == ["3, at noon.", "Thanks"]
        assert len(server.calls()) == 1
