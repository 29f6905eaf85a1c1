"""The steps of a run that survives: each is kept when it is done, and never done again.

A call that was under way when its process died is repeated only if that does no harm; else the model is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from holodeck.durable.base import Checkpoints, JSONObject, WorkTakenOverError
from holodeck.engine.event_log import EventLog
from holodeck.engine.steps import AppendEvent, ModelTurn, PreparedCall
from holodeck.lib.errors import ModelError
from holodeck.models.events import CallAdded, Event, ItemFinished, ReasoningAdded, TextAdded, TurnStarted
from holodeck.models.items import FunctionCallOutput, Usage
from holodeck.models.items_json import decode_item, encode_item
from holodeck.models.model_io import ModelAnswer
from holodeck.tools.executor import ToolResult

_Delta = TextAdded | ReasoningAdded | CallAdded
_DELTAS: dict[str, type[_Delta]] = {
    "text.added": TextAdded,
    "reasoning.added": ReasoningAdded,
    "call.added": CallAdded,
}


def turn_to_json(turn: ModelTurn, events: Sequence[Event]) -> JSONObject:
    """What is kept of a turn."""
    answered = turn.answer
    return {
        "events": [_event_to_json(event) for event in _merge_deltas(events)],
        "usage": asdict(answered.usage),
        "finish": answered.finish,
        "model": answered.model,
        "held": sorted(turn.needs_approval),
    }


def turn_from_json(stored: JSONObject) -> ModelTurn:
    items = tuple(decode_item(event["item"]) for event in stored["events"] if event["type"] == "item.finished")
    answered = ModelAnswer(items=items, finish=stored["finish"], usage=Usage(**stored["usage"]), model=stored["model"])
    return ModelTurn(answer=answered, needs_approval=frozenset(stored["held"]))


def events_from_json(stored: JSONObject) -> Iterator[Event]:
    """The events of a kept turn, for a log that has not seen them."""
    for plain in stored["events"]:
        values = dict(plain)
        kind = values.pop("type")
        if kind == "item.finished":
            yield ItemFinished(item=decode_item(values["item"]), is_cut=values.get("is_cut", False))
        elif kind == "turn.started":
            yield TurnStarted(**values, is_replayed=True)
        else:
            yield _DELTAS[kind](**values)


def _merge_deltas(events: Iterable[Event]) -> Iterator[Event]:
    """The same events with deltas of one item that follow each other made one."""
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
    return getattr(one, "is_refusal", False) == getattr(more, "is_refusal", False)


def _join_deltas(deltas: Sequence[_Delta]) -> _Delta:
    """Deltas of one item as one. Joined once: adding them up one by one takes quadratic time."""
    first = deltas[0]
    if isinstance(first, CallAdded):
        return replace(first, arguments="".join(each.arguments for each in deltas if isinstance(each, CallAdded)))
    return replace(first, text="".join(each.text for each in deltas if not isinstance(each, CallAdded)))


def _event_to_json(event: Event) -> dict[str, Any]:
    match event:
        case ItemFinished():
            return {"type": event.type, "item": encode_item(event.item), "is_cut": event.is_cut}
        case TurnStarted():
            return {"type": event.type, "turn": event.turn, "tools": event.tools}
        case _:
            return asdict(event)


OUTCOME_UNKNOWN = (
    "The process that ran this call ended before it had an answer. Whether the call took effect is unknown. "
    "Find out before you repeat it."
)


class CheckpointedSteps:
    """Steps with a memory. `hand_over` stops at the next moment at which nothing is under way that cannot be
    repeated.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._running_calls = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._last_sent = asyncio.Event()
        self._last_sent.set()
        self._has_failed = False
        self._is_abandoned = False
        self.is_handed_over = False
        """True once this process has left the rest of the run to another."""

    async def run_turn(
        self, number: int, log: EventLog, ask_model: Callable[[AppendEvent], Awaitable[ModelTurn]]
    ) -> ModelTurn:
        self._require_ownership()
        fresh: list[ModelTurn] = []
        finished: list[Event] = []

        async def ask() -> JSONObject:
            told: list[Event] = []

            def append(event: Event) -> None:
                told.append(event)
                if finished or isinstance(event, ItemFinished):
                    finished.append(event)  # told when it is kept: it may then not become another one
                else:
                    log.append(event)

            try:
                turn = await ask_model(append)
            except ModelError as error:
                return {"failed": str(error), "provider": error.provider, "status": error.status, "code": error.code}
            fresh.append(turn)
            return turn_to_json(turn, told)

        kept = await self._run_step(f"turn {number}", ask)
        if "failed" in kept:
            code = kept.get("code", "")
            raise ModelError(kept["failed"], provider=kept["provider"], status=kept["status"], code=code)
        if fresh:
            for event in finished:
                log.append(event)
            return fresh[0]
        for event in events_from_json(kept):
            log.append(event)
        return turn_from_json(kept)

    async def run_call(self, prepared: PreparedCall) -> ToolResult:
        call, is_fresh = prepared.call, False

        async def send() -> JSONObject:
            nonlocal is_fresh
            is_fresh = True
            refusal = await prepared.find_refusal() or await self._ask_permission(prepared)
            return {"may_repeat": prepared.may_repeat()} if refusal is None else {"refusal": refusal}

        async def execute() -> JSONObject:
            if is_fresh or sent["may_repeat"]:
                result = await prepared.execute()
                if self._is_abandoned:
                    raise WorkTakenOverError
                return _result_to_json(result)
            return _result_to_json(ToolResult.failure(call.call_id, OUTCOME_UNKNOWN, outcome="unknown"))

        self._require_ownership()
        self._count_started()
        before, self._last_sent = self._last_sent, asyncio.Event()
        asked = self._last_sent
        try:
            sent = await self._run_step(f"send {call.id}", send)
            await self._wait_sent(before)
            asked.set()
            if "refusal" in sent:
                return ToolResult.failure(call.call_id, sent["refusal"])
            return _result_from_json(call.call_id, await self._run_step(f"call {call.id}", execute))
        except BaseException:
            self._has_failed = True
            raise
        finally:
            asked.set()
            self._count_ended()

    async def _ask_permission(self, prepared: PreparedCall) -> str | None:
        """Ask before the call counts as sent: while a person thinks, nothing is under way and nobody needs to wait."""
        self._count_ended()
        try:
            refusal = await prepared.ask_permission()
        finally:
            self._count_started()
        self._require_ownership()
        return refusal

    @property
    def running_calls(self) -> int:
        """How many calls are being carried out."""
        return self._running_calls

    async def hand_over(self) -> None:
        """Begin nothing more; return when no call is under way. The run can then be cancelled and goes on elsewhere."""
        self.is_handed_over = True
        await self._is_idle.wait()

    def abandon(self) -> None:
        """Wait for nothing. How a call ends from now on says only that its server was ended: its outcome is unknown."""
        self.is_handed_over = self._is_abandoned = True

    async def _wait_sent(self, previous: asyncio.Event) -> None:
        """Steps are found again by their place, not by their name: nobody takes that of a call that failed."""
        await previous.wait()
        if self._has_failed:
            raise WorkTakenOverError

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


def _result_to_json(result: ToolResult) -> JSONObject:
    output = FunctionCallOutput(call_id=result.call_id, content=result.content, is_error=result.is_error)
    return {"output": encode_item(output), "metadata": dict(result.metadata)}


def _result_from_json(call_id: str, stored: JSONObject) -> ToolResult:
    output = decode_item(stored["output"])
    assert isinstance(output, FunctionCallOutput)  # noqa: S101 - it was written as one
    return ToolResult(
        call_id=call_id,
        content=output.content,  # type: ignore[arg-type] # a result has no links and files
        is_error=output.is_error,
        metadata=stored["metadata"],
    )
