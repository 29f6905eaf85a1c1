"""A conversation holds all that was said in it, each item once, and what waits in it though nobody sees it."""

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


async def _begin(stand: RunningGateway, **body: Any) -> str:
    _, conversation = await stand.send("POST", "/v1/conversations", body)
    return str(conversation["id"])


async def _ask(stand: RunningGateway, given: Any, conversation: str, **body: Any) -> dict[str, Any]:
    body = {"model": MODEL, "input": given, "conversation": conversation, "tools": [BOOK], **body}
    status, answer = await stand.send("POST", "/v1/responses", body)
    assert status == 200, answer
    return dict(answer)


async def _listed(stand: RunningGateway, conversation: str) -> list[dict[str, Any]]:
    _, page = await stand.send("GET", f"/v1/conversations/{conversation}/items?order=asc&limit=100")
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
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        conversation = await _begin(stand)
        first = await _ask(stand, "Add and book", conversation)
        assert (first["status"], _types(first["output"])) == ("requires_action", ["function_call"])
        assert _types(await _listed(stand, conversation)) == ["message", "function_call"]
        assert not server.calls()
        answer: list[dict[str, Any]] = [_output(first["output"][0])]
        if is_posted:
            await stand.send("POST", f"/v1/conversations/{conversation}/items", {"items": answer})
            answer = []
        second = await _ask(stand, answer, conversation)
        assert _types(second["output"]) == ["mcp_call", "message"]
        await _ask(stand, "Thanks", conversation)
        assert len(server.calls("add")) == 1
    calls = [len(message["tool_calls"]) for message in stand.model_requests[1]["messages"] if "tool_calls" in message]
    assert calls == [2], "they are the calls of one turn"
    for asked in stand.model_requests[1:]:
        assert sorted(m["content"] for m in asked["messages"] if m["role"] == "tool") == ["3", "Booked."]


@pytest.mark.proves("D-23", "D-26")
@async_test(30)
async def test_a_call_that_waited_for_the_approval_of_another_runs_in_a_conversation_too(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("echo", text="hi")], say("Both."))
    rule = {"always": {"tool_names": ["echo"]}}
    tool = {"type": "mcp", "server_label": "sums", "require_approval": rule}
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        conversation = await _begin(stand)
        first = await _ask(stand, "Go", conversation, tools=[tool])
        assert _types(first["output"]) == ["mcp_list_tools", "mcp_approval_request"]
        approval = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
        second = await _ask(stand, [approval], conversation, tools=[tool])
        assert _types(second["output"]) == ["mcp_call", "mcp_call", "message"]
        assert len(server.calls("add")) == len(server.calls("echo")) == 1


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_response_of_a_conversation_can_be_gone_on_from_with_all_that_came_before_it(tmp_path: Path) -> None:
    model = ScriptedModel(
        [call("add", a=1, b=2), call("book")], say("3, and booked."), say("Later."), say("Bob."), say("Bob, still.")
    )
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        conversation = await _begin(stand, items=[{"role": "user", "content": "I am Bob."}])
        first = await _ask(stand, "Add and book", conversation)
        second = await _ask(stand, [_output(first["output"][0])], conversation)
        await _ask(stand, "Later", conversation)
        body = {"model": MODEL, "input": "Who am I?", "previous_response_id": second["id"]}
        _, third = await stand.send("POST", "/v1/responses", body)
        body = {"model": MODEL, "input": "Sure?", "previous_response_id": third["id"]}
        assert (await stand.send("POST", "/v1/responses", body))[0] == 200
        assert last_model_messages(stand) == [
            *("I am Bob.", "Add and book", ["book"], ("book", "Booked."), ["add"], ("add", "3"), "3, and booked."),
            *("Who am I?", "Bob.", "Sure?"),
        ], "and nothing of what came later"


@pytest.mark.proves("D-23", "D-28")
@pytest.mark.parametrize("background", [False, True])
@async_test(30)
async def test_a_turn_that_waits_in_a_conversation_can_be_gone_on_with_from_its_response(
    tmp_path: Path, background: bool
) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("book")], say("3, and booked."), say("Bob."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        conversation = await _begin(stand, items=[{"role": "user", "content": "I am Bob."}])
        first = await _ask(stand, "Add and book", conversation)
        body = {"model": MODEL, "tools": [BOOK], "background": background}
        given = {"input": [_output(first["output"][0])], "previous_response_id": first["id"]}
        _, second = await stand.send("POST", "/v1/responses", {**body, **given})
        if background:
            second = (await stand.stream(f"/v1/responses/{second['id']}?stream=true"))[-1]["response"]
        assert _types(second["output"]) == ["mcp_call", "message"]
        body = {"model": MODEL, "input": "Who am I?", "previous_response_id": second["id"]}
        assert (await stand.send("POST", "/v1/responses", body))[0] == 200
        assert len(server.calls("add")) == 1
        assert last_model_messages(stand)[:3] == ["I am Bob.", "Add and book", ["add", "book"]]
        assert last_model_messages(stand)[5:] == ["3, and booked.", "Who am I?"]


@pytest.mark.proves("D-26", "D-28")
@async_test(30)
async def test_a_call_that_the_model_went_on_without_is_answered_where_it_stands(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("book")], say("Booked, not added."), say("Bye."))
    tools = [BOOK, {"type": "mcp", "server_label": "sums"}]
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        conversation = await _begin(stand)
        first = await _ask(stand, "Add and book", conversation, tools=tools)
        (booked,) = [item for item in first["output"] if item["type"] == "function_call"]
        await _ask(stand, [_output(booked)], conversation, tools=tools)
        await _ask(stand, "Thanks", conversation, tools=tools)
        before, answers, after = (
            last_model_messages(stand)[:2],
            last_model_messages(stand)[2:4],
            last_model_messages(stand)[4:],
        )
        assert before == ["Add and book", ["book", "add"]]
        assert dict(answers) == {"book": "Booked.", "add": f"Error: {UNDECIDED}"}
        assert after == ["Booked, not added.", "Thanks"]
        assert not server.calls()


@pytest.mark.proves("D-25")
@async_test(30)
async def test_an_item_that_a_conversation_has_already_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    item = {"id": "msg_mine", "role": "user", "content": "Hello"}
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as stand:
        conversation = await _begin(stand, items=[item])
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
            status, answer = await stand.send("POST", path, body)
            assert (status, answer["error"]["code"]) == (400, "duplicate_item"), (path, body)
            assert answer["error"]["param"].endswith("].id")
        assert not stand.model_requests
        assert len(await _listed(stand, conversation)) == 1


@pytest.mark.proves("D-28")
@async_test(30)
async def test_two_responses_that_bring_the_same_item_side_by_side_both_come_to_an_end(tmp_path: Path) -> None:
    go = asyncio.Event()
    until = [wait(go), wait(go)]
    model = ScriptedModel([until[0], say("One.")], [until[1], say("Two.")])
    item = {"id": "msg_mine", "role": "user", "content": "Hello"}
    async with run_gateway(tmp_path, model) as stand:
        conversation = await _begin(stand)
        body = {"model": MODEL, "conversation": conversation, "background": True, "input": [item]}
        begun = [(await stand.send("POST", "/v1/responses", body))[1]["id"] for _ in until]
        for step in until:
            await step.reached.wait()
        go.set()
        for response_id in begun:
            events = await stand.stream(f"/v1/responses/{response_id}?stream=true")
            assert events[-1]["type"] == "response.completed"
        assert _types(await _listed(stand, conversation)) == ["message"] * 3


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_conversation_from_which_a_call_was_deleted_goes_on_without_its_answer(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(call("book"), say("Booked."), say("Bye."))) as stand:
        conversation = await _begin(stand)
        first = await _ask(stand, "Book", conversation)
        await _ask(stand, [_output(first["output"][0])], conversation)
        await stand.send("DELETE", f"/v1/conversations/{conversation}/items/{first['output'][0]['id']}")
        await _ask(stand, "Thanks", conversation)
        assert last_model_messages(stand) == ["Book", "Booked.", "Thanks"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_an_update_without_metadata_changes_nothing(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as stand:
        conversation = await _begin(stand, metadata={"topic": "sums"})
        status, answer = await stand.send("POST", f"/v1/conversations/{conversation}", {})
        assert (status, answer["error"]["param"]) == (400, "metadata")
        _, found = await stand.send("GET", f"/v1/conversations/{conversation}")
        assert found["metadata"] == {"topic": "sums"}
