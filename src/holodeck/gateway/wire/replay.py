"""The events of a response that is over, for a reader who asks for a stream of one that was never streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from holodeck.gateway.wire.dialects import REASONING_NAMES, Dialect
from holodeck.gateway.wire.encoder import Encoder
from holodeck.gateway.wire.endings import ERROR_TYPES
from holodeck.gateway.wire.output import WireItem
from holodeck.gateway.wire.past import Past

_ENDS = {
    "completed": "response.completed",
    "requires_action": "response.completed",
    "failed": "response.failed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",
}


def replay(resource: Mapping[str, Any], *, dialect: Dialect = "openai", past: Past | None = None) -> list[bytes]:
    """The whole stream, each text in one delta. It ends in exactly this resource. `past`: what was told before."""
    encoder = Encoder(past=past)
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
        _Replayed(encoder, index, item, dialect).write()
    error = resource.get("error")
    if error is not None:
        kind = ERROR_TYPES.get(error["code"], "server_error")
        flat = {"code": error["code"], "message": error["message"], "param": None}
        encoder.emit("error", error={"type": kind, **flat}, **flat)
    end = _ENDS.get(resource["status"])
    if end is not None:
        encoder.emit(end, response=resource)
    return encoder.take()


class _Replayed:
    """One item."""

    def __init__(self, encoder: Encoder, index: int, item: WireItem, dialect: Dialect) -> None:
        self._encoder = encoder
        self._index = index
        self._item = item
        self._dialect = dialect
        self._place = {"item_id": item["id"], "output_index": index}

    def write(self) -> None:
        writers: dict[str, Callable[[], None]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_tool_call,
            "mcp_call": self._mcp_call,
            "mcp_list_tools": self._mcp_list_tools,
        }
        write = writers.get(self._item["type"])
        if write is None:
            self._added()
        else:
            write()
        self._encoder.emit("response.output_item.done", output_index=self._index, item=self._item)

    def _added(self, **empty: Any) -> None:
        item = {**self._item, **empty}
        if empty and "status" in item:
            item["status"] = "in_progress"
        self._encoder.emit("response.output_item.added", output_index=self._index, item=item)

    def _message(self) -> None:
        self._added(content=[])
        for number, part in enumerate(self._item["content"]):
            key = "refusal" if part["type"] == "refusal" else "text"
            name = "response.refusal" if key == "refusal" else "response.output_text"
            more: dict[str, Any] = {} if key == "refusal" else {"logprobs": []}
            place = {**self._place, "content_index": number}
            self._part("response.content_part", name, part, key, place, more)

    def _reasoning(self) -> None:
        self._added(content=[], summary=[])
        for number, part in enumerate(self._item.get("summary", ())):
            place = {**self._place, "summary_index": number}
            self._part("response.reasoning_summary_part", "response.reasoning_summary_text", part, "text", place, {})
        for number, part in enumerate(self._item.get("content", ())):
            place = {**self._place, "content_index": number}
            self._part("response.content_part", REASONING_NAMES[self._dialect], part, "text", place, {})

    def _part(
        self, frame: str, name: str, part: WireItem, key: str, place: dict[str, Any], more: dict[str, Any]
    ) -> None:
        encoder = self._encoder
        encoder.emit(f"{frame}.added", **place, part={**part, key: ""})
        if part[key]:
            encoder.delta(encoder.head(f"{name}.delta", **place, **more), part[key])
        encoder.emit(f"{name}.done", **place, **{key: part[key]}, **more)
        encoder.emit(f"{frame}.done", **place, part=part)

    def _function_call(self) -> None:
        self._added(arguments="")
        self._arguments("response.function_call_arguments", {"name": self._item["name"]})

    def _custom_tool_call(self) -> None:
        self._added(input="")
        text = self._item["input"]
        if text:
            self._encoder.delta(self._encoder.head("response.custom_tool_call_input.delta", **self._place), text)
        self._encoder.emit("response.custom_tool_call_input.done", **self._place, input=text)

    def _mcp_call(self) -> None:
        self._added(arguments="", output=None, error=None)
        self._encoder.emit("response.mcp_call.in_progress", **self._place)
        self._arguments("response.mcp_call_arguments")
        end = "completed" if self._item["status"] == "completed" else "failed"
        self._encoder.emit(f"response.mcp_call.{end}", **self._place)

    def _arguments(self, kind: str, more: Mapping[str, Any] = MappingProxyType({})) -> None:
        arguments = self._item["arguments"]
        if arguments:
            self._encoder.delta(self._encoder.head(f"{kind}.delta", **self._place), arguments)
        self._encoder.emit(f"{kind}.done", **self._place, **more, arguments=arguments)

    def _mcp_list_tools(self) -> None:
        self._added(tools=[], error=None)
        self._encoder.emit("response.mcp_list_tools.in_progress", **self._place)
        end = "completed" if self._item.get("error") is None else "failed"
        self._encoder.emit(f"response.mcp_list_tools.{end}", **self._place)
