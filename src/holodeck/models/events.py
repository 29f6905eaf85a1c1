"""What happens in a run, in the order it happens. The log keeps these; every door shows them its own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from holodeck.lib.types import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Usage

Cause = Literal["max_output_tokens", "content_filter", "max_turns"]
Status = Literal["completed", "incomplete", "failed", "cancelled", "requires_action"]


@record
class RunStarted:
    run_id: str
    model: str
    type: Literal["run.started"] = "run.started"


@record
class TurnStarted:
    """The model is asked; `tools` is how many it is offered."""

    turn: int
    tools: int
    is_replayed: bool = False
    """True for a turn that was taken before the process that ran it ended; it is only remembered."""
    type: Literal["turn.started"] = "turn.started"


@record
class TextAdded:
    """More of a message, which will be finished under the same `item_id`."""

    item_id: str
    text: str
    is_refusal: bool = False
    type: Literal["text.added"] = "text.added"


@record
class ReasoningAdded:
    item_id: str
    text: str
    type: Literal["reasoning.added"] = "reasoning.added"


@record
class CallAdded:
    """More of a tool call's arguments; the first one of an item names the tool."""

    item_id: str
    call_id: str
    name: str
    arguments: str
    type: Literal["call.added"] = "call.added"


@record
class ItemFinished:
    """A message, a call, a thought or an output is whole."""

    item: Item
    is_cut: bool = False
    """True when it is as whole as it gets: the model was stopped in the middle of it."""
    type: Literal["item.finished"] = "item.finished"


@record
class ToolStarted:
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    type: Literal["tool.started"] = "tool.started"


@record
class ToolProgressed:
    call_id: str
    text: str
    type: Literal["tool.progressed"] = "tool.progressed"


@record
class ToolFinished:
    """A call has come to an end, good or bad; `metadata` says by whom and how long."""

    call_id: str
    name: str
    output: FunctionCallOutput
    seconds: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    type: Literal["tool.finished"] = "tool.finished"


@record
class Failure:
    """Why a run failed, for people (`message`) and programs (`code`)."""

    code: str
    message: str
    is_retryable: bool = True
    """Whether the same question may have an answer later."""
    retry_after: float | None = None
    """How many seconds later, if that was said."""


@record
class MissingServer:
    """An MCP server whose tools the model was not offered at some point of a run."""

    name: str
    reason: str
    required: bool = False


@record
class RunResult:
    """How a run ended, and everything that it added to the conversation."""

    status: Status
    text: str
    """What the model said last."""
    items: tuple[Item, ...] = ()
    reason: str = ""
    """Why it is incomplete, in words."""
    cause: Cause | None = None
    """The same for programs."""
    error: Failure | None = None
    pending: tuple[FunctionCall, ...] = ()
    """Calls that wait until the client has answered its own, or until a person has approved some of them."""
    held: frozenset[str] = frozenset()
    """The ids of those that a person must approve."""
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    missing_servers: tuple[MissingServer, ...] = ()


@record
class RunFinished:
    """The last event of every run."""

    result: RunResult
    type: Literal["run.finished"] = "run.finished"


Event = (
    RunStarted
    | TurnStarted
    | TextAdded
    | ReasoningAdded
    | CallAdded
    | ItemFinished
    | ToolStarted
    | ToolProgressed
    | ToolFinished
    | RunFinished
)
