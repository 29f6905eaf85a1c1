"""Assembles tool calls from the fragments of a stream.

Handles parallel and interleaved calls, calls without ids, whole calls in one event, and servers that use one index for
all calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from holodeck.lib.json.parse import parse_json
from holodeck.models.items import FunctionCall
from holodeck.models.model_io import CallDelta, ModelRequest

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
