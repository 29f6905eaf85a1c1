"""Writes a run as one message of the Messages API: thinking, text, and calls of the client's tools as `tool_use`.

Calls that the gateway runs do not appear, but for those of servers and of web tools that the request declares: each is
an `mcp_tool_use` or `server_tool_use` block with the block of its result, written when the call has ended. A
`MessageWriter` belongs to one run and is fed its events in order. Blocks of a stream follow one another, as clients of
this API expect: a call that the model writes while another one is not finished is held back until that one is. A stream
begins when a model has begun to answer, since its first event names the one that does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from holodeck.gateway.api.models.create_message import ONE_TIER
from holodeck.gateway.api.models.message_blocks import WEB_TOOLS
from holodeck.gateway.wire.messages.errors import error_to_json, status_of
from holodeck.gateway.wire.messages.request import MessagesRequest
from holodeck.gateway.wire.messages.server_blocks import mcp_result_to_json, web_result_to_json
from holodeck.gateway.wire.response.call_items import DeclaredServers
from holodeck.gateway.wire.response.hosted_calls import parse_arguments
from holodeck.gateway.wire.response.resource import FAILED_RUN_STATUSES, Ending, ending_of
from holodeck.gateway.wire.response.text_items import streamed_beyond
from holodeck.models.events import (
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    RunFinished,
    RunResult,
    StandInAnswered,
    TextAdded,
    ToolFinished,
    TurnStarted,
    is_before_answer,
)
from holodeck.models.items import FunctionCall, Message, Reasoning, Usage

STOP_REASONS = ("end_turn", "max_tokens", "tool_use", "refusal")
_DELTA_FIELDS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
    "mcp_tool_use": ("input_json_delta", "partial_json"),
    "server_tool_use": ("input_json_delta", "partial_json"),
}
_BlockType = Literal["text", "thinking", "tool_use", "mcp_tool_use", "server_tool_use", "result"]


def encode_message_event(event: dict[str, Any]) -> bytes:
    """Encode an event as a server-sent event of its own name."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


PING = encode_message_event({"type": "ping"})
"""Sent after the start of a message, and while there is nothing else to send, be it before the start."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Block:
    """A content block with what was added to it so far."""

    index: int
    item_id: str
    type: _BlockType
    call_id: str = ""
    name: str = ""
    server_name: str = ""
    result: dict[str, Any] | None = None
    """The whole block, of a result: it is written at once."""
    fragments: list[str] = field(default_factory=list)
    is_finished: bool = False

    def to_json(self, *, is_empty: bool = False) -> dict[str, Any]:
        """Return the block as the message has it; `is_empty`: as a stream begins it."""
        written = "" if is_empty else "".join(self.fragments)
        if self.type == "text":
            return {"type": "text", "text": written, "citations": None}
        if self.type == "thinking":
            return {"type": "thinking", "thinking": written, "signature": "" if is_empty else self.item_id}
        if self.result is not None:
            return self.result
        server = {"server_name": self.server_name} if self.type == "mcp_tool_use" else {}
        return {"type": self.type, "id": self.call_id, "name": self.name, **server, "input": parse_arguments(written)}


class MessageWriter:
    """Writes one message. Feed it every event of the run, in order. A silent writer only builds the message."""

    def __init__(
        self,
        request: MessagesRequest,
        *,
        message_id: str,
        model: str,
        is_silent: bool = False,
        servers: DeclaredServers | None = None,
    ) -> None:
        """`servers`: those that the request declares. None: it declares none."""
        self._request = request
        self._servers = servers
        self._web_tools = frozenset(tool.name for tool in request.response.tools.hosted)
        self.is_silent = is_silent
        self._head = {"id": message_id, "type": "message", "role": "assistant", "model": model}
        self._frames: list[bytes] = []
        self._blocks: list[_Block] = []
        self._open: _Block | None = None
        """The last block of the stream, if more of it may follow."""
        self._held: list[_Block] = []
        """Blocks that begin once the open one is finished."""
        self._blocks_before_turn = 0
        # Deltas of this turn that no finished message has covered yet.
        self._unmatched_texts: list[str] = []
        self._server_calls: dict[str, FunctionCall] = {}
        """Calls of the gateway that the message shows, by their ids, until they have ended."""
        self._web_uses: dict[str, int] = {}
        """Calls of web tools that did not fail, by the tool."""
        self._has_refused = False
        self._stop_reason: str | None = None
        self._details: dict[str, Any] = {}
        self._usage = Usage()
        self._must_begin = not is_silent

    def build_resource(self) -> dict[str, Any]:
        """Build the message as far as it is known."""
        return {
            **self._head,
            "content": [block.to_json() for block in self._blocks],
            "stop_reason": self._stop_reason,
            "stop_sequence": None,
            "usage": {**self._usage_to_json(), **ONE_TIER},
            **self._details,
        }

    def feed(self, *events: Event) -> list[bytes]:
        """Return the encoded events for events of the run, often none."""
        for event in events:
            if self._must_begin and not is_before_answer(event):
                self._begin_stream()
            self._write_event(event)
        frames, self._frames = self._frames, []
        return frames

    def _begin_stream(self) -> None:
        self._must_begin = False
        self._emit({"type": "message_start", "message": self.build_resource()})
        self._frames.append(PING)

    def _write_event(self, event: Event) -> None:
        match event:
            case TextAdded():
                self._has_refused = self._has_refused or event.is_refusal
                self._unmatched_texts.append(event.text)
                self._add(event.text, item_id=event.item_id, kind="text")
            case ReasoningAdded() if self._request.thinking != "hidden":
                self._add(self._visible_text(event.text), item_id=event.item_id, kind="thinking")
            case CallAdded() if self._request.response.is_client_function(event.name):
                self._add(
                    event.arguments, item_id=event.item_id, kind="tool_use", call_id=event.call_id, name=event.name
                )
            case ItemFinished(item=Message() as message):
                self._finish_message(message)
            case ItemFinished(item=Reasoning() as reasoning) if self._request.thinking != "hidden":
                self._finish_reasoning(reasoning)
            case ItemFinished(item=FunctionCall(name=name) as call) if self._request.response.is_client_function(name):
                self._finish_call(call)
            case ItemFinished(item=FunctionCall() as call) if self._servers is not None or call.name in self._web_tools:
                self._server_calls[call.call_id] = call
            case ToolFinished() if event.call_id in self._server_calls:
                self._write_server_call(event)
            case StandInAnswered():
                self._head["model"] = event.name
            case TurnStarted():
                self._blocks_before_turn = len(self._blocks)
            case RunFinished():
                self._finish_run(event.result)
            case _:
                pass

    def _visible_text(self, text: str) -> str:
        return text if self._request.thinking == "shown" else ""

    def _add(
        self,
        text: str,
        *,
        item_id: str,
        kind: _BlockType,
        call_id: str = "",
        name: str = "",
    ) -> None:
        block = self._find(item_id)
        if block is None:
            block = _Block(index=len(self._blocks), item_id=item_id, type=kind, call_id=call_id, name=name)
            self._begin(block)
        if text:
            block.fragments.append(text)
            if block is self._open:
                self._emit_delta(block, text)

    def _find(self, item_id: str) -> _Block | None:
        """Return the unfinished block of an item."""
        if self._open is not None and self._open.item_id == item_id:
            return self._open
        return next((block for block in self._held if block.item_id == item_id and not block.is_finished), None)

    def _begin(self, block: _Block) -> None:
        # Text and thinking end where something else begins; of a call, more may follow.
        if self._open is not None and self._open.type != "tool_use":
            self._close()
        self._blocks.append(block)
        if self._open is None:
            self._start(block)
        else:
            self._held.append(block)

    def _start(self, block: _Block) -> None:
        self._open = block
        start = {"type": "content_block_start", "index": block.index}
        self._emit({**start, "content_block": block.to_json(is_empty=True)})
        if block.fragments:
            self._emit_delta(block, "".join(block.fragments))

    def _finish(self, block: _Block) -> None:
        """Finish a block. If it is the open one, those that are held back follow, up to the next unfinished one."""
        block.is_finished = True
        while self._open is not None and self._open.is_finished:
            self._close()
            if self._held:
                self._start(self._held.pop(0))

    def _close(self) -> None:
        block, self._open = self._open, None
        if block is None:
            return
        block.is_finished = True
        if block.type == "thinking":
            delta = {"type": "signature_delta", "signature": block.item_id}
            self._emit({"type": "content_block_delta", "index": block.index, "delta": delta})
        self._emit({"type": "content_block_stop", "index": block.index})

    def _finish_message(self, item: Message) -> None:
        # A message that was not streamed is written now.
        if not any(self._unmatched_texts) and item.text:
            self._unmatched_texts.append(item.text)
            self._add(item.text, item_id=item.id, kind="text")
        self._unmatched_texts = streamed_beyond(self._unmatched_texts, item.text)
        self._finish_item(item.id)

    def _finish_reasoning(self, item: Reasoning) -> None:
        is_first = len(self._blocks) == self._blocks_before_turn
        # Reasoning that was not streamed is written, unless what follows it already is.
        if is_first and (item.text or item.summary or item.opaque):
            self._add(self._visible_text(item.text or item.summary), item_id=item.id, kind="thinking")
        self._finish_item(item.id)

    def _finish_call(self, call: FunctionCall) -> None:
        if not any(block.call_id == call.call_id and block.item_id == call.id for block in self._blocks):
            self._add(call.arguments, item_id=call.id, kind="tool_use", call_id=call.call_id, name=call.name)
        self._finish_item(call.id)

    def _write_server_call(self, event: ToolFinished) -> None:
        call, output = self._server_calls.pop(event.call_id), event.output
        used = _Block(index=len(self._blocks), item_id=call.id, type="server_tool_use", call_id=call.call_id)
        used.fragments.append(call.arguments)
        if call.name in self._web_tools:
            used.name, result = call.name, web_result_to_json(call, output)
            if not output.is_error:
                self._web_uses[call.name] = self._web_uses.get(call.name, 0) + 1
        else:
            target = None if self._servers is None else self._servers.find_declared_tool(call.name)
            if target is None:
                return
            used.type, used.name, used.server_name = "mcp_tool_use", target.tool, target.server_label
            result = mcp_result_to_json(call, output)
        self._begin(used)
        self._finish(used)
        ended = _Block(index=len(self._blocks), item_id=output.id, type="result", result=result)
        self._begin(ended)
        self._finish(ended)

    def _finish_item(self, item_id: str) -> None:
        block = self._find(item_id)
        if block is not None:
            self._finish(block)

    def _finish_run(self, result: RunResult) -> None:
        self._usage = result.usage
        for block in self._held:
            block.is_finished = True
        if self._open is not None:
            self._finish(self._open)
        ending = ending_of(result, is_pause_completed=False)
        if ending.error is not None or ending.status == "cancelled":
            self._emit(_failure_to_json(ending, result))
            return
        self._stop_reason = self._find_stop_reason(ending)
        if ending.incomplete is not None:
            self._details = ending.details
        delta = {"stop_reason": self._stop_reason, "stop_sequence": None, **self._details}
        self._emit({"type": "message_delta", "delta": delta, "usage": self._usage_to_json()})
        self._emit({"type": "message_stop"})

    def _find_stop_reason(self, ending: Ending) -> str:
        if ending.status == "incomplete":
            return "refusal" if ending.incomplete == "content_filter" else "max_tokens"
        if self._has_refused:
            return "refusal"
        return "tool_use" if any(block.type == "tool_use" for block in self._blocks) else "end_turn"

    def _usage_to_json(self) -> dict[str, Any]:
        """Return the usage in the terms of the API, where tokens of a cache, read or written, are no input tokens."""
        usage = self._usage
        written, written_1h = usage.cache_write_tokens, usage.cache_write_1h_tokens
        counts = {
            "input_tokens": max(0, usage.input_tokens - usage.cached_tokens - written),
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written - written_1h,
                "ephemeral_1h_input_tokens": written_1h,
            },
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        }
        if self._web_uses:
            counts["server_tool_use"] = {f"{name}_requests": self._web_uses.get(name, 0) for name in WEB_TOOLS}
        return counts

    def _emit_delta(self, block: _Block, text: str) -> None:
        if not self.is_silent:
            kind, key = _DELTA_FIELDS[block.type]
            event = {"type": "content_block_delta", "index": block.index, "delta": {"type": kind, key: text}}
            self._frames.append(encode_message_event(event))

    def _emit(self, event: dict[str, Any]) -> None:
        if not self.is_silent:
            self._frames.append(encode_message_event(event))


def _failure_to_json(ending: Ending, result: RunResult) -> dict[str, Any]:
    if ending.error is None:
        return error_to_json(500, "The run was cancelled.")
    code = None if result.error is None else result.error.code
    return error_to_json(status_of(code, FAILED_RUN_STATUSES.get(ending.error_type, 500)), ending.error["message"])
