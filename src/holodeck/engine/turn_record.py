"""A turn of the model as plain data: what it came to, and how it was told, without the small pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from holodeck.durable.base import JSONObject
from holodeck.engine.steps import ModelTurn
from holodeck.models.events import CallAdded, Event, ItemFinished, ReasoningAdded, TextAdded, TurnStarted
from holodeck.models.items import Usage
from holodeck.models.items_json import decode_item, encode_item
from holodeck.models.model_io import ModelAnswer

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
