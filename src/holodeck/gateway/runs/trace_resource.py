"""The trace of a run as `/v1/runs/{id}/trace` shows it: its spans, with the items that they refer to.

The stored trace has steps with times, numbers of items and names only. Arguments, outputs, and what the model was sent
in a turn come from the items that are stored with the response, or from those of a run that goes on. The instructions
of the operator come from the current configuration, if its digest of them is the stored one.

These instructions, and the names of the tools that the model was offered, are for operators only: a caller sees of the
gateway's own tools those that its request declares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.gateway.backends import Backend
from holodeck.gateway.runs.trace_spans import build_spans
from holodeck.lib.json.parse import parse_json

# Characters of arguments and outputs in a span. `items` has all of them.
MAX_SPAN_TEXT = 16_384

_EMPTY_SPAN: Mapping[str, Any] = {
    "id": "",
    "parent": None,
    "kind": "run",
    "name": "",
    "server": None,
    "tool": None,
    "call_id": None,
    "start": 0.0,
    "seconds": None,
    "status": "running",
    "first_token_seconds": None,
    "usage": None,
    "cost": None,
    "arguments": None,
    "output": None,
    "is_error": None,
    "error": None,
    "input_items": None,
    "output_items": None,
    "tools": None,
}


def build_trace_resource(
    run: Mapping[str, Any],
    trace: Mapping[str, Any],
    items: Sequence[Mapping[str, Any]],
    instructions: str | None,
    *,
    backend: Backend | None,
    is_operator: bool,
) -> dict[str, Any]:
    """The trace. `run`: its resource. `trace`: as `RunTrace.encode` has it. `items`: the stored ones of the response.

    `instructions`: those of the request. `backend`: the one that has the name of the run's model now, if any.
    `is_operator`: the reader may see what the operator's configuration gave the model.
    """
    spans = build_spans(trace["steps"])
    finder = _ItemFinder(trace, spans, items, has_tools=is_operator)
    digest = trace.get("instructions_digest") if is_operator else None
    is_unchanged = digest is not None and backend is not None and backend.instructions_digest == digest
    return {
        "object": "run.trace",
        "run": run,
        "started_at": trace["created_at"],
        "instructions": instructions,
        "agent_instructions": backend.instructions if backend is not None and is_unchanged else None,
        "agent_instructions_changed": digest is not None and not is_unchanged,
        "context": {
            "previous_response_id": run["previous_response_id"],
            "conversation": run["conversation"],
            "items": trace["context_count"],
        },
        "items": [_show_item(item) for item in items],
        "spans": sorted(
            (finder.complete(span) for span in spans), key=lambda span: (span["start"], span["kind"] != "run")
        ),
    }


class _ItemFinder:
    """Finds the items of a response that a span refers to."""

    def __init__(
        self,
        trace: Mapping[str, Any],
        spans: Sequence[Mapping[str, Any]],
        items: Sequence[Mapping[str, Any]],
        *,
        has_tools: bool,
    ) -> None:
        self._tool_lists = trace.get("tool_lists") if has_tools else None
        self._offset = int(trace["item_offset"])
        self._count = len(items)
        self._calls = {item["call_id"]: item for item in items if item["type"] == "function_call"}
        self._outputs = {item["call_id"]: item for item in items if item["type"] == "function_call_output"}
        compactions = [span["first_item"] for span in spans if span["kind"] == "compaction"]
        self._last_compaction: int | None = compactions[-1] if compactions else None

    def complete(self, built: Mapping[str, Any]) -> dict[str, Any]:
        span = {**_EMPTY_SPAN, **{name: value for name, value in built.items() if name in _EMPTY_SPAN}}
        if span["usage"] is not None:
            usage = span["usage"]
            span["usage"] = {**usage, "total_tokens": usage["input_tokens"] + usage["output_tokens"]}
        if span["call_id"] is not None:
            self._add_call(span)
        if self._tool_lists is not None and (number := built["tool_list"]) is not None:
            span["tools"] = self._tool_lists[number]
        first, count = built["first_item"], built["item_count"]
        if first is None:
            return span
        if span["kind"] in ("turn", "model"):
            span["input_items"] = self._list_input(first, count)
        span["output_items"] = self._list_indexes(first, first + count)
        return span

    def _list_input(self, first: int, count: int) -> list[int] | None:
        """The items that the model was sent. None: a later compaction has replaced them."""
        compaction = self._last_compaction
        if compaction is not None and compaction >= first + max(count, 1):
            return None
        end = first if compaction is None or compaction < first else compaction + 1
        return list(range(max(0, min(end + self._offset, self._count))))

    def _list_indexes(self, first: int, end: int) -> list[int]:
        if self._last_compaction is not None:
            first = max(first, self._last_compaction + 1)
        return [index for number in range(first, end) if 0 <= (index := number + self._offset) < self._count]

    def _add_call(self, span: dict[str, Any]) -> None:
        call, output = self._calls.get(span["call_id"]), self._outputs.get(span["call_id"])
        if call is not None:
            span["arguments"] = _parse_arguments(call["arguments"])
        if output is not None and span["kind"] == "tool":
            texts = [part["text"] for part in output["content"] if part["type"] == "text"]
            span["output"] = "\n".join(texts)[:MAX_SPAN_TEXT]
            span["is_error"] = bool(output.get("is_error", False))


def _parse_arguments(text: str) -> Any:
    """Arguments as JSON, or as the text that the model wrote where that is no JSON or very long."""
    if len(text) > MAX_SPAN_TEXT:
        return text[:MAX_SPAN_TEXT]
    try:
        return parse_json(text)
    except ValueError:
        return text


def _show_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item without what only the provider can read."""
    return {name: value for name, value in item.items() if name not in ("opaque", "encrypted_content")}
