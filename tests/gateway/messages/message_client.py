"""A client of the Messages API over plain HTTP, which joins the events of a stream into the message they describe."""

from __future__ import annotations

from typing import Any

import orjson
from gateway.running_gateway import ANY_KEY, MODEL, RunningGateway

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
GET_TIME = {"name": "get_time", "description": "Get the time.", "input_schema": {"type": "object", "properties": {}}}
GET_PLACE = {"name": "get_place", "input_schema": {"type": "object", "properties": {"near": {"type": "string"}}}}


async def create_message(
    gateway: RunningGateway, messages: list[Any] | None = None, *, is_streamed: bool = False, **body: Any
) -> dict[str, Any]:
    """The message that answers a conversation."""
    whole = {"model": MODEL, "max_tokens": 4_096, "messages": messages or HELLO, **body}
    if is_streamed:
        return join_events(await stream_message(gateway, {**whole, "stream": True}))
    status, message = await gateway.send("POST", "/v1/messages", whole)
    assert status == 200, message
    assert isinstance(message, dict)
    return message


async def stream_message(gateway: RunningGateway, body: dict[str, Any], key: str = ANY_KEY) -> list[dict[str, Any]]:
    """The events of a stream, which is checked to be well-formed."""
    session = await gateway.http_client(key)
    async with session.post("/v1/messages", data=orjson.dumps({"model": MODEL, "max_tokens": 99, **body})) as reply:
        text = (await reply.read()).decode()
    assert (reply.status, reply.content_type) == (200, "text/event-stream"), text
    *frames, rest = text.split("\n\n")
    assert rest == ""
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def join_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream describes. Fails where its events are not in the order that clients rely on."""
    start, *rest, end, stop = [event for event in events if event["type"] != "ping"]
    assert (start["type"], end["type"], stop) == ("message_start", "message_delta", {"type": "message_stop"})
    message: dict[str, Any] = start["message"]
    assert message["content"] == []
    inputs: dict[int, str] = {}
    open_index = None
    for event in rest:
        index = event["index"]
        if event["type"] == "content_block_start":
            assert (open_index, index) == (None, len(message["content"]))
            open_index = index
            message["content"].append(event["content_block"])
            continue
        assert index == open_index
        block = message["content"][index]
        if event["type"] == "content_block_stop":
            open_index = None
            if block["type"] in ("tool_use", "mcp_tool_use", "server_tool_use"):
                block["input"] = orjson.loads(inputs.get(index) or "{}")
        elif event["delta"]["type"] == "input_json_delta":
            inputs[index] = inputs.get(index, "") + event["delta"]["partial_json"]
        else:
            _, key = event["delta"].keys()
            block[key] += event["delta"][key]
    assert open_index is None
    message.update(end["delta"])
    message["usage"].update(end["usage"])
    return message


def texts_of(message: dict[str, Any]) -> list[str]:
    return [block["text"] for block in message["content"] if block["type"] == "text"]


def run_tools(message: dict[str, Any], results: dict[str, str]) -> list[Any]:
    """The message again, with the results of the client's tools."""
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    assert calls
    outputs = [{"type": "tool_result", "tool_use_id": call["id"], "content": results[call["name"]]} for call in calls]
    return [{"role": "assistant", "content": message["content"]}, {"role": "user", "content": outputs}]
