"""A conversation stores each item once, and its pending calls, which are not listed as items."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.conversation_client import last_model_messages
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.lib.call_errors import UNDECIDED
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

BOOK = {"type": "function", "name": "book", "parameters": {"type": "object", "properties": {}}}


async def _begin(gateway: RunningGateway, **body: Any) -> str:
    _, conversation = await gateway.send("POST", "/v1/conversations", body)
    return str(conversation["id"])


async def _ask(gateway: RunningGateway, input_items: Any, conversation: str, **body: Any) -> dict[str, Any]:
    body = {"model": MODEL, "input": input_items, "conversation": conversation, "tools": [BOOK], **body}
    status, answer = await gateway.send("POST", "/v1/responses", body)
    assert status == 200, answer
    return dict(answer)


async def _listed(gateway: RunningGateway, conversation: str) -> list[dict[str, Any]]:
    _, page = await gateway.send("GET", f"/v1/conversations/{conversation}/items?order=asc&limit=100")
    return list(page["data"])


def _types(items: list[dict[str, Any]]) -> list[str]:
    return [item["type"] for item in items]


def _output(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": "Booked."}


@pytest.mark.proves("004:US2-4", "D-23")
@pytest.mark.parametrize("is_posted", [False, True])
@async_test(30)
async def test_a_mixed_turn_in_a_conversation_waits_for_the_client_and_then_runs_once(
    tmp_path: Path, is_posted: bool
) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("book")], say("3, and booked."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        conversation = await _begin(gateway)
        first = await _ask(gateway, "Add and book", conversation)
        assert (first["status"], _types(first["output"])) == ("requires_action", ["function_call"])
        assert _types(await _listed(gateway, conversation)) == ["message", "function_call"]
        assert not server.calls()
        answer: list[dict[str, Any]] = [_output(first["output"][0])]
        if is_posted:
            await gateway.send("POST", f"/v1/conversations/{conversation}/items", {"items": answer})
            answer = []
        second = await _ask(gateway, answer, conversation)
        assert _types(second["output"]) == ["mcp_call", "message"]
        await _ask(gateway, "Thanks", conversation)
        assert len(server.calls("add")) == 1
    calls = [len(message["tool_calls"]) for message in gateway.model_requests[1]["messages"] if "tool_calls" in message]
    assert calls == [2], "they are the calls of one turn"
    for request in gateway.model_requests[1:]:
        assert sorted(m["content"] for m in request["messages"] if m["role"] == "tool") == ["3", "Booked."]


@pytest.mark.proves("D-23", "D-26")
@async_test(30)
async def test_a_call_pending_beside_an_approval_request_runs_in_its_conversation(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("echo", text="hi")], say("Both."))
    rule = {"always": {"tool_names": ["echo"]}}
    tool = {"type": "mcp", "server_label": "sums", "require_approval": rule}
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        conversation = await _begin(gateway)
        first = await _ask(gateway, "Go", conversation, tools=[tool])
        assert _types(first["output"]) == ["mcp_list_tools", "mcp_approval_request"]
        approval = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
        second = await _ask(gateway, [approval], conversation, tools=[tool])
        assert _types(second["output"]) == ["mcp_call", "mcp_call", "message"]
        assert len(server.calls("add")) == len(server.calls("echo")) == 1


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_response_of_a_conversation_can_be_continued_with_the_context_before_it(tmp_path: Path) -> None:
    model = ScriptedModel(
        [call("add", a=1, b=2), call("book")], say("3, and booked."), say("Later."), say("Bob."), say("Bob, still.")
    )
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        conversation = await _begin(gateway, items=[{"role": "user", "content": "I am Bob."}])
        first = await _ask(gateway, "Add and book", conversation)
        second = await _ask(gateway, [_output(first["output"][0])], conversation)
        await _ask(gateway, "Later", conversation)
        body = {"model": MODEL, "input": "Who am I?", "previous_response_id": second["id"]}
        _, third = await gateway.send("POST", "/v1/responses", body)
        body = {"model": MODEL, "input": "Sure?", "previous_response_id": third["id"]}
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 200
        assert last_model_messages(gateway) == [
            *("I am Bob.", "Add and book", ["book"], ("book", "Booked."), ["add"], ("add", "3"), "3, and booked."),
            *("Who am I?", "Bob.", "Sure?"),
        ], "without the later turns"


@pytest.mark.proves("D-23", "D-28")
@pytest.mark.parametrize("background", [False, True])
@async_test(30)
async def test_a_paused_turn_of_a_conversation_can_be_continued_from_its_response(
    tmp_path: Path, background: bool
) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("book")], say("3, and booked."), say("Bob."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        conversation = await _begin(gateway, items=[{"role": "user", "content": "I am Bob."}])
        first = await _ask(gateway, "Add and book", conversation)
        body = {"model": MODEL, "tools": [BOOK], "background": background}
        continuation = {"input": [_output(first["output"][0])], "previous_response_id": first["id"]}
        _, second = await gateway.send("POST", "/v1/responses", {**body, **continuation})
        if background:
            second = (await gateway.stream(f"/v1/responses/{second['id']}?stream=true"))[-1]["response"]
        assert _types(second["output"]) == ["mcp_call", "message"]
        body = {"model": MODEL, "input": "Who am I?", "previous_response_id": second["id"]}
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 200
        assert len(server.calls("add")) == 1
        assert last_model_messages(gateway)[:3] == ["I am Bob.", "Add and book", ["add", "book"]]
        assert last_model_messages(gateway)[5:] == ["3, and booked.", "Who am I?"]


@pytest.mark.proves("D-26", "D-28")
@async_test(30)
async def test_an_undecided_call_gets_an_error_output_next_to_its_turn(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("book")], say("Booked, not added."), say("Bye."))
    tools = [BOOK, {"type": "mcp", "server_label": "sums"}]
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        conversation = await _begin(gateway)
        first = await _ask(gateway, "Add and book", conversation, tools=tools)
        (booked,) = [item for item in first["output"] if item["type"] == "function_call"]
        await _ask(gateway, [_output(booked)], conversation, tools=tools)
        await _ask(gateway, "Thanks", conversation, tools=tools)
        before, answers, after = (
            last_model_messages(gateway)[:2],
            last_model_messages(gateway)[2:4],
            last_model_messages(gateway)[4:],
        )
        assert before == ["Add and book", ["book", "add"]]
        assert dict(answers) == {"book": "Booked.", "add": f"Error: {UNDECIDED}"}
        assert after == ["Booked, not added.", "Thanks"]
        assert not server.calls()


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_duplicate_item_of_a_conversation_is_refused_before_the_model_is_called(tmp_path: Path) -> None:
    item = {"id": "msg_mine", "role": "user", "content": "Hello"}
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        conversation = await _begin(gateway, items=[item])
        items = f"/v1/conversations/{conversation}/items"
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("/v1/responses", {"model": MODEL, "conversation": conversation, "input": [item]}),
            (
                "/v1/responses",
                {
                    "model": MODEL,
                    "conversation": conversation,
                    "background": True,
                    "input": [{"type": "item_reference", "id": "msg_mine"}],
                },
            ),
            (items, {"items": [item]}),
            (items, {"items": [{**item, "id": "msg_other"}] * 2}),
            ("/v1/conversations", {"items": [item, item]}),
        ]
        for path, body in wrong:
            status, answer = await gateway.send("POST", path, body)
            assert (status, answer["error"]["code"]) == (400, "duplicate_item"), (path, body)
            assert answer["error"]["param"].endswith("].id")
        assert not gateway.model_requests
        assert len(await _listed(gateway, conversation)) == 1


@pytest.mark.proves("D-28")
@async_test(30)
async def test_two_concurrent_responses_with_the_same_item_both_complete(tmp_path: Path) -> None:
    go = asyncio.Event()
    until = [wait(go), wait(go)]
    model = ScriptedModel([until[0], say("One.")], [until[1], say("Two.")])
    item = {"id": "msg_mine", "role": "user", "content": "Hello"}
    async with run_gateway(tmp_path, model) as gateway:
        conversation = await _begin(gateway)
        body = {"model": MODEL, "conversation": conversation, "background": True, "input": [item]}
        begun = [(await gateway.send("POST", "/v1/responses", body))[1]["id"] for _ in until]
        for step in until:
            await step.reached.wait()
        go.set()
        for response_id in begun:
            events = await gateway.stream(f"/v1/responses/{response_id}?stream=true")
            assert events[-1]["type"] == "response.completed"
        assert _types(await _listed(gateway, conversation)) == ["message"] * 3


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_conversation_continues_without_the_output_of_a_deleted_call(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(call("book"), say("Booked."), say("Bye."))) as gateway:
        conversation = await _begin(gateway)
        first = await _ask(gateway, "Book", conversation)
        await _ask(gateway, [_output(first["output"][0])], conversation)
        await gateway.send("DELETE", f"/v1/conversations/{conversation}/items/{first['output'][0]['id']}")
        await _ask(gateway, "Thanks", conversation)
        assert last_model_messages(gateway) == ["Book", "Booked.", "Thanks"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_an_update_without_metadata_changes_nothing(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        conversation = await _begin(gateway, metadata={"topic": "sums"})
        status, answer = await gateway.send("POST", f"/v1/conversations/{conversation}", {})
        assert (status, answer["error"]["param"]) == (400, "metadata")
        _, found = await gateway.send("GET", f"/v1/conversations/{conversation}")
        assert found["metadata"] == {"topic": "sums"}
