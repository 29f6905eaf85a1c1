"""The events of a run, in the order in which they occur, and its result.

The engine's event log stores them; the terminal, the Python API and the gateway each present them in their own form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Generic, Literal, cast

from typing_extensions import TypeVar

from holodeck.lib.errors import RunCancelledError, RunFailedError, RunIncompleteError, RunPausedError
from holodeck.lib.record import record
from holodeck.models.items import Compaction, FunctionCall, FunctionCallOutput, Item, Usage
from holodeck.models.model_io import Logprob

Cause = Literal[
    "max_output_tokens", "content_filter", "max_turns", "max_tokens", "max_seconds", "max_cost", "budget_exceeded"
]
"""Why a run is incomplete: the answer was cut at its own limit, or filtered, or the run reached one of its limits, or
its caller's budget was spent after tools had run."""
Status = Literal["completed", "incomplete", "failed", "cancelled", "requires_action"]
OutputT = TypeVar("OutputT", default=str)
"""Type of the answer of a run: text, or the `output_type` of the agent."""


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
    is_restarted: bool = False
    """True when the model broke off in the middle of its answer and is asked again: what the turn has added is void."""
    type: Literal["turn.started"] = "turn.started"


@record
class RunNoticed:
    """Something to know of the MCP servers of the run, which goes on: it waits for one, or one has other tools now.

    Comes before the turn, or during the call, that it is about.
    """

    code: Literal["waits_for_servers", "tools_added", "tools_changed"]
    text: str
    """One sentence for people."""
    names: tuple[str, ...]
    """Of the servers that are away, or of the tools as the model sees them."""
    type: Literal["run.noticed"] = "run.noticed"


@record
class StandInAnswered:
    """A stand-in answers the turn, since the model itself cannot. Comes before what it says."""

    name: str
    """Of the stand-in, as in the configuration."""
    type: Literal["stand_in.answered"] = "stand_in.answered"


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
    is_over_limit: bool = False
    """True for a call that is answered without being run, because the run has made all its calls."""
    type: Literal["tool.started"] = "tool.started"


@record
class ToolProgressed:
    """An MCP server reports the progress of a call."""

    call_id: str
    text: str
    type: Literal["tool.progressed"] = "tool.progressed"


@record
class AgentProgressed:
    """An agent that a call has asked has an event of its own. They come between the start and the end of the call."""

    call_id: str
    agent: str
    """Name of the agent that was asked."""
    event: Event[Any]
    """Its event: `RunStarted` first, `RunFinished` last. That of an agent that it has asked itself is one of these."""
    type: Literal["agent.progressed"] = "agent.progressed"


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
class TurnFinished:
    """The model has answered; `usage` is the tokens of this turn. Comes after the turn's items, before its calls."""

    turn: int
    usage: Usage
    is_replayed: bool = False
    """As in `TurnStarted`."""
    cost: float | None = None
    """Cost of this turn by the price of the model that answered. None: it has no price."""
    type: Literal["turn.finished"] = "turn.finished"


@record
class TurnCut:
    """A turn has ended without an answer: its run was cancelled, or the model broke off. It costs all the same.

    Comes before `RunFinished`, and not for a turn that costs nothing.
    """

    turn: int
    usage: Usage
    """Tokens that the provider has told, and else an estimate by what was sent and received."""
    cost: float | None = None
    """As in `TurnFinished`."""
    type: Literal["turn.cut"] = "turn.cut"


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
class RunResult(Generic[OutputT]):
    """The end of a run, and the items that it added to the conversation."""

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
    """Tokens of all turns, those of agents that were asked included."""
    seconds: float = 0.0
    """Duration of the run."""
    missing_servers: tuple[MissingServer, ...] = ()
    """MCP servers whose tools were not available."""
    service_tier: str | None = None
    """Service tier of the last turn, as the provider reported it."""
    cost: float | None = None
    """Cost of all turns by the prices of the models that answered, with agents that were asked. None: one has none."""
    answered_by: str = ""
    """The stand-in that answered, by its name in the configuration. Empty: the model itself."""
    history: tuple[Item, ...] = ()
    """The whole conversation: the history that the run was given, the question, and `items`."""
    is_parsed: bool = False
    """Whether `parsed_output` is set, because the agent has an `output_type`."""
    parsed_output: OutputT | None = None
    """The answer as the `output_type` of the agent. Read `output` instead."""

    @property
    def output(self) -> OutputT:
        """The answer: an `output_type` of the agent, or text. Raises the errors of `raise_for_status`."""
        self.raise_for_status()
        return cast(OutputT, self.parsed_output if self.is_parsed else self.text)

    def _repr_markdown_(self) -> str:
        """Return the answer for a notebook, and why the run is not complete."""
        reason = failure_reason(self)
        return f"{self.text}\n\n*{reason}*".strip() if reason else self.text

    def raise_for_status(self) -> None:
        """Raise a `RunError` unless the run is completed: one class for each status, with this result in it."""
        match self.status:
            case "completed":
                return
            case "failed":
                raise RunFailedError(self.error.message if self.error is not None else "The run failed.", self)
            case "incomplete":
                raise RunIncompleteError(self.reason, self)
            case "cancelled":
                raise RunCancelledError(self.reason, self)
            case "requires_action":
                calls = ", ".join(call.name for call in self.pending)
                message = "The run waits for an approval or for the outputs of functions that the client runs"
                raise RunPausedError(f"{message}: {calls}." if calls else f"{message}.", self)


def failure_reason(result: RunResult[Any]) -> str:
    """Return why a run is not complete, as a sentence; an empty text when it is."""
    return result.error.message if result.error is not None else result.reason


@record
class RunFinished(Generic[OutputT]):
    """The last event of every run."""

    result: RunResult[OutputT]
    type: Literal["run.finished"] = "run.finished"


Event = (
    RunStarted
    | TurnStarted
    | RunNoticed
    | StandInAnswered
    | TextAdded
    | ReasoningAdded
    | CallAdded
    | ItemFinished
    | ToolStarted
    | ToolProgressed
    | AgentProgressed
    | ToolFinished
    | TurnFinished
    | TurnCut
    | RunFinished[OutputT]
)


def is_before_answer(event: Event[Any]) -> bool:
    """Return whether an event can come while it is open which model answers the first turn of a run."""
    if isinstance(event, ItemFinished):
        return isinstance(event.item, Compaction)
    return isinstance(event, RunStarted | TurnStarted | RunNoticed | StandInAnswered)
