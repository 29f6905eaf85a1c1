"""The trace of a run as `/v1/runs/{id}/trace` shows it: its spans, with the items that they refer to.

The stored trace has steps with times, numbers of items and names only. Arguments, outputs, and what the model was sent
in a turn come from the items that are stored with the response, or from those of a run that goes on. The instructions
of the operator come from the current configuration, if its digest of them is the stored one.

These instructions, the names of the tools that the model was offered, and notices, which have names of servers and of
tools, are for operators only: a caller sees of the gateway's own tools those that its request declares.

There are spans of the run, of each turn with its request to the model, of each tool call, of retries, of a compaction,
and of waiting. A notice is a span without a duration, whose name is its text. What another process has finished before
the run was resumed stays; the time until then is a span `recovery`, and what was replayed after it has no second span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from holodeck.gateway.backends import Backend
from holodeck.gateway.runs.trace_steps import (
    MICROSECONDS,
    Answered,
    CallBegun,
    CallEnded,
    Compacted,
    Cut,
    Ended,
    Mark,
    Noticed,
    Output,
    Resumed,
    Retry,
    StandIn,
    Step,
    StoredTrace,
    TurnBegun,
)
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
    trace: StoredTrace,
    items: Sequence[Mapping[str, Any]],
    instructions: str | None,
    *,
    backend: Backend | None,
    is_operator: bool,
) -> dict[str, Any]:
    """Build the trace. `run`: its resource. `items`: the stored ones.

    `instructions`: those of the request. `backend`: the one that has the name of the run's model now, if any.
    `is_operator`: the reader may see what the operator's configuration gave the model.
    """
    spans = [span for span in build_spans(trace["steps"]) if is_operator or span["kind"] != "notice"]
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
        trace: StoredTrace,
        spans: Sequence[Mapping[str, Any]],
        items: Sequence[Mapping[str, Any]],
        *,
        has_tools: bool,
    ) -> None:
        self._tool_lists = trace.get("tool_lists") if has_tools else None
        self._offset = trace["item_offset"]
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
        """Return the items that the model was sent. None: a later compaction has replaced them."""
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
    """Return arguments as JSON, or as the text that the model wrote where that is no JSON or very long."""
    if len(text) > MAX_SPAN_TEXT:
        return text[:MAX_SPAN_TEXT]
    try:
        return parse_json(text)
    except ValueError:
        return text


def _show_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item without what only the provider can read."""
    return {name: value for name, value in item.items() if name not in ("opaque", "encrypted_content")}


SpanKind = Literal["run", "turn", "model", "tool", "approval", "wait", "retry", "recovery", "compaction", "notice"]
SpanStatus = Literal["ok", "error", "running", "refused"]

# Digits of seconds: microseconds.
_DIGITS = 6


@dataclass(slots=True, kw_only=True)
class Span:
    """One step of a run with its duration."""

    id: str
    parent: str | None
    kind: SpanKind
    name: str
    start: float
    seconds: float | None = None
    """None while it goes on."""
    status: SpanStatus = "running"
    server: str | None = None
    tool: str | None = None
    call_id: str | None = None
    first_token_seconds: float | None = None
    usage: Mapping[str, int] | None = None
    cost: float | None = None
    error: str | None = None
    first_item: int | None = None
    """The number of the run's first item that the turn added, or of the output of a call."""
    item_count: int = 0
    """How many items it added."""
    tool_list: int | None = None
    """The number of the list of tools that the model was offered. None: it is no model's, or not recorded."""

    def end(self, now: float, status: SpanStatus = "ok", error: str | None = None) -> None:
        if self.seconds is None:
            self.seconds = round(now - self.start, _DIGITS)
            self.status, self.error = status, error


def build_spans(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return the spans as JSON, in the order in which they began. The first one is that of the run."""
    builder = _SpanBuilder()
    for step in steps:
        _BUILDERS[step["kind"]](builder, step, step["at"] / MICROSECONDS)
    return [asdict(span) for span in builder.spans]


class _SpanBuilder:
    """Adds and ends spans, step by step."""

    def __init__(self) -> None:
        self._run = Span(id="run", parent=None, kind="run", name="run", start=0.0)
        self.spans: list[Span] = [self._run]
        self._turn: Span | None = None
        self._model: Span | None = None
        self._calls: dict[str, Span] = {}
        """The calls that the latest process has started or replayed."""

    def add_queue(self, step: Mark, now: float) -> None:
        self._add("wait", "queue", now)

    def start_run(self, step: Mark, now: float) -> None:
        for span in self.spans:
            if span.kind == "wait":
                span.end(now)

    def start_turn(self, step: TurnBegun, now: float) -> None:
        number = step["number"]
        self._end_turn(now, step["items"])
        known = self._find(f"turn_{number}") if step["is_replayed"] else None
        if known is not None:
            self._turn, self._model = known, self._find(f"model_{number}")
            return
        self._turn = self._add("turn", f"turn {number}", now, number=number)
        self._model = self._add("model", "model", now, self._turn, number)
        self._turn.first_item = self._model.first_item = step["items"]
        self._model.tool_list = step["tool_list"]

    def set_stand_in(self, step: StandIn, now: float) -> None:
        """Name the request by the model that answers in place of the usual one."""
        if self._model is not None:
            self._model.name = step["name"]

    def add_notice(self, step: Noticed, now: float) -> None:
        """Add a notice below the latest call that runs. Between two turns it is one of the run."""
        running = (call for call in reversed(self._calls.values()) if call.seconds is None)
        self._add("notice", step["text"], now, next(running, None)).end(now)

    def add_token(self, step: Mark, now: float) -> None:
        if self._model is not None:
            self._model.first_token_seconds = round(now - self._model.start, _DIGITS)
        if self._run.first_token_seconds is None:
            self._run.first_token_seconds = now

    def add_compaction(self, step: Compacted, now: float) -> None:
        if self._model is None:
            return
        span = self._add("compaction", "compaction", self._model.start, self._turn)
        span.first_item, span.item_count = step["item"], 1
        span.end(now)
        # The model is asked after it.
        self._model.start = now

    def add_retry(self, step: Retry, now: float) -> None:
        """Add a span of the failed attempt and the pause after it."""
        if self._model is None:
            return
        attempts = (span for span in self.spans if span.kind == "retry" and span.parent == self._model.id)
        start = max((span.start + (span.seconds or 0.0) for span in attempts), default=self._model.start)
        self._add("retry", "retry", start, self._model).end(now + step["pause"], "error", step["error"])

    def end_model(self, step: Answered, now: float) -> None:
        model = self._model
        if model is None or model.seconds is not None:
            return
        if model.first_item is not None:
            model.item_count = step["items"] - model.first_item
        model.usage, model.cost = step["tokens"], step["cost"]
        model.end(now)

    def cut_model(self, step: Cut, now: float) -> None:
        """Note what a request has cost whose answer is not complete. It ends with the run, or is sent again."""
        if self._model is not None:
            self._model.usage, self._model.cost = step["tokens"], step["cost"]

    def start_call(self, step: CallBegun, now: float) -> None:
        call_id, name = step["call_id"], step["name"]
        known = next((span for span in self.spans if span.call_id == call_id and span.kind == "tool"), None)
        if known is None or call_id in self._calls:
            known = self._add("tool", name, now, self._turn)
            known.tool, known.call_id = name, call_id
        self._calls[call_id] = known

    def set_output(self, step: Output, now: float) -> None:
        if (call := self._calls.get(step["call_id"])) is not None:
            call.first_item, call.item_count = step["item"], 1

    def end_call(self, step: CallEnded, now: float) -> None:
        span = self._calls.get(step["call_id"])
        if span is None or span.seconds is not None:
            return
        if step["server"]:
            span.server, span.tool = step["server"], step["tool"]
        span.end(now, step["status"])

    def resume(self, step: Resumed, now: float) -> None:
        """Drop what the process before has not finished: it begins anew."""
        # A turn ends with the next one, and is not begun anew if its model has answered.
        answered = {span.parent for span in self.spans if span.kind == "model" and span.seconds is not None}
        self.spans = [
            span for span in self.spans if span.seconds is not None or span is self._run or span.id in answered
        ]
        self._turn = self._model = None
        self._calls = {}
        self._add("recovery", "recovery", step["recorded"] / MICROSECONDS).end(now)

    def end_run(self, step: Ended, now: float) -> None:
        reason = step["reason"]
        for span in self.spans:
            if span.kind in ("model", "tool") and span.seconds is None:
                span.end(now, "error", reason or "The run ended before it.")
        self._end_turn(now, step["items"])
        for call in step.get("open_calls", ()):
            span = self._add("approval" if call["is_held"] else "wait", call["name"], now, self._turn)
            span.tool, span.call_id = call["name"], call["call_id"]
        self._run.usage, self._run.cost = step["tokens"], step["cost"]
        self._run.end(now, "error" if step["is_error"] else "ok", reason)

    def _end_turn(self, now: float, items: int) -> None:
        if self._turn is None or self._turn.seconds is not None:
            return
        if self._turn.first_item is not None:
            self._turn.item_count = items - self._turn.first_item
        self._turn.end(now)

    def _add(self, kind: SpanKind, name: str, start: float, parent: Span | None = None, number: int = 0) -> Span:
        above = parent or self._run
        count = number or sum(span.kind == kind for span in self.spans) + 1
        span = Span(id=f"{kind}_{count}", parent=above.id, kind=kind, name=name, start=start)
        self.spans.append(span)
        return span

    def _find(self, span_id: str) -> Span | None:
        return next((span for span in self.spans if span.id == span_id), None)


_BUILDERS: Mapping[str, Callable[[_SpanBuilder, Any, float], None]] = {
    "queued": _SpanBuilder.add_queue,
    "started": _SpanBuilder.start_run,
    "turn": _SpanBuilder.start_turn,
    "stand_in": _SpanBuilder.set_stand_in,
    "notice": _SpanBuilder.add_notice,
    "token": _SpanBuilder.add_token,
    "compaction": _SpanBuilder.add_compaction,
    "retry": _SpanBuilder.add_retry,
    "answer": _SpanBuilder.end_model,
    "cut": _SpanBuilder.cut_model,
    "call": _SpanBuilder.start_call,
    "output": _SpanBuilder.set_output,
    "result": _SpanBuilder.end_call,
    "resumed": _SpanBuilder.resume,
    "ended": _SpanBuilder.end_run,
}
