"""Encoding of a scripted turn in each dialect: its events and its document, as the real services send them."""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from holodeck.models.generation import TIER
from holodeck.models.items import Usage
from holodeck.models.model_io import FinishReason, logprobs_to_json
from holodeck.testing.model.script import Call, ErrorEvent, Say, Think, split_say, split_text

Event = dict[str, Any]


class Writer(Protocol):
    """Encodes the steps of one answer as events of a dialect. One instance per answer."""

    tier: str | None
    """Reported from here on. None: none is."""

    def start(self, usage: Usage | None) -> list[Event]:
        """Return the first events. `usage`: that of the turn, of which some dialects have the input here."""
        ...

    def say(self, step: Say) -> list[Event]: ...
    def think(self, step: Think) -> list[Event]: ...
    def call(self, step: Call) -> list[Event]: ...
    def error(self, step: ErrorEvent) -> list[Event]: ...
    def end(self, finish: FinishReason | None, usage: Usage | None) -> list[Event]: ...
    def encode_event(self, event: Event) -> str:
        """Return the lines of an event, each with its line end."""
        ...

    def end_of_stream(self) -> str:
        """Return what follows the last event."""
        ...

    def join_events(self, events: list[Event]) -> Event:
        """Return the document of an answer with these events, for a request that does not stream."""
        ...


class ChatWriter:
    """Writer for Chat Completions."""

    def __init__(self, model: str, chunk: int | None) -> None:
        self._model, self._chunk = model, chunk
        self._calls = 0
        self.tier: str | None = None

    def start(self, usage: Usage | None) -> list[Event]:
        return [self._choice({"role": "assistant", "content": ""})]

    def say(self, step: Say) -> list[Event]:
        return [
            self._choice({"content": part.text}, logprobs={"content": logprobs_to_json(part.logprobs), "refusal": None})
            if part.logprobs
            else self._choice({"content": part.text})
            for part in split_say(step, self._chunk)
        ]

    def think(self, step: Think) -> list[Event]:
        return [self._choice({"reasoning_content": part}) for part in split_text(step.text, self._chunk)]

    def call(self, step: Call) -> list[Event]:
        index, self._calls = self._calls, self._calls + 1
        head: Event = {"id": step.call_id, "type": "function", "function": {"name": step.name, "arguments": ""}}
        fragments: list[Event] = [{"function": {"arguments": part}} for part in split_text(step.arguments, self._chunk)]
        return [self._choice({"tool_calls": [{"index": index, **part}]}) for part in (head, *fragments)]

    def error(self, step: ErrorEvent) -> list[Event]:
        return [{"error": {"message": step.message, "type": step.code, "code": step.code}}]

    def end(self, finish: FinishReason | None, usage: Usage | None) -> list[Event]:
        reason = finish or ("tool_calls" if self._calls else "stop")
        events = [self._event(choices=[{"index": 0, "delta": {}, "finish_reason": reason}])]
        if usage is not None:
            counts = {
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
                "total_tokens": usage.total_tokens,
                "prompt_tokens_details": {
                    "cached_tokens": usage.cached_tokens,
                    "cache_write_tokens": usage.cache_write_tokens,
                },
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            }
            events.append(self._event(choices=[], usage=counts))
        return events

    def encode_event(self, event: Event) -> str:
        return f"data: {orjson.dumps(event).decode()}\n\n"

    def end_of_stream(self) -> str:
        return "data: [DONE]\n\n"

    def join_events(self, events: list[Event]) -> Event:
        message: Event = {"role": "assistant", "content": None}
        calls: list[Event] = []
        choice: Event = {"index": 0, "message": message, "finish_reason": None}
        document: Event = {}
        for event in events:
            if "error" in event:
                return event
            document |= event
            for part in event["choices"]:
                choice["finish_reason"] = part["finish_reason"]
                if part.get("logprobs"):
                    choice.setdefault("logprobs", {"content": [], "refusal": None})
                    choice["logprobs"]["content"] += part["logprobs"]["content"]
                for fragment in part["delta"].pop("tool_calls", ()):
                    _join_call(calls, fragment)
                for name, text in part["delta"].items():
                    message[name] = text if name == "role" else (message.get(name) or "") + text or None
        if calls:
            message["tool_calls"] = calls
        return {**document, "object": "chat.completion", "choices": [choice]}

    def _choice(self, delta: Event, **fields: Any) -> Event:
        return self._event(choices=[{"index": 0, "delta": delta, **fields, "finish_reason": None}])

    def _event(self, **fields: Any) -> Event:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self._model}
        if self.tier is not None:
            head[TIER] = self.tier
        return {**head, **fields}


class ResponsesWriter:
    """Writer for the Responses API."""

    def __init__(self, model: str, chunk: int | None) -> None:
        self._model, self._chunk = model, chunk
        self._output: list[Event] = []
        self._number = -1
        self.tier: str | None = None

    def start(self, usage: Usage | None) -> list[Event]:
        return [
            self._event(f"response.{what}", response=self._response_resource("in_progress"))
            for what in ("created", "in_progress")
        ]

    def say(self, step: Say) -> list[Event]:
        logprobs = logprobs_to_json(step.logprobs)
        part: Event = {"type": "output_text", "text": step.text, "annotations": [], "logprobs": logprobs}
        item = self._add_item("message", "msg", role="assistant", content=[part])
        position = {"item_id": item["id"], "content_index": 0}
        return self._wrap_in_item_events(
            item,
            {**item, "content": []},
            [
                self._item_event("response.content_part.added", **position, part={**part, "text": "", "logprobs": []}),
                *(
                    self._item_event(
                        "response.output_text.delta",
                        **position,
                        delta=part.text,
                        logprobs=logprobs_to_json(part.logprobs),
                    )
                    for part in split_say(step, self._chunk)
                ),
                self._item_event("response.output_text.done", **position, text=step.text, logprobs=logprobs),
                self._item_event("response.content_part.done", **position, part=part),
            ],
        )

    def think(self, step: Think) -> list[Event]:
        content = [{"type": "reasoning_text", "text": step.text}]
        item = self._add_item("reasoning", "rs", summary=[], content=content, **step.opaque)
        position = {"item_id": item["id"], "content_index": 0}
        deltas = [
            self._item_event("response.reasoning_text.delta", **position, delta=part)
            for part in split_text(step.text, self._chunk)
        ]
        return self._wrap_in_item_events(item, {**item, "content": []}, deltas)

    def call(self, step: Call) -> list[Event]:
        item = self._add_item("function_call", "fc", call_id=step.call_id, name=step.name, arguments=step.arguments)
        kind, position = "response.function_call_arguments", {"item_id": item["id"]}
        deltas = [
            self._item_event(f"{kind}.delta", **position, delta=part)
            for part in split_text(step.arguments, self._chunk)
        ]
        done = self._item_event(f"{kind}.done", **position, arguments=step.arguments)
        return self._wrap_in_item_events(item, {**item, "arguments": ""}, [*deltas, done])

    def error(self, step: ErrorEvent) -> list[Event]:
        return [self._event("error", code=step.code, message=step.message, param=None)]

    def end(self, finish: FinishReason | None, usage: Usage | None) -> list[Event]:
        reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
        status = "incomplete" if finish in reasons else "completed"
        response = self._response_resource(status)
        if status == "incomplete":
            response["incomplete_details"] = {"reason": reasons[finish or ""]}
        if usage is not None:
            response["usage"] = {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {
                    "cached_tokens": usage.cached_tokens,
                    "cache_write_tokens": usage.cache_write_tokens,
                },
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
                "total_tokens": usage.total_tokens,
            }
        return [self._event(f"response.{status}", response=response)]

    def encode_event(self, event: Event) -> str:
        return _encode_named_event(event)

    def end_of_stream(self) -> str:
        return "data: [DONE]\n\n"

    def join_events(self, events: list[Event]) -> Event:
        last = events[-1]
        if last["type"] == "error":
            error = {"code": last["code"], "message": last["message"]}
            return {**self._response_resource("failed"), "error": error}
        return last.get("response") or self._response_resource("in_progress")

    def _add_item(self, kind: str, prefix: str, **fields: Any) -> Event:
        item = {"type": kind, "id": f"{prefix}_{len(self._output)}", "status": "completed", **fields}
        self._output.append(item)
        return item

    def _wrap_in_item_events(self, item: Event, empty: Event, inner: list[Event]) -> list[Event]:
        added = self._item_event("response.output_item.added", item={**empty, "status": "in_progress"})
        return [added, *inner, self._item_event("response.output_item.done", item=item)]

    def _item_event(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, output_index=len(self._output) - 1, **fields)

    def _response_resource(self, status: str) -> Event:
        return {
            "id": "resp_1",
            "object": "response",
            "status": status,
            "model": self._model,
            "output": list(self._output),
            **({} if self.tier is None else {TIER: self.tier}),
        }

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}


class AnthropicWriter:
    """Writer for Anthropic Messages."""

    def __init__(self, model: str, chunk: int | None) -> None:
        self._model, self._chunk = model, chunk
        self._blocks = 0
        self._calls = 0
        self.tier: str | None = None

    def start(self, usage: Usage | None) -> list[Event]:
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": self._model, "content": []}
        counts = {"input_tokens": 1} if usage is None else _count_anthropic_input(usage)
        return [
            {
                "type": "message_start",
                "message": {**message, "stop_reason": None, "usage": counts | {"output_tokens": 1}},
            },
            {"type": "ping"},
        ]

    def say(self, step: Say) -> list[Event]:
        deltas = [{"type": "text_delta", "text": part} for part in split_text(step.text, self._chunk)]
        return self._block_events({"type": "text", "text": ""}, deltas)

    def think(self, step: Think) -> list[Event]:
        if "data" in step.opaque:
            return self._block_events({"type": "redacted_thinking", **step.opaque}, [])
        deltas: list[Event] = [
            {"type": "thinking_delta", "thinking": part} for part in split_text(step.text, self._chunk)
        ]
        if "signature" in step.opaque:
            deltas.append({"type": "signature_delta", **step.opaque})
        return self._block_events({"type": "thinking", "thinking": "", "signature": ""}, deltas)

    def call(self, step: Call) -> list[Event]:
        self._calls += 1
        deltas = [
            {"type": "input_json_delta", "partial_json": part}
            for part in ("", *split_text(step.arguments, self._chunk))
        ]
        return self._block_events({"type": "tool_use", "id": step.call_id, "name": step.name, "input": {}}, deltas)

    def error(self, step: ErrorEvent) -> list[Event]:
        return [{"type": "error", "error": {"type": step.code, "message": step.message}}]

    def end(self, finish: FinishReason | None, usage: Usage | None) -> list[Event]:
        names = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
        reason = names[finish or ("tool_calls" if self._calls else "stop")]
        counts: Event = {"output_tokens": 1}
        if usage is not None:
            counts = {
                **_count_anthropic_input(usage),
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
            }
        if self.tier is not None:
            counts[TIER] = self.tier
        delta = {"stop_reason": reason, "stop_sequence": None}
        return [{"type": "message_delta", "delta": delta, "usage": counts}, {"type": "message_stop"}]

    def encode_event(self, event: Event) -> str:
        return _encode_named_event(event)

    def end_of_stream(self) -> str:
        return ""

    def join_events(self, events: list[Event]) -> Event:
        message: Event = {}
        blocks: list[Event] = []
        arguments = ""
        for event in events:
            match event["type"]:
                case "error":
                    return event
                case "message_start":
                    message = {**event["message"], "content": blocks}
                case "content_block_start":
                    blocks.append(dict(event["content_block"]))
                    arguments = ""
                case "content_block_delta":
                    delta = {name: text for name, text in event["delta"].items() if name != "type"}
                    arguments += delta.pop("partial_json", "")
                    blocks[-1] |= {name: blocks[-1].get(name, "") + text for name, text in delta.items()}
                case "content_block_stop" if arguments:
                    blocks[-1]["input"] = _parse_arguments(arguments)
                case "message_delta":
                    message |= event["delta"]
                    message["usage"] = {**message["usage"], **event["usage"]}
        return message

    def _block_events(self, block: Event, deltas: list[Event]) -> list[Event]:
        index, self._blocks = self._blocks, self._blocks + 1
        return [
            {"type": "content_block_start", "index": index, "content_block": block},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]


def _count_anthropic_input(usage: Usage) -> Event:
    """Return the three kinds of input tokens, of which none contains another."""
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens - usage.cache_write_1h_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
    }


def _join_call(calls: list[Event], fragment: Event) -> None:
    """Add a fragment of a call to the calls of a Chat Completions message."""
    if fragment["index"] == len(calls):
        calls.append({name: value for name, value in fragment.items() if name != "index"})
    else:
        calls[fragment["index"]]["function"]["arguments"] += fragment["function"]["arguments"]


def _parse_arguments(text: str) -> Any:
    """Return the input of a call. Text that is no JSON stays text, which no real service sends."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _encode_named_event(event: Event) -> str:
    return f"event: {event.get('type')}\ndata: {orjson.dumps(event).decode()}\n\n"
