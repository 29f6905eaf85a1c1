"""The steps of a durable run in the words of a person: each time the model was asked, and each call it asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holodeck.durable.base import StoredStep
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Message
from holodeck.models.items_json import decode_item

StepStatus = Literal["done", "failed", "refused", "unknown", "under way"]


@dataclass(frozen=True, kw_only=True)
class RunStep:
    """A turn of the model, or a call of a tool."""

    kind: Literal["turn", "call"]
    name: str
    """`1` for the first turn; the tool's name for a call."""
    status: StepStatus
    """`unknown`: the process ended before the call had an answer. `under way`: it was sent, and has no answer yet."""
    started_at: float
    seconds: float
    arguments: str = ""
    """The arguments of a call, as the model wrote them."""
    result: str = ""
    """What came of it."""


def build_run_steps(stored: Sequence[StoredStep]) -> list[RunStep]:
    """In the order in which they began."""
    calls = {call.id: call for step in stored for call in _calls_in_step(step)}
    ended = {step.name.partition(" ")[2] for step in stored if step.name.startswith("call ")}
    steps: list[RunStep] = []
    for step in stored:
        kind, _, key = step.name.partition(" ")
        if kind == "turn":
            steps.append(_turn_step(step, key))
        elif key in calls and (kind == "call" or key not in ended):
            steps.append(_call_step(step, calls[key], is_answered=kind == "call"))
    return steps


def _turn_step(step: StoredStep, number: str) -> RunStep:
    failure = step.result.get("failed")
    messages = [item.text for item in _items_in_step(step) if isinstance(item, Message)]
    calls = ", ".join(call.name for call in _calls_in_step(step))
    said = " ".join([*messages, f"asks for {calls}" if calls else ""]).strip()
    return RunStep(
        kind="turn",
        name=number,
        status="failed" if failure else "done",
        started_at=step.started_at,
        seconds=step.ended_at - step.started_at,
        result=str(failure) if failure else said,
    )


def _call_step(step: StoredStep, call: FunctionCall, *, is_answered: bool) -> RunStep:
    status, said = _answered_outcome(step.result) if is_answered else _unanswered_outcome(step.result)
    return RunStep(
        kind="call",
        name=call.name,
        status=status,
        started_at=step.started_at,
        seconds=step.ended_at - step.started_at if is_answered else 0.0,
        arguments=call.arguments,
        result=said,
    )


def _answered_outcome(result: Mapping[str, Any]) -> tuple[StepStatus, str]:
    output = decode_item(result["output"])
    assert isinstance(output, FunctionCallOutput)  # noqa: S101 - it was written as one
    said = "\n".join(part.text if isinstance(part, TextContent) else f"[{part.type}]" for part in output.content)
    if result.get("metadata", {}).get("outcome") == "unknown":
        return "unknown", said
    return ("failed" if output.is_error else "done"), said


def _unanswered_outcome(result: Mapping[str, Any]) -> tuple[StepStatus, str]:
    return ("refused", str(result["refusal"])) if "refusal" in result else ("under way", "")


def _calls_in_step(step: StoredStep) -> Iterator[FunctionCall]:
    return (item for item in _items_in_step(step) if isinstance(item, FunctionCall))


def _items_in_step(step: StoredStep) -> list[Any]:
    return [decode_item(event["item"]) for event in step.result.get("events", ()) if event["type"] == "item.finished"]
