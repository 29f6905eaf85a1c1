"""`/v1/conversations`: the items of a conversation, and how responses add to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Turn, cut, status

REQUEST = {"model": MODEL, "input": "Who am I?"}

HALF: Turn = [say("Hal"), cut()]
"""A model answer that the gateway cannot retry, because it had begun."""
DOWN = status(500, retry_after="600")
"""Not retried by the gateway: `Retry-After` is longer than it waits."""


def _user_message(text: str, **more: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text, **more}


async def _texts(gateway: RunningGateway, conversation_id: str) -> list[str]:
    """The text of each item, oldest first, or its type if it has no text."""
    _, page = await gateway.send("GET", f"/v1/conversations/{conversation_id}/items?order=asc&limit=100")
    return [item["content"][0]["text"] if item["type"] == "message" else item["type"] for item in page["data"]]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_an_item_is_in_a_conversation_once_and_a_second_one_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        _, made = await gateway.send("POST", "/v1/conversations", {"items": [_user_message("One", id="msg_1")]})
        path = f"/v1/conversations/{made['id']}/items"
        twice = {"items": [_user_message("Two", id="msg_2"), _user_message("Two", id="msg_2")]}
        base = {"model": MODEL, "conversation": made["id"]}
        for target, body, param in (
            (path, {"items": [_user_message("One", id="msg_1")]}, "items[0].id"),
            (path, twice, "items[1].id"),
            ("/v1/conversations", twice, "items[1].id"),
            ("/v1/responses", {**base, "input": [_user_message("1", id="msg_1")]}, "input[0].id"),
            ("/v1/responses", {**base, "input": twice["items"]}, "input[1].id"),
        ):
            code, refused = await gateway.send("POST", target, body)
            assert (code, refused["error"]["code"], refused["error"]["param"]) == (400, "duplicate_item", param)
        assert not gateway.model_requests
        code, _ = await gateway.send("POST", path, {"items": [_user_message("Two", id="msg_2")]})
        assert code == 200
        assert await _texts(gateway, made["id"]) == ["One", "Two"]


@pytest.mark.proves("D-25", "D-31")
@async_test(30)
async def test_a_request_that_an_sdk_retries_is_stored_in_its_conversation_once(tmp_path: Path) -> None:
    model = ScriptedModel(HALF, HALF, say("At last."), call("add", a=1, b=2), DOWN, say("Oh."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client = await gateway.openai_client(max_retries=2)
        conversation = await client.conversations.create()
        answer = await client.responses.create(model=MODEL, input="Hello", conversation=conversation.id)
        assert answer.output_text == "At last."
        assert await _texts(gateway, conversation.id) == ["Hello", "At last."]
        with pytest.raises(openai.InternalServerError):  # not retried: its tool has run
            await client.responses.create(model=MODEL, input="Add", conversation=conversation.id)
        assert await _texts(gateway, conversation.id) == ["Hello", "At last.", "Add", "mcp_call"]
        await client.responses.create(model=MODEL, input="And?", conversation=conversation.id)
        result = gateway.model_requests[-1]["messages"][-2]
        assert (result["role"], result["content"]) == ("tool", "3")


@pytest.mark.proves("D-25")
@async_test(30)
async def test_an_invalid_page_is_refused_with_the_name_of_its_parameter(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, made = await gateway.send("POST", "/v1/conversations", {"items": [_user_message(str(n)) for n in range(5)]})
        path = f"/v1/conversations/{made['id']}/items"
        for query, param in (("order=up", "order"), ("after=msg_gone", "after"), ("limit=few", "limit")):
            code, refused = await gateway.send("GET", f"{path}?{query}")
            assert (code, refused["error"]["param"]) == (400, param)
        client = await gateway.openai_client()
        listed = [item async for item in client.conversations.items.list(made["id"], limit=2, order="asc")]
        assert len(listed) == 5


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_call_that_a_client_adds_without_its_id_gets_one(tmp_path: Path) -> None:
    """The sessions of OpenAI's npm agents leave out the ids of all calls."""
    made = {"type": "mcp_call", "server_label": "sums", "name": "add", "arguments": "{}", "output": "3"}
    async with run_gateway(tmp_path, ScriptedModel(say("Yes."))) as gateway:
        _, conversation = await gateway.send("POST", "/v1/conversations", {"items": [made, made]})
        _, page = await gateway.send("GET", f"/v1/conversations/{conversation['id']}/items")
        assert len({item["id"] for item in page["data"]}) == 2
        body = {"model": MODEL, "input": "3?", "conversation": conversation["id"]}
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 200
        assert [message["role"] for message in gateway.model_requests[0]["messages"]] == ["assistant", "tool"] * 2 + [
            "user"
        ]


@pytest.mark.proves("D-26", "D-31")
@async_test(30)
async def test_pending_calls_stay_pending_when_a_response_fails_before_running_them(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), DOWN, say("As you like."))
    tool = {"type": "mcp", "server_label": "sums", "require_approval": "always"}
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, made = await gateway.send("POST", "/v1/conversations", {})
        body = {"model": MODEL, "conversation": made["id"], "tools": [tool]}
        _, first = await gateway.send("POST", "/v1/responses", {**body, "input": "Add"})
        answer = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": False}
        code, _ = await gateway.send("POST", "/v1/responses", {**body, "input": [answer]})
        assert code == 500
        code, again = await gateway.send("POST", "/v1/responses", {**body, "input": [answer]})
        assert (code, again["output"][-1]["content"][0]["text"]) == (200, "As you like.")
        listed = ["Add", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "As you like."]
        assert await _texts(gateway, made["id"]) == listed
        assert not server.calls("add")


@pytest.mark.proves("D-25", "D-31")
@async_test(30)
async def test_a_response_cancelled_while_its_tool_runs_is_stored_in_its_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), say("Oh."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, made = await gateway.send("POST", "/v1/conversations", {})
        body = {"model": MODEL, "conversation": made["id"], "input": "Wait", "background": True}
        _, begun = await gateway.send("POST", "/v1/responses", body)
        await server.received("tools/call", name="slow")
        _, ended = await gateway.send("POST", f"/v1/responses/{begun['id']}/cancel")
        assert ended["status"] == "cancelled"
        assert (await _texts(gateway, made["id"]))[:2] == ["Wait", "mcp_call"]


@pytest.mark.proves("D-28", "D-31")
@async_test(30)
async def test_a_failed_response_of_a_conversation_can_be_continued_with_the_whole_context(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(DOWN, say("Bob."))) as gateway:
        _, made = await gateway.send("POST", "/v1/conversations", {"items": [_user_message("I am Bob.")]})
        code, failed = await gateway.send("POST", "/v1/responses", {**REQUEST, "conversation": made["id"]})
        body = {**REQUEST, "input": "Well?", "previous_response_id": failed["error"]["response_id"]}
        assert (code, (await gateway.send("POST", "/v1/responses", body))[0]) == (500, 200)
        assert [message["content"] for message in gateway.model_requests[-1]["messages"]] == [
            "I am Bob.",
            "Who am I?",
            "Well?",
        ]
