"""When the steps of one run began and how long they took: recorded from its events as they are appended.

A `RunTrace` belongs to one run in one process. It has spans: of the run, of each turn with its request to the model,
of each tool call, of a compaction, and of waiting. Spans refer to items by their number among those of the run, and the
operator's instructions are there as a digest, so that the only texts are names. `encode` is what is stored with the
response, and `restore` continues the trace of a process that has ended: the time between its last event and now becomes
a span `recovery`.

Times are seconds from the creation of the run, on the clock of this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from holodeck.gateway.runs.offered_tools import OfferedTools
from holodeck.lib.errors import ModelError, StorageError
from holodeck.models.events import (
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    RunFinished,
    RunResult,
    RunStarted,
    TextAdded,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from holodeck.models.items import Compaction, FunctionCall, FunctionCallOutput, Item, Usage
from holodeck.models.price import Price
from holodeck.tools.executor import REFUSED

SpanKind = Literal["run", "turn", "model", "tool", "approval", "wait", "retry", "recovery", "compaction"]
SpanStatus = Literal["ok", "error", "running", "refused"]

# Digits of seconds: microseconds.
_DIGITS = 6
# Decimal places of a cost: prices are for a million tokens.
COST_DIGITS = 10
# In place of a digest: the turns of the run had different instructions, since it went on with another configuration.
SEVERAL_INSTRUCTIONS = "several"


@dataclass(slots=True, kw_only=True)
class Span:
    """One step of a run. It changes until it ends."""

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
    usage: Usage | None = None
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

    def to_json(self) -> dict[str, Any]:
        """What is stored: the fields that are not at their default."""
        fields = {
            "id": self.id,
            "parent": self.parent,
            "kind": self.kind,
            "name": self.name,
            "start": round(self.start, _DIGITS),
            "seconds": self.seconds,
            "status": self.status,
            "server": self.server,
            "tool": self.tool,
            "call_id": self.call_id,
            "first_token_seconds": self.first_token_seconds,
            "usage": None if self.usage is None else _encode_usage(self.usage),
            "cost": self.cost,
            "error": self.error,
            "first_item": self.first_item,
            "item_count": self.item_count or None,
            "tool_list": self.tool_list,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Span:
        usage = stored.get("usage")
        values = {"parent": None, **stored, "usage": None if usage is None else Usage(**usage)}
        return Span(**values)


class RunTrace:
    """Records one run. `record` is called with every event of the run, in order, and costs next to nothing."""

    def __init__(
        self,
        *,
        created_at: float | None = None,
        price: Price | None = None,
        on_cost: Callable[[float], None] | None = None,
        offered: OfferedTools | None = None,
        instructions_digest: str | None = None,
    ) -> None:
        """`created_at`: of a run that another process has begun, in seconds since 1970.

        `on_cost` is called with the cost of each turn when it has ended, unless it was replayed.
        `offered`: the tools of the run; None: they are not recorded. `instructions_digest`: of the operator's
        instructions, if the model is sent them.
        """
        now = time.time()
        # As it is shown, so that a list can be filtered by it.
        self.created_at = round(now, _DIGITS) if created_at is None else created_at
        self._zero = time.monotonic() - (now - self.created_at)
        self._price = price
        self._on_cost = on_cost
        self._offered = offered
        self._instructions_digest = instructions_digest
        self._run = Span(id="run", parent=None, kind="run", name="run", start=0.0)
        self._spans: list[Span] = [self._run]
        self._turn: Span | None = None
        self._model: Span | None = None
        self._calls: dict[str, Span] = {}
        self._awaits_token = False
        self.items: list[Item] = []
        """What the run has added so far, in order."""
        self.turns = 0
        self.usage = Usage()
        """The tokens of the turns that have ended."""
        self.first_token_seconds: float | None = None
        """Seconds from the creation of the run to the first piece of the first answer. None: there was none yet."""
        self.item_offset = 0
        """What to add to the number of an item of the run for its index among the stored items of the response."""
        self.context_count = 0
        """How many items of earlier responses, or of the conversation, the model was sent before the stored ones."""

    @property
    def seconds(self) -> float:
        """Seconds since the run was created, or until it ended."""
        return self._now() if self._run.seconds is None else self._run.seconds

    @property
    def is_finished(self) -> bool:
        return self._run.seconds is not None

    def cost_of(self, usage: Usage) -> float | None:
        """The cost of tokens of the run's model. None: the model has no price."""
        return None if self._price is None else round(self._price.cost_of(usage), COST_DIGITS)

    def list_tools(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the servers and of the tools that were called, each once."""
        spans = [span for span in self._spans if span.kind == "tool"]
        servers = dict.fromkeys(span.server for span in spans if span.server)
        return tuple(servers), tuple(dict.fromkeys(span.tool for span in spans if span.tool))

    @property
    def tool_calls(self) -> int:
        return sum(span.kind == "tool" for span in self._spans)

    def record(self, event: Event) -> None:
        """Record an event of the run that happens now."""
        match event:
            case TextAdded() | ReasoningAdded() | CallAdded():
                # First, because it is what a stream consists of.
                if self._awaits_token:
                    self._record_token()
            case ItemFinished():
                self._record_item(event.item)
            case ToolStarted():
                self._start_call(event)
            case ToolFinished():
                self._end_call(event)
            case TurnStarted():
                self._start_turn(event)
            case TurnFinished():
                self._end_model(event)
            case RunStarted():
                self._start_run()
            case RunFinished():
                self._end_run(event.result)
            case _:
                pass

    def record_retry(self, error: ModelError, pause: float) -> None:
        """Record that the model is asked again: the span is the failed attempt and the pause after it."""
        if self._model is None:
            return
        attempts = (span for span in self._spans if span.kind == "retry" and span.parent == self._model.id)
        start = max((span.start + (span.seconds or 0.0) for span in attempts), default=self._model.start)
        self._add("retry", "retry", start, self._model).end(self._now() + pause, "error", error.public_text)

    def record_queued(self) -> None:
        """Record that the run waits in a queue, until it starts."""
        self._add("wait", "queue", self._now())

    def set_stored_items(self, *, before: int, context: int) -> None:
        """Say where the items of the run are stored.

        `before`: how many items of the response come before them. `context`: see `context_count`.
        """
        self.item_offset, self.context_count = before, context
        for number, item in enumerate(self.items):
            if isinstance(item, Compaction):
                # Its content is stored in place of all that came before it.
                self.item_offset, self.context_count = len(item.items) - (number + 1), 0

    def encode(self) -> bytes:
        """The trace as it is now, for storage."""
        return orjson.dumps(self._to_json())

    def _to_json(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "created_at": self.created_at,
            "item_offset": self.item_offset,
            "context_count": self.context_count,
            "recorded": round(self._now(), _DIGITS),
            "spans": [span.to_json() for span in self._spans],
        }
        if self._instructions_digest is not None:
            state["instructions_digest"] = self._instructions_digest
        if self._offered is not None:
            state["tool_lists"] = self._offered.to_json()
        return state

    @staticmethod
    def restore(
        stored: bytes,
        *,
        price: Price | None = None,
        on_cost: Callable[[float], None] | None = None,
        offered: OfferedTools | None = None,
        instructions_digest: str | None = None,
    ) -> RunTrace:
        """Continue the trace that an earlier process has stored. Raises `StorageError` where it is not one."""
        try:
            state = orjson.loads(stored)
            spans = [Span.from_json(each) for each in state["spans"]]
            trace = RunTrace(created_at=float(state["created_at"]), price=price, on_cost=on_cost, offered=offered)
            recorded = float(state["recorded"])
            trace._run = spans[0]
            trace._instructions_digest = state.get("instructions_digest")
            if offered is not None:
                offered.restore(state.get("tool_lists", ()))
        except (ValueError, TypeError, LookupError) as error:
            raise StorageError(f"A stored trace is damaged: {error}") from error
        # What was finished is replayed with the times that are stored; the rest begins anew.
        trace._spans = [span for span in spans if span.seconds is not None or span is spans[0]]
        if trace._instructions_digest != instructions_digest:
            was_asked = any(span.kind == "model" for span in trace._spans)
            trace._instructions_digest = SEVERAL_INSTRUCTIONS if was_asked else instructions_digest
        tokens = (span.start + span.first_token_seconds for span in spans if span.first_token_seconds is not None)
        trace.first_token_seconds = next(tokens, None)
        trace._add("recovery", "recovery", recorded).end(trace._now())
        return trace

    def _now(self) -> float:
        return time.monotonic() - self._zero

    def _add(self, kind: SpanKind, name: str, start: float, parent: Span | None = None, number: int = 0) -> Span:
        above = parent or self._run
        count = number or sum(span.kind == kind for span in self._spans) + 1
        span = Span(id=f"{kind}_{count}", parent=above.id, kind=kind, name=name, start=start)
        self._spans.append(span)
        return span

    def _find(self, span_id: str) -> Span | None:
        return next((span for span in self._spans if span.id == span_id), None)

    def _start_run(self) -> None:
        now = self._now()
        for span in self._spans:
            if span.kind == "wait":
                span.end(now)

    def _start_turn(self, event: TurnStarted) -> None:
        now, self.turns = self._now(), event.turn
        self._end_turn(now)
        known = self._find(f"turn_{event.turn}") if event.is_replayed else None
        if known is not None:
            self._turn, self._model = known, self._find(f"model_{event.turn}")
            return
        self._turn = self._add("turn", f"turn {event.turn}", now, number=event.turn)
        self._turn.first_item = len(self.items)
        self._model = self._add("model", "model", now, self._turn, event.turn)
        self._model.first_item = len(self.items)
        if self._offered is not None and not event.is_replayed:
            self._model.tool_list = self._offered.find_number()
        self._awaits_token = not event.is_replayed

    def _record_token(self) -> None:
        self._awaits_token = False
        now = self._now()
        if self._model is not None:
            self._model.first_token_seconds = round(now - self._model.start, _DIGITS)
        if self.first_token_seconds is None:
            self.first_token_seconds = round(now, _DIGITS)

    def _record_item(self, item: Item) -> None:
        self.items.append(item)
        if isinstance(item, Compaction) and self._model is not None:
            now = self._now()
            span = self._add("compaction", "compaction", self._model.start, self._turn)
            span.first_item, span.item_count = len(self.items) - 1, 1
            span.end(now)
            # The model is asked after it.
            self._model.start = now
        elif isinstance(item, FunctionCallOutput) and (call := self._calls.get(item.call_id)) is not None:
            call.first_item, call.item_count = len(self.items) - 1, 1

    def _end_model(self, event: TurnFinished) -> None:
        now = self._now()
        self._awaits_token = False
        self.usage += event.usage
        if self._on_cost is not None and not event.is_replayed and (cost := self.cost_of(event.usage)):
            self._on_cost(cost)
        model = self._model
        if model is None or model.seconds is not None:
            return
        if model.first_item is not None:
            model.item_count = len(self.items) - model.first_item
        model.usage, model.cost = event.usage, self.cost_of(event.usage)
        model.end(now)

    def _end_turn(self, now: float) -> None:
        if self._turn is None or self._turn.seconds is not None:
            return
        if self._turn.first_item is not None:
            self._turn.item_count = len(self.items) - self._turn.first_item
        self._turn.end(now)

    def _start_call(self, event: ToolStarted) -> None:
        known = next((span for span in self._spans if span.call_id == event.call_id and span.kind == "tool"), None)
        if known is None or event.call_id in self._calls:
            known = self._add("tool", event.name, self._now(), self._turn)
            known.tool, known.call_id = event.name, event.call_id
        self._calls[event.call_id] = known

    def _end_call(self, event: ToolFinished) -> None:
        span = self._calls.get(event.call_id)
        if span is None or span.seconds is not None:
            return
        metadata = event.metadata
        if "server" in metadata:
            span.server, span.tool = str(metadata["server"]), str(metadata.get("tool", event.name))
        is_refused = REFUSED in metadata
        span.end(self._now(), "refused" if is_refused else "error" if event.output.is_error else "ok")

    def _end_run(self, result: RunResult) -> None:
        now = self._now()
        reason = result.error.public_message if result.error is not None else result.reason or None
        is_ended = result.status in ("failed", "cancelled")
        for span in reversed(self._spans):
            if span.kind in ("model", "tool") and span.seconds is None:
                span.end(now, "error", reason or "The run ended before it.")
        self._end_turn(now)
        if result.status in ("completed", "requires_action"):
            self._add_open_calls(result, now)
        self._run.usage, self._run.cost = result.usage, self.cost_of(result.usage)
        self._run.first_token_seconds = self.first_token_seconds
        self._run.end(now, "error" if is_ended else "ok", reason)

    def _add_open_calls(self, result: RunResult, now: float) -> None:
        """Add the calls that wait for an approval or for the client, which goes on after the run."""
        answered = {item.call_id for item in self.items if isinstance(item, FunctionCallOutput)}
        for item in self.items:
            if isinstance(item, FunctionCall) and item.call_id not in answered:
                span = self._add("approval" if item.call_id in result.held else "wait", item.name, now, self._turn)
                span.tool, span.call_id = item.name, item.call_id


def _encode_usage(usage: Usage) -> dict[str, int]:
    # Written out for speed: `asdict` would take longer than the rest of a span.
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
