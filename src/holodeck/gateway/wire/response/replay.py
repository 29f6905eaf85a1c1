"""Events of a finished response, for a reader that streams a response which was not streamed when it ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.response.hosted_calls import emit_hosted_end, emit_hosted_start
from holodeck.gateway.wire.response.output_items import (
    EventEncoder,
    ItemEvents,
    OutputItems,
    PartEvents,
    PartKind,
    WireItem,
)
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
    """Encode the whole stream of a response, each text in one delta. Its last event has exactly this resource.

    `sent_events`: events of the response that were sent before; the result continues after them.
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
    output = OutputItems(encoder)
    for item in resource["output"]:
        _ItemReplay(encoder, output.reserve(item["id"]), item, client_kind).write()
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
    def __init__(self, encoder: EventEncoder, index: int, item: WireItem, client_kind: ClientKind) -> None:
        self._item = item
        self._client_kind = client_kind
        self._events = ItemEvents(encoder, index, item["id"])

    def write(self) -> None:
        item = self._item
        match item["type"]:
            case "message":
                self._start(content=[])
                for index, part in enumerate(item["content"]):
                    self._write_part("refusal" if part["type"] == "refusal" else "output_text", index, part)
            case "reasoning":
                self._start(content=[], summary=[])
                for index, part in enumerate(item.get("summary", ())):
                    self._write_part("summary_text", index, part)
                for index, part in enumerate(item.get("content", ())):
                    self._write_part("reasoning_text", index, part)
            case "function_call":
                self._start(arguments="")
                fields = {"name": item["name"], "arguments": item["arguments"]}
                self._events.emit_text("response.function_call_arguments", item["arguments"], **fields)
            case "custom_tool_call":
                self._start(input="")
                self._events.emit_text("response.custom_tool_call_input", item["input"], input=item["input"])
            case "mcp_call":
                self._start(arguments="", output=None, error=None)
                self._events.emit("response.mcp_call.in_progress")
                self._events.emit_text("response.mcp_call_arguments", item["arguments"], arguments=item["arguments"])
                self._events.emit_end("response.mcp_call", is_completed=item["status"] == "completed")
            case "mcp_list_tools":
                self._start(tools=[], error=None)
                self._events.emit("response.mcp_list_tools.in_progress")
                self._events.emit_end("response.mcp_list_tools", is_completed=item.get("error") is None)
            case "web_search_call" | "file_search_call" | "code_interpreter_call" | "image_generation_call":
                self._start(**{key: None for key in ("results", "outputs", "result") if key in item})
                emit_hosted_start(self._events, item)
                emit_hosted_end(self._events, item)
            case "shell_call" | "local_shell_call" | "apply_patch_call" | "computer_call":
                self._start()
            case _:
                self._events.start(item)
        self._events.finish(item)

    def _start(self, **empty: Any) -> None:
        item = {**self._item, **empty}
        if "status" in item:
            item["status"] = "in_progress"
        self._events.start(item)

    def _write_part(self, kind: PartKind, index: int, part: WireItem) -> None:
        logprobs = part.get("logprobs")
        events = PartEvents(self._events, kind, index, self._client_kind, has_logprobs=bool(logprobs))
        events.start(part)
        if logprobs:
            events.append_tokens(part[events.key], logprobs)
        else:
            events.append(part[events.key])
        events.finish_part(part)
