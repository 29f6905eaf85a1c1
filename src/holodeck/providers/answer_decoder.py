"""The base of the decoders of all dialects: the answer in the making, its end, log probabilities and token counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from holodeck.models.items import Usage
from holodeck.models.model_io import (
    CallDelta,
    FinishReason,
    Logprob,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from holodeck.providers.http.model_address import ModelAddress
from holodeck.providers.tool_call_assembler import ToolCallAssembler


class AnswerDecoder:
    """Assembles one answer from the events of a stream, or from one document, without I/O. A dialect has a subclass.

    A method may raise any error of a wrong key, type or value for an event that the dialect does not define.
    """

    finishes: ClassVar[Mapping[str, FinishReason]] = {}
    """Finish reasons by the words of the dialect. All others are `stop`."""

    def __init__(self, request: ModelRequest, address: ModelAddress) -> None:
        """`address` names the model in errors."""
        self._address = address
        self._calls = ToolCallAssembler(request)
        self._wants_logprobs = request.top_logprobs is not None
        # Log probabilities take many times the bytes of their tokens.
        self.answer_bytes = None if self._wants_logprobs else request.answer_bytes
        """The limit of the answer, if the bytes of a document tell whether it is kept."""
        self._events: list[ModelEvent] = []
        self.is_finished = False
        """Whether the last event has arrived: further ones cannot change the answer."""

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        """Process an event of the stream, or a whole answer, and return the deltas in it.

        Raises `ModelError` for one that is an error.
        """
        raise NotImplementedError

    def decode_into(self, batch: list[ModelEvent], events: Iterable[dict[str, Any]]) -> None:
        """Process events that arrived together, and add the deltas in them to `batch`."""
        for event in events:
            batch += self.decode(event)

    def to_answered(self) -> ModelAnswer | None:
        """Return the complete answer, or None if the stream was cut short."""
        raise NotImplementedError

    def _find_finish(self, reason: str | None) -> FinishReason:
        finish = self.finishes.get(reason or "", "stop")
        # Some servers report every end as "stop".
        return "tool_calls" if self._calls.calls and finish == "stop" else finish


def join_deltas(batch: list[ModelEvent]) -> list[ModelEvent]:
    """Return the events of a batch with consecutive deltas of the same item as one."""
    joined: list[ModelEvent] = []
    run: list[Any] = []
    key: object = None
    for event in batch:
        match event:
            case TextDelta():
                found: object = (TextDelta, event.is_refusal)
            case ReasoningDelta():
                found = ReasoningDelta
            case CallDelta():
                found = (CallDelta, event.index)
            case _:
                found = None
        if found is None or found != key:
            joined += _join_run(run)
            run = []
        run.append(event)
        key = found
    return joined + _join_run(run)


def _join_run(run: list[Any]) -> list[ModelEvent]:
    if len(run) < 2:  # noqa: PLR2004 - nothing to join
        return run
    first = run[0]
    if isinstance(first, CallDelta):
        return [replace(first, arguments="".join(each.arguments for each in run))]
    text = "".join(each.text for each in run)
    if isinstance(first, ReasoningDelta):
        return [ReasoningDelta(text=text)]
    return [replace(first, text=text, logprobs=tuple(entry for each in run for entry in each.logprobs))]


def parse_logprobs(entries: Any) -> tuple[Logprob, ...]:
    """Parse log probabilities, which have the same form in both of OpenAI's APIs."""
    return tuple(
        Logprob(
            token=entry["token"],
            logprob=entry["logprob"],
            bytes=None if entry.get("bytes") is None else tuple(entry["bytes"]),
            top=parse_logprobs(entry.get("top_logprobs")),
        )
        for entry in entries or ()
    )


def build_openai_usage(usage: dict[str, Any], *, read_name: str, written_name: str) -> Usage:
    """Parse the token counts of OpenAI, whose two APIs differ only in the names of what was read and written."""
    read, written = usage.get(f"{read_name}_details") or {}, usage.get(f"{written_name}_details") or {}
    return Usage(
        input_tokens=usage.get(read_name) or 0,
        output_tokens=usage.get(written_name) or 0,
        cached_tokens=read.get("cached_tokens") or 0,
        reasoning_tokens=written.get("reasoning_tokens") or 0,
        cache_write_tokens=read.get("cache_write_tokens") or 0,
    )
