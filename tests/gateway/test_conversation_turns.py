"""Calls that wait in a conversation are gone on with there: once, in order, by whoever comes first, also later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aio import aio
from gateway.stand import MODEL, Stand, serving

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GET_TIME = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
DECLARED = {"type": "mcp", "server_label": "sums", "require_approval": "never"}
ASKING = {"type": "mcp", "server_label": "sums", "require_approval": {"always": {"tool_names": ["add"]}}}
MIXED = [call("add", a=1, b=2), call("get_time")]


async def _begin(stand: Stand) -> dict[str, Any]:
    """A new conversation, as requests name it."""
    _, conversation = await stand.send("POST", "/v1/conversations", {})
    return {"conversation": conversation["id"]}


async def _ask(stand: Stand, given: Any, *tools: dict[str, Any], **body: Any) -> dict[str, Any]:
    body = {"model": MODEL, "input": given, "tools": tools or (GET_TIME,), **body}
    status, answer = await stand.send("POST", "/v1/responses", body)
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


def _types(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def _noon(response: dict[str, Any]) -> dict[str, Any]:
    """The client's own function, answered."""
    (called,) = [item for item in response["output"] if item["type"] == "function_call"]
    return {"type": "function_call_output", "call_id": called["call_id"], "output": "noon"}


def _yes(response: dict[str, Any]) -> dict[str, Any]:
    (asked,) = [item for item in response["output"] if item["type"] == "mcp_approval_request"]
    return {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}


def told(stand: Stand) -> list[Any]:
    """What the model was last sent. Calls stand as a list of names, an output as the call's name and its words."""
    names: dict[str, str] = {}
    lines: list[Any] = []
    for message in stand.asked[-1]["messages"]:
        if message["role"] == "tool":
            lines.append((names.pop(message["tool_call_id"]), message["content"]))
            continue
        assert not names, "somebody speaks while a call has no output"
        calls = message.get("tool_calls") or []
        names |= {each["id"]: each["function"]["name"] for each in calls}
        lines.append([each["function"]["name"] for each in calls] if calls else message["content"])
    assert not names, "a call has no output"
    return lines


async def _items(stand: Stand, here: dict[str, Any]) -> list[str]:
    _, listed = await stand.send("GET", f"/v1/conversations/{here['conversation']}/items?order=asc&limit=100")
    return [item["type"] for item in listed["data"]]


@pytest.mark.proves("D-23", "D-26")
@pytest.mark.parametrize("stream", [False, True])
@aio(30)
async def test_a_mixed_turn_is_gone_on_with_in_its_conversation(tmp_path: Path, stream: bool) -> None:
    model = ScriptedModel(MIXED, say("3, at noon."), say("Bye."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"sums": server}) as stand:
        here = await _begin(stand)
        first = await _ask(stand, "Go", **here)
        assert (first["status"], _types(first)) == ("requires_action", ["function_call"])
        assert (await _items(stand, here), server.calls()) == (["message", "function_call"], [])
        if stream:
            body = {"model": MODEL, "input": [_noon(first)], "tools": [GET_TIME], "stream": True, **here}
            second = (await stand.stream("/v1/responses", body))[-1]["response"]
        else:
            second = await _ask(stand, [_noon(first)], **here)
        assert _types(second) == ["function_call", "function_call_output", "message"]
        assert [one.params["arguments"] for one in server.calls()] == [{"a": 1, "b": 2}]
        assert told(stand) == ["Go", ["add", "get_time"], ("get_time", "noon"), ("add", "3")]
        assert await _items(stand, here) == [
            *["message", "function_call"],
            *["function_call_output", "function_call", "function_call_output", "message"],
        ]
        await _ask(stand, "Thanks", **here)
        assert told(stand)[-2:] == ["3, at noon.", "Thanks"]
        assert {line for line in told(stand) if isinstance(line, tuple)} == {("get_time", "noon"), ("add", "3")}
        assert len(server.calls()) == 1
