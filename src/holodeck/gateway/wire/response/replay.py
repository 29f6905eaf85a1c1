"""The events of a response that is over, for a reader who asks for a stream of one that was never streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from holodeck.gateway.wire.client_kind import REASONING_EVENT_NAMES, ClientKind
from holodeck.gateway.wire.response.event_encoder import EventEncoder, WireItem
from holodeck.gateway.wire.response.resource import ERROR_TYPES
from holodeck.gateway.wire.response.sent_events import SentEvents

_FINAL_EVENTS = {
    "completed": "response.completed",
    "requires_action": "response.completed",
    "failed": "response.failed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",
}


def replay_events(
    resource: Mapping[str, Any], *, client_kind: ClientKind = "openai", sent_events: SentEvents | None = None
) -> list[bytes]:
    """The whole stream, each text in one delta. It ends in exactly this resource. `sent_events`:
    what was told before.
    """
    encoder = EventEncoder(sent_events=sent_events)
    start = {
        **resource,
        "status": "in_progress",
        "output": [],
        "completed_at": None,
        "usage": None,
        "error": None,
        "incomplete_details": None,
    }
    encoder.emit("response.created", response=start)
    encoder.emit("response.in_progress", response=start)
    for index, item in enumerate(resource["output"]):
        _ItemReplay(encoder, index, item, client_kind).write()
    error = resource.get("error")
    if error is not None:
        kind = ERROR_TYPES.get(error["code"], "server_error")
        flat = {"code": error["code"], "message": error["message"], "param": None}
        encoder.emit("error", error={"type": kind, **flat}, **flat)
    end = _FINAL_EVENTS.get(resource["status"])
    if end is not None:
        encoder.emit(end, response=resource)
    return encoder.drain()


class _ItemReplay:
    """One item."""

    def __init__(self, encoder: EventEncoder, index: int, item: WireItem, client_kind: ClientKind) -> None:
        self._encoder = encoder
        self._index = index
        self._item = item
        self._client_kind = client_kind
        self._position = {"item_id": item["id"], "output_index": index}

    def write(self) -> None:
        writers: dict[str, Callable[[], None]] = {
            "message": self._emit_message,
            "reasoning": self._emit_reasoning,
            "function_call": self._emit_function_call,
            "custom_tool_call": self._emit_custom_tool_call,
            "mcp_call": self._emit_mcp_call,
            "mcp_list_tools": self._emit_mcp_list_tools,
        }
        write = writers.get(self._item["type"])
        if write is None:
            self._emit_added()
        else:
            write()
        self._encoder.emit("response.output_item.done", output_index=self._index, item=self._item)

    def _emit_added(self, **empty: Any) -> None:
        item = {**self._item, **empty}
        if empty and "status" in item:
            item["status"] = "in_progress"
        self._encoder.emit("response.output_item.added", output_index=self._index, item=item)

    def _emit_message(self) -> None:
        self._emit_added(content=[])
        for number, part in enumerate(self._item["content"]):
            key = "refusal" if part["type"] == "refusal" else "text"
            name = "response.refusal" if key == "refusal" else "response.output_text"
            more: dict[str, Any] = {} if key == "refusal" else {"logprobs": []}
            place = {**self._position, "content_index": number}
            self._emit_part("response.content_part", name, part, key, place, more)

    def _emit_reasoning(self) -> None:
        self._emit_added(content=[], summary=[])
        for number, part in enumerate(self._item.get("summary", ())):
            place = {**self._position, "summary_index": number}
            self._emit_part(
                "response.reasoning_summary_part", "response.reasoning_summary_text", part, "text", place, {}
            )
        for number, part in enumerate(self._item.get("content", ())):
            place = {**self._position, "content_index": number}
            self._emit_part("response.content_part", REASONING_EVENT_NAMES[self._client_kind], part, "text", place, {})

    def _emit_part(
        self, frame: str, name: str, part: WireItem, key: str, position: dict[str, Any], more: dict[str, Any]
    ) -> None:
        encoder = self._encoder
        encoder.emit(f"{frame}.added", **position, part={**part, key: ""})
        if part[key]:
            encoder.emit_delta(encoder.build_delta_head(f"{name}.delta", **position, **more), part[key])
        encoder.emit(f"{name}.done", **position, **{key: part[key]}, **more)
        encoder.emit(f"{frame}.done", **position, part=part)

    def _emit_function_call(self) -> None:
        self._emit_added(arguments="")
        self._emit_arguments("response.function_call_arguments", {"name": self._item["name"]})

    def _emit_custom_tool_call(self) -> None:
        self._emit_added(input="")
        text = self._item["input"]
        if text:
            self._encoder.emit_delta(
                self._encoder.build_delta_head("response.custom_tool_call_input.delta", **self._position), text
            )
        self._encoder.emit("response.custom_tool_call_input.done", **self._position, input=text)

    def _emit_mcp_call(self) -> None:
        self._emit_added(arguments="", output=None, error=None)
        self._encoder.emit("response.mcp_call.in_progress", **self._position)
        self._emit_arguments("response.mcp_call_arguments")
        end = "completed" if self._item["status"] == "completed" else "failed"
        self._encoder.emit(f"response.mcp_call.{end}", **self._position)

    def _emit_arguments(self, kind: str, more: Mapping[str, Any] = MappingProxyType({})) -> None:
        arguments = self._item["arguments"]
        if arguments:
            self._encoder.emit_delta(self._encoder.build_delta_head(f"{kind}.delta", **self._position), arguments)
        self._encoder.emit(f"{kind}.done", **self._position, **more, arguments=arguments)

    def _emit_mcp_list_tools(self) -> None:
        self._emit_added(tools=[], error=None)
        self._encoder.emit("response.mcp_list_tools.in_progress", **self._position)
        end = "completed" if self._item.get("error") is None else "failed"
        self._encoder.emit(f"response.mcp_list_tools.{end}", **self._position)
