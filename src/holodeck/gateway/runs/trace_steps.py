"""The stored trace of a run: its steps, each with the time at which it happened and its own fields, by name.

`run_trace.py` writes it and `trace_resource.py` builds spans of it. A step is a dictionary, which costs no call to
build, and is stored as it is. Steps refer to items by their number among those of the run, and the instructions of the
operator are there as a digest, so that the only texts are names. Times are whole microseconds from the creation of the
run, on the clock of one process: to round seconds would cost more than all the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

# Of what is stored: raised by every change of a field.
TRACE_VERSION = 3
# In a second: the unit of the times of steps.
MICROSECONDS = 1_000_000
ResultStatus = Literal["ok", "error", "refused"]


class Mark(TypedDict):
    """The run waits in a queue (`queued`), that time has ended (`started`), or an answer begins (`token`)."""

    kind: Literal["queued", "started", "token"]
    at: int


class TurnBegun(TypedDict):
    """A turn begins. `items`: how many the run has. `tool_list`: the number of the list of offered tools."""

    kind: Literal["turn"]
    at: int
    number: int
    items: int
    is_replayed: bool
    tool_list: int | None


class StandIn(TypedDict):
    """Another model answers in place of the usual one."""

    kind: Literal["stand_in"]
    at: int
    name: str


class Noticed(TypedDict):
    """The run has waited for a server, or one has other tools. `text`: one sentence."""

    kind: Literal["notice"]
    at: int
    text: str


class Compacted(TypedDict):
    """The context was compacted. `item`: the number of the compaction."""

    kind: Literal["compaction"]
    at: int
    item: int


class Retry(TypedDict):
    """The model is asked again after a pause, in seconds."""

    kind: Literal["retry"]
    at: int
    pause: float
    error: str


class Answered(TypedDict):
    """The model has answered."""

    kind: Literal["answer"]
    at: int
    items: int
    tokens: Mapping[str, int]
    cost: float | None


class Cut(TypedDict):
    """The turn ends without an answer, and costs all the same."""

    kind: Literal["cut"]
    at: int
    tokens: Mapping[str, int]
    cost: float | None


class CallBegun(TypedDict):
    """A tool is called."""

    kind: Literal["call"]
    at: int
    call_id: str
    name: str


class Output(TypedDict):
    """The run has the output of a call. `item`: its number."""

    kind: Literal["output"]
    at: int
    call_id: str
    item: int


class CallEnded(TypedDict):
    """A call has its result. `server`: empty for a tool of no server."""

    kind: Literal["result"]
    at: int
    call_id: str
    server: str
    tool: str
    status: ResultStatus


class Resumed(TypedDict):
    """Another process goes on with the run. `recorded`: when the one before stored its trace."""

    kind: Literal["resumed"]
    at: int
    recorded: int


class OpenCall(TypedDict):
    """A call that waits for the client, or for an approval if it `is_held`."""

    call_id: str
    name: str
    is_held: bool


class Ended(TypedDict):
    """The run has ended."""

    kind: Literal["ended"]
    at: int
    items: int
    tokens: Mapping[str, int]
    cost: float | None
    is_error: bool
    reason: str | None
    open_calls: NotRequired[list[OpenCall]]


Step = (
    Mark
    | TurnBegun
    | StandIn
    | Noticed
    | Compacted
    | Retry
    | Answered
    | Cut
    | CallBegun
    | Output
    | CallEnded
    | Resumed
    | Ended
)


class StoredTrace(TypedDict):
    """A trace as it is stored. See `RunTrace` for what its numbers say."""

    version: int
    created_at: float
    item_offset: int
    context_count: int
    recorded: int
    """When it was stored, as the times of steps."""
    steps: list[Step]
    instructions_digest: NotRequired[str]
    tool_lists: NotRequired[Sequence[Any]]
    """The names of the tools that the model was offered. None in place of a list that is too long."""


TOKEN_NAMES = (
    *("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens"),
    "estimated_tokens",
)
"""The counts of a usage that steps have."""
