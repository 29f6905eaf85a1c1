"""A client in a conversation: what it asks, what it answers, and what the model behind it is told."""

from __future__ import annotations

from typing import Any

from gateway.running_gateway import MODEL, RunningGateway

from holodeck.testing import call

GET_TIME = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
DECLARED_SERVER = {"type": "mcp", "server_label": "sums", "require_approval": "never"}
APPROVAL_SERVER = {"type": "mcp", "server_label": "sums", "require_approval": {"always": {"tool_names": ["add"]}}}
MIXED_CALLS = [call("add", a=1, b=2), call("get_time")]


async def create_conversation(gateway: RunningGateway) -> dict[str, Any]:
    """A new conversation, as requests name it."""
    _, conversation = await gateway.send("POST", "/v1/conversations", {})
    return {"conversation": conversation["id"]}


async def create_response(
    gateway: RunningGateway, input_items: Any, *tools: dict[str, Any], **body: Any
) -> dict[str, Any]:
    body = {"model": MODEL, "input": input_items, "tools": tools or (GET_TIME,), **body}
    status, answer = await gateway.send("POST", "/v1/responses", body)
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


def output_types(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def answer_get_time(response: dict[str, Any]) -> dict[str, Any]:
    """The client's own function, answered."""
    (called,) = [item for item in response["output"] if item["type"] == "function_call"]
    return {"type": "function_call_output", "call_id": called["call_id"], "output": "noon"}


def approve_call(response: dict[str, Any]) -> dict[str, Any]:
    (asked,) = [item for item in response["output"] if item["type"] == "mcp_approval_request"]
    return {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}


def last_model_messages(gateway: RunningGateway) -> list[Any]:
    """What the model was last sent. Calls stand as a list of names, an output as the call's name and its words."""
    names: dict[str, str] = {}
    lines: list[Any] = []
    for message in gateway.model_requests[-1]["messages"]:
        if message["role"] == "tool":
            lines.append((names.pop(message["tool_call_id"]), message["content"]))
            continue
        assert not names, "somebody speaks while a call has no output"
        calls = message.get("tool_calls") or []
        names |= {each["id"]: each["function"]["name"] for each in calls}
        lines.append([each["function"]["name"] for each in calls] if calls else message["content"])
    assert not names, "a call has no output"
    return lines


async def conversation_item_types(gateway: RunningGateway, here: dict[str, Any]) -> list[str]:
    _, listed = await gateway.send("GET", f"/v1/conversations/{here['conversation']}/items?order=asc&limit=100")
    return [item["type"] for item in listed["data"]]
