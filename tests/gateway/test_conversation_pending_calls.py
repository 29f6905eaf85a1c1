"""Pending calls of a conversation are continued once, in order, by the first request that answers them."""

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


async def _refused(gateway: RunningGateway, input_items: Any, *tools: dict[str, Any], **body: Any) -> str:
    """Send a request, require status 400 and return the error code."""
    body = {"model": MODEL, "input": input_items, "tools": tools or (GET_TIME,), **body}
    status, answer = await gateway.send("POST", "/v1/responses", body)
    assert status == 400, answer
    return str(answer["error"]["code"])


@pytest.mark.proves("D-23", "D-26")
@pytest.mark.parametrize("stream", [False, True])
@async_test(30)
async def test_a_mixed_turn_is_continued_in_its_conversation(tmp_path: Path, stream: bool) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", **here)
        assert (first["status"], output_types(first)) == ("requires_action", ["function_call"])
        assert (await conversation_item_types(gateway, here), server.calls()) == (["message", "function_call"], [])
        if stream:
            body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], "stream": True, **here}
            second = (await gateway.stream("/v1/responses", body))[-1]["response"]
        else:
            second = await create_response(gateway, [answer_get_time(first)], **here)
        assert output_types(second) == ["mcp_call", "message"]
        assert [one.params["arguments"] for one in server.calls()] == [{"a": 1, "b": 2}]
        assert last_model_messages(gateway) == ["Go", ["add", "get_time"], ("add", "3"), ("get_time", "noon")]
        assert await conversation_item_types(gateway, here) == [
            *["message", "function_call"],
            *["function_call_output", "mcp_call", "message"],
        ]
        await create_response(gateway, "Thanks", **here)
        assert last_model_messages(gateway)[-2:] == ["3, at noon.", "Thanks"]
        assert {line for line in last_model_messages(gateway) if isinstance(line, tuple)} == {
            ("get_time", "noon"),
            ("add", "3"),
        }
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-26")
@async_test(30)
async def test_a_client_that_declares_the_server_finds_its_call_in_the_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here, tools = await create_conversation(gateway), (GET_TIME, DECLARED_SERVER)
        first = await create_response(gateway, "Go", *tools, **here)
        assert output_types(first) == ["mcp_list_tools", "function_call"]
        second = await create_response(gateway, [answer_get_time(first)], *tools, **here)
        assert output_types(second) == ["mcp_call", "message"]
        assert (await conversation_item_types(gateway, here))[1:] == [
            *output_types(first),
            "function_call_output",
            *output_types(second),
        ]
        await create_response(gateway, "Thanks", *tools, **here)
        assert {line for line in last_model_messages(gateway) if isinstance(line, tuple)} == {
            ("get_time", "noon"),
            ("add", "3"),
        }
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-26")
@pytest.mark.parametrize("is_approved", [True, False])
@async_test(30)
async def test_a_turn_with_a_client_call_and_an_approval_continues_once_both_are_answered(
    tmp_path: Path, is_approved: bool
) -> None:
    model = ScriptedModel([call("echo", text="hi"), *MIXED_CALLS], say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here, tools = await create_conversation(gateway), (GET_TIME, APPROVAL_SERVER)
        first = await create_response(gateway, "Go", *tools, **here)
        assert (first["status"], output_types(first)[1:]) == (
            "requires_action",
            ["function_call", "mcp_approval_request"],
        )
        assert await _refused(gateway, [approve_call(first)], *tools, **here) == "missing_tool_output"
        assert not server.calls()
        second = await create_response(
            gateway, [{**approve_call(first), "approve": is_approved}, answer_get_time(first)], *tools, **here
        )
        assert output_types(second) == ["mcp_call", *(["mcp_call"] if is_approved else []), "message"]
        assert len(server.calls("echo")) == 1
        assert len(server.calls("add")) == is_approved
        assert last_model_messages(gateway)[:2] == ["Go", ["echo", "add", "get_time"]]
        outputs = dict(line for line in last_model_messages(gateway)[2:])
        assert (outputs["echo"], outputs["get_time"]) == ("hi", "noon")
        assert outputs["add"] == "3" if is_approved else "did not approve" in outputs["add"]
        assert await _refused(gateway, [approve_call(first)], *tools, **here) == "approval_request_not_found"


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_a_pending_call_runs_once_the_other_call_of_its_turn_is_approved(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="hi"), call("add", a=1, b=2)], say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", APPROVAL_SERVER, **here)
        assert (first["status"], output_types(first)[1:], server.calls()) == ("completed", ["mcp_approval_request"], [])
        assert output_types(await create_response(gateway, [approve_call(first)], APPROVAL_SERVER, **here)) == [
            "mcp_call",
            "mcp_call",
            "message",
        ]
        assert last_model_messages(gateway) == ["Go", ["echo", "add"], ("echo", "hi"), ("add", "3")]


@pytest.mark.proves("D-23")
@pytest.mark.parametrize("tools", [(GET_TIME,), (GET_TIME, APPROVAL_SERVER)], ids=["mixed", "approval"])
@async_test(30)
async def test_a_client_that_sends_a_message_instead_of_outputs_abandons_its_pending_calls(
    tmp_path: Path, tools: tuple[dict[str, Any], ...]
) -> None:
    model = ScriptedModel(MIXED_CALLS, say("As you like."), say("Bye."), say("Noon, then."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", *tools, **here)
        assert output_types(await create_response(gateway, "Never mind", *tools, **here)) == ["message"]
        needs_approval = APPROVAL_SERVER in tools
        error_outputs: list[Any] = [("get_time", UNANSWERED), *([("add", UNDECIDED)] if needs_approval else [])]
        calls = ["add", "get_time"] if needs_approval else ["get_time"]
        assert (last_model_messages(gateway)[:2], set(last_model_messages(gateway)[2:-1])) == (
            ["Go", calls],
            set(error_outputs),
        )
        await create_response(gateway, "Bye", *tools, **here)
        assert {line for line in last_model_messages(gateway) if isinstance(line, tuple)} == set(error_outputs)
        if not needs_approval:
            await create_response(gateway, [answer_get_time(first)], *tools, **here)
            assert ("get_time", "noon") in last_model_messages(gateway)
        assert not server.calls()


@pytest.mark.proves("D-23")
@async_test(30)
async def test_an_unanswered_function_does_not_end_its_conversation(tmp_path: Path) -> None:
    model = ScriptedModel([call("get_time"), call("get_time")], say("As you like."), say("Bye."))
    async with run_gateway(tmp_path, model) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", **here)
        one = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "noon"}
        more = {"role": "user", "content": "And?"}
        assert await _refused(gateway, [one, more], **here) == "missing_tool_output"
        await create_response(gateway, "Never mind", **here)
        await create_response(gateway, "Bye", **here)
        assert last_model_messages(gateway)[:2] == ["Go", ["get_time", "get_time"]]
        assert last_model_messages(gateway)[2:] == [
            *[("get_time", UNANSWERED)] * 2,
            "Never mind",
            "As you like.",
            "Bye",
        ]


@pytest.mark.proves("D-23", "D-16")
@async_test(30)
async def test_of_concurrent_requests_that_continue_a_paused_turn_one_runs_and_the_others_get_conversation_locked(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    model = ScriptedModel(MIXED_CALLS, [wait(go), say("3, at noon.")], say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", **here)
        body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], **here}
        racing = [asyncio.create_task(gateway.send("POST", "/v1/responses", body)) for _ in range(4)]
        lost: set[asyncio.Task[tuple[int, Any]]] = set()
        while len(lost) < len(racing) - 1:
            lost, _ = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        answers = [task.result() for task in lost]
        assert [(status, error["error"]["code"]) for status, error in answers] == [(400, "conversation_locked")] * 3
        assert "resp_" in answers[0][1]["error"]["message"]
        assert await _refused(gateway, "Something else", **here) == "conversation_locked"
        go.set()
        (won,) = set(racing) - lost
        assert (await won)[0] == 200
        assert await _refused(gateway, [answer_get_time(first)], **here) == "duplicate_tool_output"
        await create_response(gateway, "Thanks", **here)
        assert last_model_messages(gateway)[-2:] == ["3, at noon.", "Thanks"]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23")
@async_test(30)
async def test_pending_calls_survive_the_end_of_a_response_that_started_earlier(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([wait(go), say("Hello.")], MIXED_CALLS, say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        other = asyncio.create_task(create_response(gateway, "Hello?", **here))
        while not gateway.model_requests:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)
        first = await create_response(gateway, "Go", **here)
        go.set()
        await other
        assert output_types(await create_response(gateway, [answer_get_time(first)], **here))[-1] == "message"
        calls = [["add", "get_time"], ("add", "3"), ("get_time", "noon")]
        assert last_model_messages(gateway) == ["Go", *calls, "Hello?", "Hello."]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_an_approval_in_concurrent_requests_is_used_once(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", APPROVAL_SERVER, **here)
        body = {"model": MODEL, "input": [approve_call(first)], "tools": [APPROVAL_SERVER], **here}
        answers = await asyncio.gather(*(gateway.send("POST", "/v1/responses", body) for _ in range(4)))
        assert sorted(status for status, _ in answers) == [200, 400, 400, 400]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-23")
@async_test(30)
async def test_pending_calls_stay_pending_after_a_refused_request(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", **here)
        await _refused(
            gateway, [answer_get_time(first)], GET_TIME, {**DECLARED_SERVER, "server_label": "nobody"}, **here
        )
        await _refused(gateway, [], **here)
        assert await _refused(gateway, [*first["output"], answer_get_time(first)], **here) == "duplicate_item"
        await gateway.send(
            "POST", "/v1/responses/input_tokens", {"model": MODEL, "input": [answer_get_time(first)], **here}
        )
        assert output_types(await create_response(gateway, [answer_get_time(first)], **here))[-1] == "message"
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-28")
@async_test(30)
async def test_a_conversation_can_be_continued_after_a_failed_or_cancelled_run(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, failing(400), [call("slow", seconds=60), call("get_time")], say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", **here)
        body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], **here}
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 500
        third = await create_response(gateway, "Again", **here)
        assert ("add", "3") in last_model_messages(gateway)
        body["input"] = [answer_get_time(third)]
        leaving = asyncio.create_task(gateway.send("POST", "/v1/responses", body))
        await server.received("tools/call", name="slow")
        leaving.cancel()
        await server.received("notifications/cancelled")
        while (await conversation_item_types(gateway, here))[-1:] != ["mcp_call"]:  # noqa: ASYNC110 - stored soon
            await asyncio.sleep(0)
        await create_response(gateway, "Bye", **here)
        (output,) = [line[1] for line in last_model_messages(gateway) if isinstance(line, tuple) and line[0] == "slow"]
        assert "before this call had a result" in output
        assert len(server.calls()) == 2


@pytest.mark.proves("D-23")
@async_test(30)
async def test_a_deleted_pending_call_is_not_continued(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("Hello."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        first = await create_response(gateway, "Go", **here)
        await gateway.send("DELETE", f"/v1/conversations/{here['conversation']}/items/{first['output'][0]['id']}")
        await create_response(gateway, "Hello", **here)
        assert (last_model_messages(gateway), server.calls()) == (["Go", "Hello"], [])


@pytest.mark.proves("D-23")
@async_test(30)
async def test_outputs_and_approvals_added_to_a_conversation_answer_its_pending_calls(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="hi"), *MIXED_CALLS], say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here, tools = await create_conversation(gateway), (GET_TIME, APPROVAL_SERVER)
        first = await create_response(gateway, "Go", *tools, **here)
        added = {"items": [answer_get_time(first), approve_call(first)]}
        status, _ = await gateway.send("POST", f"/v1/conversations/{here['conversation']}/items", added)
        assert status == 200
        assert output_types(await create_response(gateway, "Well?", *tools, **here)) == [
            "mcp_call",
            "mcp_call",
            "message",
        ]
        assert last_model_messages(gateway)[:2] == ["Go", ["echo", "add", "get_time"]]
        assert (set(last_model_messages(gateway)[2:5]), last_model_messages(gateway)[5:]) == (
            {("echo", "hi"), ("add", "3"), ("get_time", "noon")},
            ["Well?"],
        )


@pytest.mark.proves("D-23", "D-25")
@pytest.mark.parametrize("store", [True, False])
@async_test(30)
async def test_a_paused_turn_is_continued_over_a_socket_stored_or_not(tmp_path: Path, store: bool) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        body = {"model": MODEL, "tools": [GET_TIME], "store": store, **here}
        first = await create_response(gateway, "Go", store=store, **here)
        assert first["status"] == "requires_action"
        headers = {"authorization": "Bearer hd-anybody"}
        async with connect(gateway.url.replace("http", "ws") + "/v1/responses", additional_headers=headers) as socket:
            await socket.send(
                orjson.dumps({"type": "response.create", "input": [answer_get_time(first)], **body}).decode()
            )
            while (event := orjson.loads(await socket.recv()))["type"] != "response.completed":
                assert event["type"] != "error", event
        assert output_types(event["response"]) == ["mcp_call", "message"]
        assert last_model_messages(gateway) == ["Go", ["add", "get_time"], ("add", "3"), ("get_time", "noon")]
        assert len(server.calls()) == 1
        assert (await gateway.send("GET", f"/v1/responses/{first['id']}"))[0] == (200 if store else 404)


@pytest.mark.proves("D-23", "D-28")
@async_test(30)
async def test_a_background_response_continues_a_paused_turn_of_its_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(MIXED_CALLS, say("3, at noon."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        here = await create_conversation(gateway)
        queued = await create_response(gateway, "Go", background=True, **here)
        first = (await gateway.stream(f"/v1/responses/{queued['id']}?stream=true"))[-1]["response"]
        queued = await create_response(gateway, [answer_get_time(first)], background=True, **here)
        second = (await gateway.stream(f"/v1/responses/{queued['id']}?stream=true"))[-1]["response"]
        assert output_types(second) == ["mcp_call", "message"]
        await create_response(gateway, "Thanks", **here)
        assert last_model_messages(gateway)[-2:] == ["3, at noon.", "Thanks"]
        assert len(server.calls()) == 1
