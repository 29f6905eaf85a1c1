"""Tool results from before a client's function call are restored for clients that cannot send them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.conversation_client import GET_TIME, create_response, last_model_messages
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.gateway.continuation.memory import ToolHistoryCache
from holodeck.models.items import FunctionCall, FunctionCallOutput, TextContent, text_message
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, call_raw, say

FUNCTION = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
GO = {"role": "user", "content": "Go"}
DONE = ["Go", ["add"], ("add", "3"), ["get_time"], ("get_time", "noon")]


async def chat(gateway: RunningGateway, messages: list[dict[str, Any]], key: str = "hd-anybody") -> dict[str, Any]:
    body = {"model": MODEL, "messages": messages, "tools": [FUNCTION]}
    status, answer = await gateway.send("POST", "/v1/chat/completions", body, key=key)
    assert status == 200, answer
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message


def noon(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The message again, and the output of the client's function."""
    (called,) = message["tool_calls"]
    assistant = {"role": "assistant", "content": message["content"], "tool_calls": [called]}
    return [assistant, {"role": "tool", "tool_call_id": called["id"], "content": "noon"}]


@pytest.mark.proves("D-25", "D-16")
@pytest.mark.parametrize("ids", [("", ""), ("call_0", "call_0")], ids=["ids", "numbers"])
@async_test(30)
async def test_a_chat_continues_with_the_tool_results_from_before_the_client_function(
    tmp_path: Path, ids: tuple[str, str]
) -> None:
    first, second = call_raw("add", '{"a":1,"b":2}', call_id=ids[0]), call_raw("get_time", "{}", call_id=ids[1])
    model = ScriptedModel(first, second, say("Noon."), call("echo", text="hi"), second, say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        messages = [GO]
        messages += noon(await chat(gateway, messages))
        answer = await chat(gateway, messages)
        assert (answer["content"], last_model_messages(gateway)) == ("Noon.", DONE)
        messages += [{"role": "assistant", "content": "Noon."}, {"role": "user", "content": "And hi"}]
        messages += noon(await chat(gateway, messages))
        await chat(gateway, messages)
        more = ["Noon.", "And hi", ["echo"], ("echo", "hi"), ["get_time"], ("get_time", "noon")]
        assert last_model_messages(gateway) == [*DONE, *more]
        assert [made.name for made in server.calls()] == ["add", "echo"]


@pytest.mark.proves("D-25", "D-29")
@async_test(30)
async def test_remembered_tool_results_stay_within_their_conversation_and_caller(tmp_path: Path) -> None:
    turns = call("add", a=1, b=2), call_raw("get_time", "{}", call_id="call_0"), say("Noon.")
    model = ScriptedModel(*turns, say("Noon."), say("Noon."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=("hd-alice", "hd-bob")) as gateway,
    ):
        back = noon(await chat(gateway, [GO], "hd-alice"))
        await chat(gateway, [GO, *back], "hd-bob")
        assert last_model_messages(gateway) == ["Go", ["get_time"], ("get_time", "noon")]
        await chat(gateway, [{"role": "user", "content": "Stop"}, *back], "hd-alice")
        assert last_model_messages(gateway) == ["Stop", ["get_time"], ("get_time", "noon")]
        await chat(gateway, [{"role": "system", "content": "Hush."}, GO, *back], "hd-alice")
        assert last_model_messages(gateway) == ["Hush.", *DONE]


@pytest.mark.proves("D-25", "D-16")
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("is_mixed", [False, True])
@async_test(30)
async def test_clients_of_the_responses_api_that_drop_mcp_calls_lose_no_result(
    tmp_path: Path, store: bool, is_mixed: bool
) -> None:
    """Pydantic AI sends back neither an mcp_call nor a reasoning item without a text."""
    first = [call("get_time"), call("add", a=1, b=2)] if is_mixed else call("add", a=1, b=2)
    model = ScriptedModel(first, call("get_time"), say("Noon."), say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        session, items = await gateway.http_client(), [dict[str, Any](GO)]
        for _ in range(3 if is_mixed else 2):
            body = {"model": MODEL, "input": items, "tools": [GET_TIME], "store": store}
            headers = {"user-agent": "pydantic-ai/2.38.0"}
            async with session.post("/v1/responses", json=body, headers=headers) as answer:
                response = await answer.json()
                assert answer.status == 200, response
            for item in (item for item in response["output"] if item["type"] == "function_call"):
                again = {key: item[key] for key in ("type", "call_id", "name", "arguments")}
                result = {"type": "function_call_output", "call_id": item["call_id"], "output": "noon"}
                items += [again, result]
        if not is_mixed:
            assert last_model_messages(gateway) == DONE
        lines = [line for line in last_model_messages(gateway) if isinstance(line, tuple)]
        noons = [("get_time", "noon")] * (2 if is_mixed else 1)
        assert sorted(lines) == [("add", "3"), *noons]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-25", "D-16")
@pytest.mark.parametrize("is_function_first", [False, True], ids=["tool first", "function first"])
@pytest.mark.parametrize(("dropped", "is_paired"), [("nothing", False), ("reasoning", True), ("mcp_call", False)])
@async_test(30)
async def test_results_of_an_unstored_turn_reach_the_model_in_the_order_of_its_calls(
    tmp_path: Path, is_function_first: bool, dropped: str, is_paired: bool
) -> None:
    """Codex drops each mcp_call, but sends the reasoning items that have the gateway's calls in them."""
    results = {"add": "3", "get_time": "noon", "echo": "hi", "get_place": "Rome"}
    calls = [call("add", a=1, b=2), call("get_time"), call("echo", text="hi"), call("get_place")]
    names = list(results)
    if is_function_first:
        calls, names = calls[::-1], names[::-1]
    model = ScriptedModel(calls, say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        tools = GET_TIME, {**GET_TIME, "name": "get_place"}
        unstored: Any = {"store": False, "include": ["reasoning.encrypted_content"]}
        first = await create_response(gateway, [GO], *tools, **unstored)
        items, outputs = [dict[str, Any](GO)], list[dict[str, Any]]()
        for item in (item for item in first["output"] if item["type"] != dropped):
            items.append(item)
            if item["type"] == "function_call":
                result = results[item["name"]]
                output = {"type": "function_call_output", "call_id": item["call_id"], "output": result}
                (items if is_paired else outputs).append(output)
        await create_response(gateway, [*items, *outputs], *tools, **unstored)
        assert last_model_messages(gateway) == ["Go", names, *((name, results[name]) for name in names)]
        assert len(server.calls()) == 2


@pytest.mark.proves("D-25")
@async_test(30)
async def test_portable_calls_that_a_client_leaves_out_are_not_restored(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), call("get_time"), say("Noon."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, mcp_output="portable") as gateway,
    ):
        body = {"model": MODEL, "input": [GO], "tools": [GET_TIME]}
        _, answer = await gateway.send("POST", "/v1/responses", body)
        assert [item["type"] for item in answer["output"]] == ["function_call", "function_call_output", "function_call"]
        result = {"type": "function_call_output", "call_id": answer["output"][-1]["call_id"], "output": "noon"}
        await gateway.send("POST", "/v1/responses", body | {"input": [GO, answer["output"][-1], result]})
        assert last_model_messages(gateway) == ["Go", ["get_time"], ("get_time", "noon")]


def test_remembered_tool_results_expire_by_size_and_age() -> None:
    now = [0.0]
    cache = ToolHistoryCache(lambda: now[0], max_bytes=1_000)

    def is_restored_after_store(question: str, size: int) -> bool:
        """Store a turn with a result of this size. Returns whether it is restored for the client."""
        text = TextContent(text="x" * size)
        ours = FunctionCall(call_id="a", name="add", arguments="{}"), FunctionCallOutput(call_id="a", content=(text,))
        called = FunctionCall(call_id="b", name="get_time", arguments="{}")
        items = [text_message("user", question)]
        cache.store("me", items, (*ours, called), is_client=lambda name: name == "get_time")
        return len(cache.restore_calls("me", [*items, called])) > 2

    def is_restored(question: str) -> bool:
        called = FunctionCall(call_id="b", name="get_time", arguments="{}")
        return len(cache.restore_calls("me", [text_message("user", question), called])) > 2

    assert is_restored_after_store("one", 100)
    assert is_restored_after_store("two", 100)
    assert not is_restored_after_store("large", 2_000)
    assert is_restored("one")
    assert is_restored("two")
    assert is_restored_after_store("three", 100)
    assert is_restored_after_store("four", 700)
    assert not is_restored("one")
    now[0] = 4_000.0
    assert is_restored_after_store("five", 100)
    assert not is_restored("three")
