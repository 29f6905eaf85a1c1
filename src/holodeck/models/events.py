"""The events of a run, in the order in which they occur, and its result.

The engine's event log stores them; the terminal, the Python API and the gateway each present them in their own form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Usage
from holodeck.models.model_io import Logprob

Cause = Literal["max_output_tokens", "content_filter", "max_turns"]
Status = Literal["completed", "incomplete", "failed", "cancelled", "requires_action"]


@record
class RunStarted:
    """The first event of every run."""

    run_id: str
    model: str
    type: Literal["run.started"] = "run.started"


@record
class TurnStarted:
    """A request to the model starts; `tools` is the number of tools that it offers."""

    turn: int
    tools: int
    is_replayed: bool = False
    """True for a turn of a durable run that an earlier process finished: its stored result is used."""
    type: Literal["turn.started"] = "turn.started"


@record
class TextAdded:
    """More text of a message. `ItemFinished` follows with the same item id."""

    item_id: str
    text: str
    is_refusal: bool = False
    logprobs: tuple[Logprob, ...] = ()
    """The tokens of the text, where the request asked for log probabilities."""
    type: Literal["text.added"] = "text.added"


@record
class ReasoningAdded:
    """More of what the model thinks."""

    item_id: str
    text: str
    type: Literal["reasoning.added"] = "reasoning.added"


@record
class CallAdded:
    """More of a tool call's arguments; the first event of an item names the tool."""

    item_id: str
    call_id: str
    name: str
    arguments: str
    type: Literal["call.added"] = "call.added"


@record
class ItemFinished:
    """A message, a call, a reasoning item or an output is complete."""

    item: Item
    is_cut: bool = False
    """True if the model was stopped in the middle of the item: nothing more follows."""
    type: Literal["item.finished"] = "item.finished"


@record
class ToolStarted:
    """A call starts."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    type: Literal["tool.started"] = "tool.started"


@record
class ToolProgressed:
    """An MCP server reports the progress of a call."""

    call_id: str
    text: str
    type: Literal["tool.progressed"] = "tool.progressed"


@record
class ToolFinished:
    """A call has ended, successfully or not; `metadata` has details of its execution, such as the server."""

    call_id: str
    name: str
    output: FunctionCallOutput
    seconds: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    type: Literal["tool.finished"] = "tool.finished"


@record
class Failure:
    """Why a run failed, for people (`message`) and for programs (`code`)."""

    code: str
    message: str
    public_message: str = "The run failed. The log of the gateway has the reason."
    """The message for callers of a gateway, without what only its operator may know."""
    is_retryable: bool = True
    """Whether the same request may succeed later."""
    retry_after: float | None = None
    """Seconds to wait before that, if known."""


@record
class MissingServer:
    """An MCP server whose tools were not available in some turn of a run."""

    name: str
    reason: str
    required: bool = False


@record
class RunResult:
    """How a run ended, and the items that it added to the conversation."""

    status: Status
    """`completed`, `incomplete`, `failed`, `cancelled`, or `requires_action`: calls are pending."""
    text: str
    """Text of the last message of the model."""
    items: tuple[Item, ...] = ()
    """Messages, reasoning, tool calls and their outputs, in order."""
    reason: str = ""
    """Why the run is incomplete, for people."""
    cause: Cause | None = None
    """Why the run is incomplete, for programs."""
    error: Failure | None = None
    """Why the run failed."""
    pending: tuple[FunctionCall, ...] = ()
    """Pending calls: they wait for outputs of the client, or for approvals."""
    held: frozenset[str] = frozenset()
    """Ids of the pending calls that need an approval."""
    turns: int = 0
    """How many times the model was asked."""
    tool_calls: int = 0
    """How many tools were called."""
    usage: Usage = field(default_factory=Usage)
    """Tokens of all turns."""
    seconds: float = 0.0
    """Duration of the run."""
    missing_servers: tuple[MissingServer, ...] = ()
    """MCP servers whose tools were not available."""
    service_tier: str | None = None
    """Service tier of the last turn, as the provider reported it."""


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
