"""The base of the decoders of all dialects: the answer in the making with its tool calls, its end, and token counts.

`ToolCallAssembler` handles parallel and interleaved calls, calls without ids, whole calls in one event, and servers
that use one index for all calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import orjson

from holodeck.lib.json.parse import parse_json
from holodeck.models.items import FunctionCall, Item, Usage
from holodeck.models.model_io import (
    CallDelta,
    FinishReason,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from holodeck.providers.http.model_address import ModelAddress

NO_ARGUMENTS = "{}"


@dataclass(kw_only=True, slots=True)
class _AssembledCall:
    index: int
    call_id: str
    original_id: str
    item_id: str = ""
    name: str = ""
    fragments: list[str] = field(default_factory=list)
    is_announced: bool = False

    @property
    def arguments(self) -> str:
        return "".join(self.fragments)

    @property
    def item(self) -> FunctionCall:
        arguments = self.arguments or NO_ARGUMENTS
        return FunctionCall(call_id=self.call_id, name=self.name, arguments=arguments, id=self.item_id)


class ToolCallAssembler:
    """The tool calls of one answer. Missing or duplicate ids are replaced, deterministically for the same request."""

    def __init__(self, request: ModelRequest) -> None:
        self._used_ids = {item.call_id for item in request.items if isinstance(item, FunctionCall)}
        self._item_count = len(request.items)
        self.calls: list[_AssembledCall] = []
        """In the order in which they started."""
        self._by_key: dict[Hashable, _AssembledCall] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def start(self, key: Hashable, *, call_id: str = "", name: str = "", item_id: str = "") -> None:
        """Start a call; later fragments refer to it by `key`."""
        call = _AssembledCall(
            index=len(self.calls), call_id=self._unique_id(call_id), original_id=call_id, name=name, item_id=item_id
        )
        self.calls.append(call)
        self._by_key[key] = call

    def append(self, key: Hashable, *, name: str = "", arguments: str = "") -> Sequence[CallDelta]:
        """Append a fragment and return its delta. A call has no delta before its name is known."""
        call = self._by_key[key]
        call.name = call.name or name
        call.fragments.append(arguments)
        if not call.is_announced:
            return (self._announce(call),) if call.name else ()
        return (CallDelta(index=call.index, arguments=arguments),) if arguments else ()

    def append_missing(self, key: Hashable, arguments: str) -> Sequence[CallDelta]:
        """Append what the complete `arguments` have beyond the fragments."""
        known = self._by_key[key].arguments
        return self.append(key, arguments=arguments[len(known) :]) if arguments.startswith(known) else ()

    def is_new_call(self, key: Hashable, *, call_id: str, name: str) -> bool:
        """Return whether a fragment with a known key starts another call: some servers number every call 0."""
        call = self._by_key[key]
        if not name or not call.name:
            return False
        if call_id:
            return call_id != call.original_id
        return name != call.name or _is_complete(call.arguments)

    def announce_remaining(self) -> Iterator[CallDelta]:
        """Yield the deltas of calls that never got a name."""
        for call in self.calls:
            if not call.is_announced:
                yield self._announce(call)

    def item(self, key: Hashable) -> FunctionCall:
        """Return one complete call."""
        return self._by_key[key].item

    def items(self) -> tuple[FunctionCall, ...]:
        """Return all complete calls, in the order in which they started."""
        return tuple([call.item for call in self.calls])

    @staticmethod
    def _announce(call: _AssembledCall) -> CallDelta:
        call.is_announced = True
        return CallDelta(index=call.index, call_id=call.call_id, name=call.name, arguments=call.arguments)

    def _unique_id(self, call_id: str) -> str:
        number = len(self.calls)
        while not call_id or call_id in self._used_ids:
            call_id = f"call_{self._item_count}_{number}"
            number += 1
        self._used_ids.add(call_id)
        return call_id


def arguments_text(arguments: Any) -> str:
    """Return arguments as text; some servers send an object."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()


def arguments_object(arguments: str) -> dict[str, Any]:
    """Return a call's arguments as an object; text that is none becomes the value of `invalid_arguments`."""
    if not arguments.strip():
        return {}
    try:
        value = parse_json(arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"invalid_arguments": arguments}


def _is_complete(arguments: str) -> bool:
    try:
        parse_json(arguments)
    except ValueError:
        return False
    return True


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
        self._wants_logprobs = request.wants_logprobs
        # Log probabilities take many times the bytes of their tokens.
        self.answer_bytes = None if self._wants_logprobs else request.answer_bytes
        """The limit of the answer, if the bytes of a document tell whether it is kept."""
        self._events: list[ModelEvent] = []
        self._model = ""
        self._tier: str | None = None
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

    def _build_answer(self, items: Sequence[Item], reason: str | None, usage: Usage) -> ModelAnswer:
        """Build the complete answer. `reason`: why it ended, in the words of the dialect."""
        finish = self.finishes.get(reason or "", "stop")
        # Some servers report every end as "stop".
        finish = "tool_calls" if self._calls.calls and finish == "stop" else finish
        return ModelAnswer(items=tuple(items), finish=finish, usage=usage, model=self._model, service_tier=self._tier)


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


def build_openai_usage(usage: dict[str, Any], *, read_name: str, written_name: str) -> Usage:
    """Parse the token counts of OpenAI, whose two APIs differ only in the names of what was read and written.

    Some servers count reasoning beside the output, in their total. Others have other names for what was cached.
    """
    read, written = usage.get(f"{read_name}_details") or {}, usage.get(f"{written_name}_details") or {}
    input_tokens, output_tokens = usage.get(read_name) or 0, usage.get(written_name) or 0
    uncounted = max(0, (usage.get("total_tokens") or 0) - input_tokens - output_tokens)
    cached = read.get("cached_tokens") or usage.get("cached_tokens")
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens + uncounted,
        cached_tokens=cached or usage.get("prompt_cache_hit_tokens") or usage.get("num_cached_tokens") or 0,
        reasoning_tokens=written.get("reasoning_tokens") or uncounted,
        cache_write_tokens=read.get("cache_write_tokens") or 0,
    )
