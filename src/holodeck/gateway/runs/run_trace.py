"""The trace of one run: recorded from its events as they are appended, and stored with its response.

A `RunTrace` belongs to one run in one process. Every request has one, so it only notes steps: short lists, of which
`trace_resource.py` builds spans when the trace is read. `encode` is what is stored, and `restore` continues the trace
of a process that has ended.

A step is a list of its kind, its time, and what follows:

    queued, started
    turn        number, items of the run so far, whether it is replayed, number of the list of offered tools
    stand_in    name of the model that answers in place of the usual one
    token       the first one of a turn
    compaction  number of its item
    retry       seconds until the model is asked again, error
    answer      items so far, tokens, cost
    call        id of the call, name of the tool
    output      id of the call, number of its item
    result      id of the call, server, tool, status
    resumed     time of the last step of the process before
    ended       items so far, tokens, cost, whether it is an error, reason, open calls: id, name, whether they are held

Steps refer to items by their number among those of the run, and the operator's instructions are there as a digest, so
that the only texts are names. Times are whole microseconds from the creation of the run, on the clock of this process:
to round seconds would cost more than all the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from operator import attrgetter
from typing import Any, Protocol

import orjson

from holodeck.lib.errors import ModelError, StorageError
from holodeck.lib.record import record
from holodeck.models.events import (
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    RunFinished,
    RunResult,
    RunStarted,
    StandInAnswered,
    TextAdded,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from holodeck.models.items import Compaction, FunctionCall, FunctionCallOutput, Item, Usage
from holodeck.models.model_io import ToolSpec
from holodeck.models.price import Price
from holodeck.tools.executor import REFUSED
from holodeck.tools.toolbox import Toolbox

Step = list[Any]


class TurnListener(Protocol):
    """Takes a turn: its model, its seconds, those until its first token (None: the answer has no content), tokens and
    cost."""

    def __call__(
        self, model: str, *, seconds: float, first_token_seconds: float | None, usage: Usage, cost: float | None
    ) -> None: ...


# Of a stored trace: what a step has at which place.
TRACE_VERSION = 1
# In a second: the unit of the times of steps.
MICROSECONDS = 1_000_000
# Decimal places of a cost: prices are for a million tokens.
COST_DIGITS = 10
# In place of a digest: the turns of the run had different instructions, since it went on with another configuration.
SEVERAL_INSTRUCTIONS = "several"


@record
class TraceSettings:
    """The part of a run that its trace is given."""

    model: str = ""
    """Its public name."""
    price: Price | None = None
    """Of the model. None: the cost is unknown."""
    stand_in_prices: Mapping[str, Price | None] = field(default_factory=dict)
    """Those of its stand-ins, by their names."""
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
        self._price = settings.price
        self.stand_in: str | None = None
        """The stand-in that answers. None: the model itself."""
        self._token_time: int | None = None
        """Of the first token of the turn."""
        self._steps: list[Step] = []
        self.seconds: float | None = None
        """Seconds from the creation of the run to its end. None: it goes on."""
        self.cost: float | None = None
        """Of the run, once it has ended. None: the model has no price."""
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

    def cost_of(self, usage: Usage) -> float | None:
        """Return the cost of tokens of the run's model. None: the model has no price."""
        price = self._price
        return None if price is None else round(price.cost_of(usage), COST_DIGITS)

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
        self._steps.append(["retry", self._now(), pause, error.public_text])

    def record_queued(self) -> None:
        """Record that the run waits in a queue, until it starts."""
        self._steps.append(["queued", self._now()])

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
        state: dict[str, Any] = {
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

    @staticmethod
    def restore(stored: bytes, settings: TraceSettings = _NO_SETTINGS) -> RunTrace:
        """Continue the trace that an earlier process has stored. Raises `StorageError` where it is not one."""
        try:
            state = orjson.loads(stored)
            trace = RunTrace(settings, created_at=float(state["created_at"]))
            steps: list[Step] = state["steps"]
            trace.first_token_seconds = next((step[1] / MICROSECONDS for step in steps if step[0] == "token"), None)
            trace._steps = [*steps, ["resumed", trace._now(), int(state["recorded"])]]
            if settings.offered is not None:
                settings.offered.restore(state.get("tool_lists", ()))
        except (ValueError, TypeError, LookupError) as error:
            raise StorageError(f"A stored trace is damaged: {error}") from error
        was_asked = any(step[0] == "answer" for step in steps)
        if was_asked and state.get("instructions_digest") != trace._instructions_digest:
            trace._instructions_digest = SEVERAL_INSTRUCTIONS
        return trace

    def _now(self) -> int:
        return time.monotonic_ns() // 1000 - self._zero

    def _record_start(self, event: RunStarted) -> None:
        # It ends the time in a queue; others start with their first turn.
        if self._steps:
            self._steps.append(["started", self._now()])

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
        self._steps.append(["turn", now, event.turn, len(self.items), event.is_replayed, tool_list])

    def _record_stand_in(self, event: StandInAnswered) -> None:
        self.stand_in, self._price = event.name, self._settings.stand_in_prices.get(event.name)
        self._steps.append(["stand_in", self._now(), event.name])

    def _record_delta(self, event: TextAdded | ReasoningAdded | CallAdded) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        if not self.awaits_token:
            return
        self.awaits_token = False
        self._token_time = now
        if self.first_token_seconds is None:
            self.first_token_seconds = now / MICROSECONDS
        self._steps.append(["token", now])

    def _record_item(self, event: ItemFinished) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        item = event.item
        self.items.append(item)
        if isinstance(item, FunctionCall):
            self._unanswered += 1
        elif isinstance(item, FunctionCallOutput):
            self._unanswered -= 1
            self._steps.append(["output", now, item.call_id, len(self.items) - 1])
        elif isinstance(item, Compaction):
            self._steps.append(["compaction", now, len(self.items) - 1])

    def _record_answer(self, event: TurnFinished) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        token = self._token_time
        self.awaits_token = False
        self.usage = event.usage if self.turns <= 1 else self.usage + event.usage
        cost = None if self._price is None else self.cost_of(event.usage)
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
        self._steps.append(["answer", now, len(self.items), _tokens_of(event.usage), cost])

    def _record_call(self, event: ToolStarted) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        self.calls.setdefault(event.call_id, ("", event.name))
        self._steps.append(["call", now, event.call_id, event.name])

    def _record_result(self, event: ToolFinished) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        metadata = event.metadata
        server, tool = "", event.name
        if "server" in metadata:
            server, tool = str(metadata["server"]), str(metadata.get("tool", event.name))
        if event.call_id in self.calls:
            self.calls[event.call_id] = (server, tool)
        status = "refused" if REFUSED in metadata else "error" if event.output.is_error else "ok"
        self._steps.append(["result", now, event.call_id, server, tool, status])

    def _record_end(self, event: RunFinished) -> None:
        now = time.monotonic_ns() // 1000 - self._zero
        result = event.result
        self.seconds, usage = now / MICROSECONDS, result.usage
        self.cost = None if self._price is None else self.cost_of(usage)
        reason = result.error.public_message if result.error is not None else result.reason or None
        is_error = result.status in ("failed", "cancelled")
        step = ["ended", now, len(self.items), _tokens_of(usage), self.cost, is_error, reason]
        can_go_on = result.status in ("completed", "requires_action")
        self._steps.append([*step, self._list_open_calls(result)] if can_go_on and self._unanswered else step)

    def _list_open_calls(self, result: RunResult) -> list[list[Any]]:
        """Return the calls that wait for an approval or for the client, which goes on after the run."""
        answered = {item.call_id for item in self.items if isinstance(item, FunctionCallOutput)}
        calls = (item for item in self.items if isinstance(item, FunctionCall) and item.call_id not in answered)
        return [[call.call_id, call.name, call.call_id in result.held] for call in calls]


RECORDERS: Mapping[type, Callable[[RunTrace, Any], None]] = {
    TextAdded: RunTrace._record_delta,
    ReasoningAdded: RunTrace._record_delta,
    CallAdded: RunTrace._record_delta,
    ItemFinished: RunTrace._record_item,
    ToolStarted: RunTrace._record_call,
    ToolFinished: RunTrace._record_result,
    TurnStarted: RunTrace._record_turn,
    StandInAnswered: RunTrace._record_stand_in,
    TurnFinished: RunTrace._record_answer,
    RunStarted: RunTrace._record_start,
    RunFinished: RunTrace._record_end,
}
"""What is recorded of each kind of event, when it happens."""


_tokens_of = attrgetter("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")


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
