"""Codex tools in namespaces and with text input: functions for the model, their own item types for Codex."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, parse_events, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, call_raw, say

CODEX = "codex_exec/0.166.0 (Debian 12.0.0; x86_64) xterm (codex_exec; 0.166.0)"
ECHO = {
    "type": "function",
    "name": "echo",
    "description": "Echoes.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"message": {"type": "string"}}},
}
EVERYTHING = {"type": "namespace", "name": "mcp__everything", "description": "Try everything.", "tools": [ECHO]}
APPLY_PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files. Do not wrap the patch in JSON.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch hunk+ end_patch"},
}
EXEC = {"type": "function", "name": "exec_command", "parameters": {"type": "object", "properties": {}}}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Searches for tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
TOOLS = [EXEC, EVERYTHING, APPLY_PATCH]
PATCH = "*** Begin Patch\n*** Add File: a.txt\n+hé\n*** End Patch\n"
GO = {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "Go"}]}


def body(input_items: list[Any], **more: Any) -> dict[str, Any]:
    """A request body of Codex, reduced to the relevant fields."""
    return {
        "model": MODEL,
        "stream": True,
        "input": input_items,
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a1e4ba",
        "client_metadata": {"turn_id": "1"},
        **more,
    }


async def stream(gateway: RunningGateway, input_items: list[Any], **more: Any) -> list[dict[str, Any]]:
    session = await gateway.http_client()
    async with session.post("/v1/responses", json=body(input_items, **more), headers={"user-agent": CODEX}) as answer:
        text = (await answer.read()).decode()
        assert answer.status == 200, text
        return parse_events(text)


def done(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The finished items of a stream."""
    items: list[dict[str, Any]] = events[-1]["response"]["output"]
    assert items == [event["item"] for event in events if event["type"] == "response.output_item.done"]
    return items


@pytest.mark.proves("D-25")
@async_test(30)
async def test_tools_in_a_namespace_are_offered_called_and_answered_under_their_own_names(tmp_path: Path) -> None:
    model = ScriptedModel(call("mcp__everything__echo", message="yo"), say("It said yo."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await stream(gateway, [GO])
        (called,) = done(first)
        assert (called["type"], called["namespace"], called["name"]) == ("function_call", "mcp__everything", "echo")
        assert first[-1]["response"]["tools"][1] == EVERYTHING
        output = {"type": "function_call_output", "call_id": called["call_id"], "output": "yo"}
        (message,) = done(await stream(gateway, [GO, called, output]))
        assert message["content"][0]["text"] == "It said yo."
        offered = {tool["function"]["name"]: tool["function"] for tool in gateway.model_requests[0]["tools"]}
        assert offered["mcp__everything__echo"]["parameters"] == ECHO["parameters"]
        about = "Echoes.\n\nAbout all tools whose names begin with 'mcp__everything__': Try everything."
        assert offered["mcp__everything__echo"]["description"] == about
        sent = gateway.model_requests[1]["messages"]
        assert sent[1]["tool_calls"][0]["function"]["name"] == "mcp__everything__echo"
        assert (sent[2]["role"], sent[2]["content"]) == ("tool", "yo")
        assert not server.calls()


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("arguments", [None, PATCH], ids=["as a function", "as it is"])
@async_test(30)
async def test_a_custom_tool_gets_text_for_both_argument_formats_of_the_model(
    tmp_path: Path, arguments: str | None
) -> None:
    step = call("apply_patch", input=PATCH) if arguments is None else call_raw("apply_patch", arguments)
    model = ScriptedModel([step, call("exec_command")], say("Patched."), chunk=7)
    async with run_gateway(tmp_path, model) as gateway:
        events = await stream(gateway, [GO])
        patch, command = done(events)
        assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", PATCH)
        deltas = [each["delta"] for each in events if each["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(deltas) == PATCH
        assert command["type"] == "function_call"
        (offered,) = [tool for tool in gateway.model_requests[0]["tools"] if tool["function"]["name"] == "apply_patch"]
        assert "begin_patch hunk+ end_patch" in str(offered["function"]["parameters"])
        answers = [
            {"type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "Success."},
            {"type": "function_call_output", "call_id": command["call_id"], "output": "hi"},
        ]
        (message,) = done(await stream(gateway, [GO, patch, command, *answers]))
        assert message["content"][0]["text"] == "Patched."
        sent = gateway.model_requests[1]["messages"]
        assert "*** Begin Patch" in sent[1]["tool_calls"][0]["function"]["arguments"]
        assert [message["content"] for message in sent[2:]] == ["Success.", "hi"]


@pytest.mark.proves("D-25", "D-28")
@async_test(30)
async def test_custom_and_namespaced_calls_are_stored_listed_and_streamed_like_others(tmp_path: Path) -> None:
    calls = [call("apply_patch", input=PATCH), call("mcp__everything__echo", message="yo")]
    model = ScriptedModel(calls, say("Done."), say("Done."))
    async with run_gateway(tmp_path, model) as gateway:
        status, first = await gateway.send("POST", "/v1/responses", body([GO], stream=False, store=True))
        assert status == 200, first
        kinds = ["custom_tool_call", "function_call"]
        assert [item["type"] for item in first["output"]] == kinds
        assert done(await gateway.stream(f"/v1/responses/{first['id']}?stream=true")) == first["output"]
        answers = [
            {"type": f"{kind}_output", "call_id": item["call_id"], "output": "ok"}
            for kind, item in zip(kinds, first["output"], strict=True)
        ]
        follow = body(answers, stream=False, store=True, previous_response_id=first["id"])
        status, second = await gateway.send("POST", "/v1/responses", follow)
        assert status == 200, second
        again = body([GO, *first["output"], *answers], stream=False, store=True)
        status, third = await gateway.send("POST", "/v1/responses", again)
        assert status == 200, third
        assert gateway.model_requests[1]["messages"] == gateway.model_requests[2]["messages"]
        _, listed = await gateway.send("GET", f"/v1/responses/{third['id']}/input_items?order=asc")
        assert [item["type"] for item in listed["data"]][1:] == [*kinds, *(f"{kind}_output" for kind in kinds)]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("is_chain", [False, True], ids=["all sent again", "previous response"])
@async_test(30)
async def test_tools_found_by_a_codex_search_can_be_called_in_later_turns(tmp_path: Path, is_chain: bool) -> None:
    model = ScriptedModel(call("tool_search", query="echo"), call("mcp__everything__echo", message="yo"), say("Yo."))
    async with run_gateway(tmp_path, model) as gateway:
        input_items: list[Any] = [GO]
        more: dict[str, Any] = {"tools": [EXEC, SEARCH], "store": is_chain}

        async def answered(answer: dict[str, Any]) -> dict[str, Any]:
            """The next call, with an output added as Codex does."""
            nonlocal input_items
            events = await stream(gateway, input_items, **more)
            (called,) = done(events)
            input_items = [*([] if is_chain else [*input_items, called]), {**answer, "call_id": called.get("call_id")}]
            if is_chain:
                more["previous_response_id"] = events[-1]["response"]["id"]
            return called

        found = {**EVERYTHING, "tools": [{**ECHO, "defer_loading": True}]}
        output = {"type": "tool_search_output", "status": "completed", "execution": "client", "tools": [found]}
        searched = await answered(output)
        assert (searched["type"], searched["execution"]) == ("tool_search_call", "client")
        assert searched["arguments"] == {"query": "echo"}
        called = await answered({"type": "function_call_output", "output": "yo"})
        assert (called["type"], called["namespace"], called["name"]) == ("function_call", "mcp__everything", "echo")
        (message,) = done(await stream(gateway, input_items, **more))
        assert message["content"][0]["text"] == "Yo."
        offered = [[tool["function"]["name"] for tool in request["tools"]] for request in gateway.model_requests]
        assert offered == [
            ["exec_command", "tool_search"],
            *[["exec_command", "tool_search", "mcp__everything__echo"]] * 2,
        ]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("web_search", 'In Codex, write web_search = "disabled" into config.toml.'),
        ("tool_search", "Only a search that the client itself makes"),
        ("image_generation", "The gateway's operator can do that, under 'builtin_tools'."),
    ],
)
@async_test(30)
async def test_an_unknown_tool_is_refused_with_a_fix(tmp_path: Path, kind: str, advice: str) -> None:
    async with run_gateway(tmp_path) as gateway:
        status, refused = await gateway.send("POST", "/v1/responses", body([GO], tools=[*TOOLS, {"type": kind}]))
        assert (status, refused["error"]["param"]) == (400, "tools[3].type")
        message = refused["error"]["message"]
        assert f"'{kind}'. Supported values are: 'function', 'custom', 'namespace', 'mcp', 'shell'" in message
        assert advice in message
