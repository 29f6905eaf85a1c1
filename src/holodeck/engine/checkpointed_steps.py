"""Steps of a durable run: the result of each is stored as a checkpoint, and a stored step is never run again.

`CheckpointedSteps` belongs to one run in one process. A turn is one checkpoint (`turn N`). A call is two: `send ID`
before the call starts, and `call ID` with its result. After a crash, another process runs the same loop with the same
checkpoints: stored turns are replayed into the event log, stored results are returned, and the first step without a
checkpoint runs. A call with a `send` but no result was running when its process died. If its tool has stored at its
resume point how to go on (a note, `resume ID`), that is done. Otherwise the call is run again only if its tool may be
repeated, and its result is `PROCESS_ENDED` if not.

Checkpoints are matched by their order, so the `call` steps of calls that run concurrently start in the order of the
calls. `run_turn` and `run_call` raise `WorkTakenOverError` once the run belongs to another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

from holodeck.durable.base import Checkpoints, JSONObject, WorkTakenOverError
from holodeck.engine.event_log import EventSink
from holodeck.engine.steps import AppendEvent, ModelTurn, PreparedCall
from holodeck.lib.call_errors import PROCESS_ENDED
from holodeck.lib.errors import ModelError
from holodeck.models.events import (
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    StandInAnswered,
    TextAdded,
    TurnFinished,
    TurnStarted,
)
from holodeck.models.items import FunctionCall, FunctionCallOutput, Usage, decode_item, encode_item
from holodeck.models.model_io import REPORTED_FACTS, Logprob, ModelAnswer
from holodeck.tools.executor import REFUSED, Spending, ToolResult

_Delta = TextAdded | ReasoningAdded | CallAdded
_PLAIN_EVENTS: dict[str, type[ReasoningAdded | CallAdded | StandInAnswered]] = {
    "reasoning.added": ReasoningAdded,
    "call.added": CallAdded,
    "stand_in.answered": StandInAnswered,
}


class CheckpointedSteps:
    """Carries out the steps of a durable run, unless their checkpoints have a result already.

    `hand_over` and `abandon` end the part of this process: no further step starts, and the run can be cancelled here
    and continued elsewhere.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._running_calls = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        # Set once the `send` step of the latest call is stored; the next call waits for it.
        self._last_sent = asyncio.Event()
        self._last_sent.set()
        self._has_failed = False
        self._is_abandoned = False
        self.is_handed_over = False
        """True once the rest of the run belongs to another process."""

    @property
    def running_calls(self) -> int:
        """Number of calls that are running now. One that waits for a person's permission is not."""
        return self._running_calls

    async def run_turn(
        self, number: int, log: EventSink, ask_model: Callable[[AppendEvent], Awaitable[ModelTurn]]
    ) -> ModelTurn:
        self._require_ownership()
        fresh: list[ModelTurn] = []
        # From the first finished item on, events reach the log only after the checkpoint is stored: until then the
        # turn may be asked for again, and its items may become different ones.
        deferred: list[Event] = []

        async def ask() -> JSONObject:
            events: list[Event] = []

            def append(*added: Event) -> None:
                event = added[0]
                if isinstance(event, TurnStarted) and event.is_restarted:
                    is_seen = len(events) - len(deferred) > 1
                    # All but the first `TurnStarted`.
                    del events[1:]
                    deferred.clear()
                    if is_seen:
                        log.append(event)
                    return
                events.extend(added)
                if deferred or isinstance(event, ItemFinished):
                    deferred.extend(added)
                else:
                    log.append(*added)

            try:
                turn = await ask_model(append)
            except ModelError as error:
                failed = {"failed": str(error), "public": error.public_text}
                return {**failed, "provider": error.provider, "status": error.status, "code": error.code}
            fresh.append(turn)
            return turn_to_json(turn, events)

        stored = await self._run_step(f"turn {number}", ask)
        if "failed" in stored:
            code, public_text = stored.get("code", ""), stored.get("public", "")
            raise ModelError(
                stored["failed"],
                provider=stored["provider"],
                status=stored["status"],
                code=code,
                public_text=public_text,
            )
        for event in deferred if fresh else events_from_json(stored):
            log.append(event)
        return fresh[0] if fresh else turn_from_json(stored)

    async def run_call(self, prepared: PreparedCall) -> ToolResult:
        call, is_fresh = prepared.call, False

        async def send() -> JSONObject:
            nonlocal is_fresh
            is_fresh = True
            refusal = await prepared.find_refusal() or await self._ask_permission(prepared)
            return {"may_repeat": prepared.may_repeat()} if refusal is None else {"refusal": refusal}

        async def execute() -> JSONObject:
            stored = None if is_fresh else await self._checkpoints.find_note(_resume_note(call))
            if is_fresh or stored is not None or sent["may_repeat"]:
                result = await prepared.execute(_CallResumePoint(self, call, stored))
                if self._is_abandoned:
                    raise WorkTakenOverError
                return _result_to_json(result)
            unknown = ToolResult.failure(call.call_id, PROCESS_ENDED, outcome="unknown")
            await prepared.record_unknown(unknown)
            return _result_to_json(unknown)

        self._require_ownership()
        self._count_started()
        previous, self._last_sent = self._last_sent, asyncio.Event()
        is_sent = self._last_sent
        try:
            sent = await self._run_step(f"send {call.id}", send)
            await self._wait_sent(previous)
            is_sent.set()
            if "refusal" in sent:
                return ToolResult.failure(call.call_id, sent["refusal"], **{REFUSED: REFUSED})
            return _result_from_json(call.call_id, await self._run_step(f"call {call.id}", execute))
        except BaseException:
            self._has_failed = True
            raise
        finally:
            is_sent.set()
            self._count_ended()

    async def hand_over(self) -> None:
        """Start no further step, and return when no call is running. The caller can then cancel the run."""
        self.is_handed_over = True
        await self._is_idle.wait()

    def abandon(self) -> None:
        """Hand over without waiting for running calls.

        The result of a call that ends from now on is not stored: it may only say that its server was stopped.
        """
        self.is_handed_over = self._is_abandoned = True

    async def _ask_permission(self, prepared: PreparedCall) -> str | None:
        # While a person decides, the call is not running, and `hand_over` does not wait for it.
        self._count_ended()
        try:
            refusal = await prepared.ask_permission()
        finally:
            self._count_started()
        self._require_ownership()
        return refusal

    async def _wait_sent(self, previous: asyncio.Event) -> None:
        """Wait until the `send` step of the previous call is stored.

        Checkpoints are matched by position: after a failed call, a later one would be stored at its position.
        """
        await previous.wait()
        if self._has_failed:
            raise WorkTakenOverError

    async def store_resume_point(self, call: FunctionCall, value: JSONObject) -> None:
        """Store how another process can go on with a call that is running."""
        try:
            await self._checkpoints.store_note(_resume_note(call), value)
        except WorkTakenOverError:
            self.is_handed_over = True
            raise

    def _require_ownership(self) -> None:
        if self.is_handed_over:
            raise WorkTakenOverError

    def _count_started(self) -> None:
        self._running_calls += 1
        self._is_idle.clear()

    def _count_ended(self) -> None:
        self._running_calls -= 1
        if not self._running_calls:
            self._is_idle.set()

    async def _run_step(self, name: str, work: Callable[[], Awaitable[JSONObject]]) -> JSONObject:
        try:
            return await self._checkpoints.step(name, work)
        except WorkTakenOverError:
            self.is_handed_over = True
            raise


class _CallResumePoint:
    """The `ResumePoint` of one call."""

    def __init__(self, steps: CheckpointedSteps, call: FunctionCall, stored: JSONObject | None) -> None:
        self.stored = stored
        self._steps = steps
        self._call = call

    @property
    def is_handed_over(self) -> bool:
        return self._steps.is_handed_over

    async def store(self, value: Mapping[str, Any]) -> None:
        await self._steps.store_resume_point(self._call, value)


def _resume_note(call: FunctionCall) -> str:
    return f"resume {call.id}"


def turn_to_json(turn: ModelTurn, events: Sequence[Event]) -> JSONObject:
    """Return the checkpoint of a turn: its events, with consecutive deltas of one item merged, and its answer."""
    answer = turn.answer
    return {
        "events": [_event_to_json(event) for event in _merge_deltas(events)],
        "usage": asdict(answer.usage),
        "finish": answer.finish,
        **{name: getattr(answer, name) for name in REPORTED_FACTS},
        "answered_by": answer.answered_by,
        "cost": answer.cost,
        "held": sorted(turn.needs_approval),
    }


def turn_from_json(stored: JSONObject) -> ModelTurn:
    items = tuple(decode_item(event["item"]) for event in stored["events"] if event["type"] == "item.finished")
    answer = ModelAnswer(
        items=items,
        finish=stored["finish"],
        usage=Usage(**stored["usage"]),
        answered_by=stored.get("answered_by", ""),
        **{name: stored[name] for name in REPORTED_FACTS if name in stored},
        cost=stored.get("cost"),
    )
    tools = next((event["tools"] for event in stored["events"] if event["type"] == "turn.started"), 0)
    return ModelTurn(answer=answer, needs_approval=frozenset(stored["held"]), replayed_tools=tools)


def events_from_json(stored: JSONObject) -> Iterator[Event]:
    """Yield the events of a stored turn, in their order. Its `TurnStarted` is marked as replayed."""
    for stored_event in stored["events"]:
        values = dict(stored_event)
        kind = values.pop("type")
        if kind == "item.finished":
            yield ItemFinished(item=decode_item(values["item"]), is_cut=values.get("is_cut", False))
        elif kind == "turn.started":
            yield TurnStarted(**values, is_replayed=True)
        elif kind == "turn.finished":
            usage, cost = Usage(**values["usage"]), values.get("cost")
            yield TurnFinished(turn=values["turn"], usage=usage, cost=cost, is_replayed=True)
        elif kind == "text.added":
            yield TextAdded(**{**values, "logprobs": tuple(map(_logprob_from_json, values.get("logprobs", ())))})
        else:
            yield _PLAIN_EVENTS[kind](**values)


def _merge_deltas(events: Iterable[Event]) -> Iterator[Event]:
    deltas: list[_Delta] = []
    for event in events:
        delta = event if isinstance(event, TextAdded | ReasoningAdded | CallAdded) else None
        if deltas and (delta is None or not _is_same_content(deltas[-1], delta)):
            yield _join_deltas(deltas)
            deltas = []
        if delta is not None:
            deltas.append(delta)
        else:
            yield event
    if deltas:
        yield _join_deltas(deltas)


def _is_same_content(one: _Delta, more: _Delta) -> bool:
    if one.type != more.type or one.item_id != more.item_id:
        return False
    return not (isinstance(one, TextAdded) and isinstance(more, TextAdded)) or one.is_refusal == more.is_refusal


def _join_deltas(deltas: Sequence[_Delta]) -> _Delta:
    # Joined once: adding them up one by one takes quadratic time.
    first = deltas[0]
    if isinstance(first, CallAdded):
        return replace(first, arguments="".join(each.arguments for each in deltas if isinstance(each, CallAdded)))
    text = "".join(each.text for each in deltas if not isinstance(each, CallAdded))
    if isinstance(first, TextAdded):
        logprobs = [each.logprobs for each in deltas if isinstance(each, TextAdded)]
        return replace(first, text=text, logprobs=tuple(chain.from_iterable(logprobs)))
    return replace(first, text=text)


def _event_to_json(event: Event) -> dict[str, Any]:
    match event:
        case ItemFinished():
            return {"type": event.type, "item": encode_item(event.item), "is_cut": event.is_cut}
        case TurnStarted():
            return {"type": event.type, "turn": event.turn, "tools": event.tools}
        case TurnFinished():
            return {"type": event.type, "turn": event.turn, "usage": asdict(event.usage), "cost": event.cost}
        case TextAdded(logprobs=()):
            return {"type": event.type, "item_id": event.item_id, "text": event.text, "is_refusal": event.is_refusal}
        case _:
            return asdict(event)


def _logprob_from_json(stored: Mapping[str, Any]) -> Logprob:
    encoded = stored["bytes"]
    return Logprob(
        token=stored["token"],
        logprob=stored["logprob"],
        bytes=None if encoded is None else tuple(encoded),
        top=tuple(map(_logprob_from_json, stored["top"])),
    )


def _result_to_json(result: ToolResult) -> JSONObject:
    output = FunctionCallOutput(call_id=result.call_id, content=result.content, is_error=result.is_error)
    stored = {"output": encode_item(output), "metadata": dict(result.metadata)}
    return stored if result.spending is None else {**stored, "spending": asdict(result.spending)}


def _result_from_json(call_id: str, stored: JSONObject) -> ToolResult:
    output = decode_item(stored["output"])
    assert isinstance(output, FunctionCallOutput)  # noqa: S101 - it was written as one
    return ToolResult(
        call_id=call_id,
        content=output.content,  # type: ignore[arg-type] # a result has no links and files
        is_error=output.is_error,
        metadata=stored["metadata"],
        spending=_spending_from_json(stored.get("spending")),
    )


def _spending_from_json(stored: JSONObject | None) -> Spending | None:
    return None if stored is None else Spending(**{**stored, "usage": Usage(**stored["usage"])})
