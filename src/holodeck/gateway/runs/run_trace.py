"""The trace of one run: recorded from its events as they are appended, and stored with its response.

A `RunTrace` belongs to one run in one process. Every request has one, so it only notes steps (`trace_steps.py`), of
which `trace_resource.py` builds spans when the trace is read. `encode` is what is stored, and `restore` continues the
trace of a process that has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Protocol

import orjson

from holodeck.gateway.runs.trace_steps import (
    MICROSECONDS,
    TOKEN_NAMES,
    TRACE_VERSION,
    Ended,
    OpenCall,
    ResultStatus,
    Step,
    StoredTrace,
)
from holodeck.lib.errors import ModelError, StorageError
from holodeck.lib.record import record
from holodeck.models.events import (
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    RunFinished,
    RunNoticed,
    RunResult,
    RunStarted,
    StandInAnswered,
    TextAdded,
    ToolFinished,
    ToolStarted,
    TurnCut,
    TurnFinished,
    TurnStarted,
)
from holodeck.models.items import Compaction, FunctionCall, FunctionCallOutput, Item, Usage
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import REFUSED
from holodeck.tools.toolbox import Toolbox


class TurnListener(Protocol):
    """Takes a turn: its model, its seconds (None: it has no answer), those until its first token (None: the answer has
    no content), tokens and cost."""

    def __call__(
        self, model: str, *, seconds: float | None, first_token_seconds: float | None, usage: Usage, cost: float | None
    ) -> None: ...


# Decimal places of a cost: prices are for a million tokens.
COST_DIGITS = 10
# In place of a digest: the turns of the run had different instructions, since it went on with another configuration.
SEVERAL_INSTRUCTIONS = "several"


@record
class TraceSettings:
    """The part of a run that its trace is given."""

    model: str = ""
    """Its public name."""
    is_priced: bool = False
    """Whether the model has a price."""
    on_turn: TurnListener | None = None
    """Called after each turn for which this process asked the model."""
    offered: OfferedTools | None = None
    """The tools of the run. None: they are not recorded."""
    instructions_digest: str | None = None
    """Of the operator's instructions, if the model is sent them."""


_NO_SETTINGS = TraceSettings()


class RunTrace:
    """Records one run. `record` is called with every event of the run, in order, and costs next to nothing."""

    def __init__(self, settings: TraceSettings = _NO_SETTINGS, *, created_at: float | None = None) -> None:
        """`created_at`: of a run that another process has begun, in seconds since 1970."""
        now = time.time_ns() // 1000
        created = now if created_at is None else round(created_at * MICROSECONDS)
        self.created_at = created / MICROSECONDS
        self._zero = time.monotonic_ns() // 1000 - (now - created)
        self._settings = settings
        self._instructions_digest = settings.instructions_digest
        self._turn_start = 0
        self.stand_in: str | None = None
        """The stand-in that answers. None: the model itself."""
        self._token_time: int | None = None
        """Of the first token of the turn."""
        self._steps: list[Step] = []
        self.seconds: float | None = None
        """Seconds from the creation of the run to its end. None: it goes on."""
        self.cost: float | None = 0.0 if settings.is_priced else None
        """Of the run so far. None: the model has no price."""
        self.awaits_token = False
        """True from the start of a turn to the first piece of its answer."""
        self.calls: dict[str, tuple[str, str]] = {}
        """The server and the tool of each call, by its id. The server is empty until there is a result."""
        self._unanswered = 0
        """How many calls of the model have no output yet. Outputs of earlier calls make it negative."""
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

    def list_tools(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the servers and of the tools that were called, each once."""
        if not self.calls:
            return (), ()
        servers = {server: None for server, _ in self.calls.values() if server}
        return tuple(servers), tuple({tool: None for _, tool in self.calls.values()})

    def record(self, event: Event) -> None:
        """Record an event of the run that happens now."""
        record = RECORDERS.get(type(event))
        if record is not None:
            record(self, event)

    def record_retry(self, error: ModelError, pause: float) -> None:
        """Record that the model is asked again after a pause."""
        self._steps.append({"kind": "retry", "at": self._now(), "pause": pause, "error": error.public_text})

    def record_queued(self) -> None:
        """Record that the run waits in a queue, until it starts."""
        self._steps.append({"kind": "queued", "at": self._now()})

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
        """Encode the trace as it is now, for storage."""
        state: StoredTrace = {
            "version": TRACE_VERSION,
            "created_at": self.created_at,
            "item_offset": self.item_offset,
            "context_count": self.context_count,
            "recorded": self._now(),
            "steps": self._steps,
        }
        if self._instructions_digest is not None:
            state["instructions_digest"] = self._instructions_digest
        if self._settings.offered is not None:
            state["tool_lists"] = self._settings.offered.to_json()
        return orjson.dumps(state)

    def to_stored(self) -> StoredTrace:
        """Return the trace as it is now, as `read_trace` returns one that is stored."""
        trace: StoredTrace = orjson.loads(self.encode())
        return trace

    @staticmethod
    def restore(stored: StoredTrace, settings: TraceSettings = _NO_SETTINGS) -> RunTrace:
        """Continue the trace that an earlier process has stored."""
        trace, steps = RunTrace(settings, created_at=stored["created_at"]), stored["steps"]
        tokens = (step["at"] for step in steps if step["kind"] == "token")
        trace.first_token_seconds = next((at / MICROSECONDS for at in tokens), None)
        trace._steps = [*steps, {"kind": "resumed", "at": trace._now(), "recorded": stored["recorded"]}]
        if settings.offered is not None:
            settings.offered.restore(stored.get("tool_lists", ()))
        was_asked = any(step["kind"] == "answer" for step in steps)
        if was_asked and stored.get("instructions_digest") != trace._instructions_digest:
            trace._instructions_digest = SEVERAL_INSTRUCTIONS
        return trace

    def _now(self) -> int:
        return time.monotonic_ns() // 1000 - self._zero

    def _record_start(self, event: RunStarted) -> None:
        # It ends the time in a queue; others start with their first turn.
        if self._steps:
            self._steps.append({"kind": "started", "at": self._now()})

    def _record_turn(self, event: TurnStarted) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        if event.is_restarted:
            # The same turn, with a `retry` step.
            return
        self.turns = event.turn
        self.awaits_token = not event.is_replayed
        self._turn_start = now
        self._token_time = None
        offered = self._settings.offered
        tool_list = None if offered is None or event.is_replayed else offered.find_number()
        self._steps.append(
            {
                "kind": "turn",
                "at": now,
                "number": event.turn,
                "items": len(self.items),
                "is_replayed": event.is_replayed,
                "tool_list": tool_list,
            }
        )

    def _record_notice(self, event: RunNoticed) -> None:
        self._steps.append({"kind": "notice", "at": self._now(), "text": event.text})

    def _record_stand_in(self, event: StandInAnswered) -> None:
        self.stand_in = event.name
        self._steps.append({"kind": "stand_in", "at": self._now(), "name": event.name})

    def _record_delta(self, event: TextAdded | ReasoningAdded | CallAdded) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        if not self.awaits_token:
            return
        self.awaits_token = False
        self._token_time = now
        if self.first_token_seconds is None:
            self.first_token_seconds = now / MICROSECONDS
        self._steps.append({"kind": "token", "at": now})

    def _record_item(self, event: ItemFinished) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        item = event.item
        self.items.append(item)
        if isinstance(item, FunctionCall):
            self._unanswered += 1
        elif isinstance(item, FunctionCallOutput):
            self._unanswered -= 1
            self._steps.append({"kind": "output", "at": now, "call_id": item.call_id, "item": len(self.items) - 1})
        elif isinstance(item, Compaction):
            self._steps.append({"kind": "compaction", "at": now, "item": len(self.items) - 1})

    def _record_answer(self, event: TurnFinished) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        token = self._token_time
        self.awaits_token = False
        self.usage = event.usage if self.turns <= 1 else self.usage + event.usage
        cost = event.cost if event.cost is None else round(event.cost, COST_DIGITS)
        self.cost = cost if self.turns <= 1 or self.cost is None or cost is None else self.cost + cost
        on_turn, start = self._settings.on_turn, self._turn_start
        if on_turn is not None and not event.is_replayed:
            first_token = None if token is None else (token - start) / MICROSECONDS
            on_turn(
                self.stand_in or self._settings.model,
                seconds=(now - start) / MICROSECONDS,
                first_token_seconds=first_token,
                usage=event.usage,
                cost=cost,
            )
        tokens = dict(zip(TOKEN_NAMES, _get_tokens(event.usage), strict=True))
        self._steps.append({"kind": "answer", "at": now, "items": len(self.items), "tokens": tokens, "cost": cost})

    def _record_cut(self, event: TurnCut) -> None:
        """Record the tokens of a turn that ends without an answer."""
        cost = event.cost if event.cost is None else round(event.cost, COST_DIGITS)
        self.usage += event.usage
        if self._settings.on_turn is not None:
            model = self.stand_in or self._settings.model
            self._settings.on_turn(model, seconds=None, first_token_seconds=None, usage=event.usage, cost=cost)
        tokens = dict(zip(TOKEN_NAMES, _get_tokens(event.usage), strict=True))
        self._steps.append({"kind": "cut", "at": self._now(), "tokens": tokens, "cost": cost})

    def _record_call(self, event: ToolStarted) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        self.calls.setdefault(event.call_id, ("", event.name))
        self._steps.append({"kind": "call", "at": now, "call_id": event.call_id, "name": event.name})

    def _record_result(self, event: ToolFinished) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        metadata = event.metadata
        server, tool = "", event.name
        if "server" in metadata:
            server, tool = str(metadata["server"]), str(metadata.get("tool", event.name))
        if event.call_id in self.calls:
            self.calls[event.call_id] = (server, tool)
        status: ResultStatus = "refused" if REFUSED in metadata else "error" if event.output.is_error else "ok"
        self._steps.append(
            {
                "kind": "result",
                "at": now,
                "call_id": event.call_id,
                "server": server,
                "tool": tool,
                "status": status,
            }
        )

    def _record_end(self, event: RunFinished) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        result = event.result
        self.seconds, usage = now / MICROSECONDS, result.usage
        self.cost = result.cost if result.cost is None else round(result.cost, COST_DIGITS)
        reason = result.error.public_message if result.error is not None else result.reason or None
        is_error = result.status in ("failed", "cancelled")
        step: Ended = {
            "kind": "ended",
            "at": now,
            "items": len(self.items),
            "tokens": dict(zip(TOKEN_NAMES, _get_tokens(usage), strict=True)),
            "cost": self.cost,
            "is_error": is_error,
            "reason": reason,
        }
        if result.status in ("completed", "requires_action") and self._unanswered:
            step["open_calls"] = self._list_open_calls(result)
        self._steps.append(step)

    def _list_open_calls(self, result: RunResult) -> list[OpenCall]:
        """Return the calls that wait for an approval or for the client, which goes on after the run."""
        answered = {item.call_id for item in self.items if isinstance(item, FunctionCallOutput)}
        calls = (item for item in self.items if isinstance(item, FunctionCall) and item.call_id not in answered)
        return [{"call_id": call.call_id, "name": call.name, "is_held": call.call_id in result.held} for call in calls]


RECORDERS: Mapping[type, Callable[[RunTrace, Any], None]] = {
    TextAdded: RunTrace._record_delta,
    ReasoningAdded: RunTrace._record_delta,
    CallAdded: RunTrace._record_delta,
    ItemFinished: RunTrace._record_item,
    ToolStarted: RunTrace._record_call,
    ToolFinished: RunTrace._record_result,
    TurnStarted: RunTrace._record_turn,
    StandInAnswered: RunTrace._record_stand_in,
    RunNoticed: RunTrace._record_notice,
    TurnFinished: RunTrace._record_answer,
    TurnCut: RunTrace._record_cut,
    RunStarted: RunTrace._record_start,
    RunFinished: RunTrace._record_end,
}
"""What is recorded of each kind of event, when it happens."""


def read_trace(stored: bytes | None) -> StoredTrace | None:
    """Read a stored trace. Returns None where there is none, or one of another version. Raises `StorageError`."""
    if stored is None:
        return None
    try:
        trace: StoredTrace = orjson.loads(stored)
        return trace if trace["version"] == TRACE_VERSION else None
    except (ValueError, TypeError, LookupError) as error:
        raise StorageError(f"A stored trace is damaged: {error}") from error


_get_tokens = attrgetter(*TOKEN_NAMES)


Specs = tuple[ToolSpec, ...]

# Bytes of all lists of one run, which are stored with its response. Names of some thousand tools.
MAX_LISTS_BYTES = 32_768
# Tuples whose names are remembered: each backend offers its own, and each scope of callers another one.
MAX_REMEMBERED = 100


class ToolNames:
    """Encodes the names of tools, for all runs of a gateway."""

    def __init__(self) -> None:
        self._encoded: dict[int, tuple[Specs, bytes]] = {}
        """By the identity of the tuple, which is remembered with it so that no other one can have the same."""

    def encode(self, specs: Specs, allowed: Collection[str] | None) -> bytes:
        """Encode the names, as a JSON array: those in `allowed`, unless that is None or empty."""
        if allowed:
            return orjson.dumps([spec.name for spec in specs if spec.name in allowed])
        known = self._encoded.get(id(specs))
        if known is not None:
            return known[1]
        if len(self._encoded) >= MAX_REMEMBERED:
            self._encoded.clear()
        encoded = orjson.dumps([spec.name for spec in specs])
        self._encoded[id(specs)] = (specs, encoded)
        return encoded


class OfferedTools:
    """The names of the tools that the model was offered in each turn of one run, encoded when the trace is.

    A list is stored once for all turns in a row that had it, and turns refer to it by its number.
    """

    def __init__(self, toolbox: Toolbox, allowed: Collection[str] | None, names: ToolNames) -> None:
        """Start without lists. `allowed`: the names that the tool choice of the request leaves. None: all."""
        self._toolbox = toolbox
        self._allowed = allowed
        self._names = names
        self._stored: list[bytes] = []
        """The lists of an earlier process, encoded."""
        self._lists: list[Specs] = []

    def find_number(self) -> int:
        """Return the number of the list that is offered now, which is added if it differs from the one before."""
        specs, lists = self._toolbox.offered, self._lists
        if not lists or lists[-1] is not specs:
            lists.append(specs)
        return len(self._stored) + len(lists) - 1

    def to_json(self) -> list[orjson.Fragment | None]:
        """Return the lists by their numbers. None in place of those that make them longer than `MAX_LISTS_BYTES`."""
        encoded = self._stored + [self._names.encode(specs, self._allowed) for specs in self._lists]
        sizes = accumulate(map(len, encoded))
        listed = zip(encoded, sizes, strict=True)
        return [orjson.Fragment(each) if size <= MAX_LISTS_BYTES else None for each, size in listed]

    def restore(self, stored: Iterable[Sequence[str] | None]) -> None:
        """Begin with the lists that an earlier process has stored."""
        self._stored = [orjson.dumps(each) for each in stored]
