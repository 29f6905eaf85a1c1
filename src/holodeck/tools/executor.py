"""The interface between the engine and tools: `ToolCall` in, `ToolResult` out, through a `ToolExecutor`.

Nothing here depends on how a tool is run. A failed call is a `ToolResult` with `is_error`, never an exception.

`CallingRun` is the run that makes a call, as a tool sees it that is a run itself: what is spent, and what may be. What
an agent spends that another one has asked counts for both, up to the run that a program or a person started. After each
turn of any of them, the limits of all that wait for it hold. The engine makes one for each run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.lib.record import record
from holodeck.models.events import Cause, Event, MissingServer
from holodeck.models.items import ContentBlock, TextContent, Usage
from holodeck.models.model_io import ToolSpec

if TYPE_CHECKING:
    from holodeck.tools.calls import CallPipeline


_NO_USAGE = Usage()


@record
class Spending:
    """Tokens, cost and calls of an agent that was asked by a call."""

    usage: Usage
    cost: float | None
    """None: one of its models has no price."""
    calls: int
    """How many tools were called."""


class CallingRun:
    """The account of one run with the agents that it asks, and the way to its events and its rules of calls."""

    __slots__ = (
        "_max_calls",
        "_max_cost",
        "_max_tokens",
        "agent",
        "append",
        "caller",
        "calls",
        "cost",
        "has_asked",
        "is_streamed",
        "pipeline",
        "usage",
    )

    def __init__(
        self,
        agent: str,
        pipeline: CallPipeline,
        append: Callable[..., object],
        *,
        is_streamed: bool,
        max_tokens: int | None,
        max_cost: float | None,
        max_calls: int | None,
        caller: CallingRun | None,
    ) -> None:
        """`append`: appends events to those of the run. `caller`: the run that waits for this one."""
        self.agent = agent
        self.pipeline = pipeline
        self.append: Callable[[Event], object] = append
        self.is_streamed = is_streamed
        """Whether something reads the deltas of the run."""
        self.caller = caller
        self.usage = _NO_USAGE
        """Tokens of all turns that have ended, those of agents that were asked included."""
        self.cost: float | None = 0.0
        """Their cost. None: one of the models has no price."""
        self.calls = 0
        """How many tools were called, or are being called."""
        self.has_asked = False
        """Whether an agent that it has asked has spent something."""
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._max_calls = max_calls

    def spend(self, usage: Usage, cost: float | None) -> None:
        """Count a turn for this run, and for those that wait for it. `cost`: None if the model has no price."""
        run: CallingRun | None = self
        while run is not None:
            run.usage = usage if run.usage is _NO_USAGE else run.usage + usage
            run.cost = None if run.cost is None or cost is None else run.cost + cost
            run.has_asked = run.has_asked or run is not self
            run = run.caller

    def count_calls(self, calls: int) -> None:
        """Count calls that are about to be made, for this run and for those that wait for it."""
        run: CallingRun | None = self
        while run is not None:
            run.calls += calls
            run = run.caller

    def repay(self, spending: Spending) -> None:
        """Count what an agent has spent for a call whose result an earlier process has stored."""
        self.spend(spending.usage, spending.cost)
        self.count_calls(spending.calls)
        self.has_asked = True

    def find_spent_limit(self) -> tuple[Cause, str] | None:
        """Return the limit of tokens or cost that was reached, with a text of it: of this run, or of one that waits."""
        run: CallingRun | None = self
        while run is not None:
            whose = "" if run is self else f" of the agent '{run.agent}' that asked"
            if run._max_tokens is not None and run.usage.total_tokens >= run._max_tokens:
                return "max_tokens", f"{run._max_tokens} tokens{whose}"
            if run._max_cost is not None and run.cost is not None and run.cost >= run._max_cost:
                return "max_cost", f"{run._max_cost:g} for the cost{whose}"
            run = run.caller
        return None

    def count_calls_left(self) -> int | None:
        """Return how many tools may be called still, by this run and by those that wait for it. None: any number."""
        left: int | None = None
        run: CallingRun | None = self
        while run is not None:
            if run._max_calls is not None:
                own = max(run._max_calls - run.calls, 0)
                left = own if left is None else min(left, own)
            run = run.caller
        return left


class ToolKind(StrEnum):
    """The component that executes a tool."""

    FUNCTION = "function"
    """A Python function of the project, or a function of the client that sent the request."""
    MCP = "mcp"
    BUILTIN = "builtin"
    AGENT = "agent"
    """Another agent, which a call asks a question."""


class ResumePoint(Protocol):
    """The place where the call of a durable run stores how another process can wait for its result.

    A process that finds something stored must not run the call again: it goes on waiting for what is running already.
    """

    @property
    def stored(self) -> Mapping[str, Any] | None:
        """What an earlier process has stored for this call; None for a call that is run for the first time."""
        ...

    @property
    def is_handed_over(self) -> bool:
        """True when the rest of the run belongs to another process: what is running must not be cancelled."""
        ...

    async def store(self, value: Mapping[str, Any]) -> None:
        """Store JSON values, before the result is waited for."""
        ...


QuestionHandler = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Takes the name of a server and the parameters of its question; returns the answer as MCP has it."""


@record
class ToolCall:
    """A call to execute, with parsed arguments. `name` is the name that the model was offered."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    key: str = ""
    """Idempotency key: equal for every attempt at this call, so that a server can recognise a repetition."""
    spec: ToolSpec | None = None
    """The tool as it was offered to the model. None: unknown."""
    is_approved: bool = False
    """True when a person has approved this call."""
    on_progress: Callable[[str], None] | None = None
    """Called with one line of text for each progress report of the tool."""
    resume: ResumePoint | None = None
    """Set in a durable run. A tool that cannot make use of it ignores it."""
    on_question: QuestionHandler | None = None
    """Asks the person for whom the call is made, when the server has a question while it works on the call."""
    run: CallingRun | None = None
    """The run that makes the call. None: no run does."""


READ_RESOURCE = "read_resource"
"""The usual name of the tool that reads resources, and its name in the patterns of a server's definition."""

CHANGED = "changed"
"""Key in the metadata of a result: the call was not run, because the tool has changed since it was offered."""


@record
class ToolResult:
    """The outcome of a call, as content blocks for the model."""

    call_id: str
    content: tuple[ContentBlock, ...]
    is_error: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    spending: Spending | None = None
    """What the agent has spent that was asked. None: none was."""

    @classmethod
    def failure(cls, call_id: str, reason: str, **metadata: Any) -> ToolResult:
        """Build an error result whose text tells the model the reason."""
        return cls(call_id=call_id, content=(TextContent(text=reason),), is_error=True, metadata=metadata)

    @property
    def text(self) -> str:
        """The text blocks, joined; others are omitted."""
        return "".join(block.text for block in self.content if isinstance(block, TextContent))


SERVER_ABSENT = "server_absent"
"""Key in the metadata of a result: the server could not be reached, and no byte of the call was sent to it."""
REFUSED = "refused"
"""Key in the metadata of a result: the call was not run. The value is a code of the reason."""

# Codes of the reasons for which a call has no result.
UNKNOWN_TOOL = "unknown_tool"
TOOL_NOT_ALLOWED = "tool_not_allowed"
TOOL_CHANGED = "tool_changed"
INVALID_JSON = "invalid_json"
"""The arguments of the call are not a JSON object."""
INVALID_ARGUMENTS = "invalid_arguments"
"""The arguments do not fit the schema of the tool."""
CALL_LIMIT = "call_limit"
OUT_OF_SCOPE = "out_of_scope"
"""The caller may not use the tool any more."""
CANCELLED = "cancelled"
INTERNAL_ERROR = "internal_error"
REFUSED_BY_HOOK = "refused_by_hook"
"""A hook of the program refused the call, or the person whom it asked did."""
APPROVAL_NEEDED = "approval_needed"
"""The call needs an approval, and there is nobody to ask for it."""
APPROVAL_DECLINED = "approval_declined"
"""The call needs an approval, and the person who was asked did not give it."""
NOT_RECORDED = "not_recorded"
"""The call could not be recorded before it was executed."""


REQUEST_SERVER_LABELS = {"server": "(of a request)", "tool": "(of a request)"}
"""Metric labels of servers that requests declare: names that clients invent would be an unbounded number of labels."""


class TargetKind(StrEnum):
    """The kind of thing that a call uses, for which a scope has rules of its own."""

    TOOL = "tool"
    RESOURCE = "resource"
    """A resource that its server lists, or has a template for."""
    LINK = "link"
    """A resource that the result of a tool has linked to."""
    PROMPT = "prompt"
    AGENT = "agent"


@record
class CallTarget:
    """The MCP server and the tool that a call goes to."""

    server: str
    """Empty for a Python function."""
    tool: str
    """The server's own name of the tool or prompt; `READ_RESOURCE` for a resource."""
    host: str = ""
    """The host of a server that the caller declared by its URL."""
    kind: TargetKind = TargetKind.TOOL

    @property
    def shown_tool(self) -> str:
        """The tool in records and counts, where a prompt or an agent is not taken for a tool of the same name."""
        if self.kind is TargetKind.PROMPT:
            return f"get_prompt:{self.tool}"
        return f"ask_agent:{self.tool}" if self.kind is TargetKind.AGENT else self.tool

    @property
    def labels(self) -> dict[str, str]:
        """The server and the tool as metrics name them."""
        if self.host:
            return dict(REQUEST_SERVER_LABELS)
        return {"server": self.server, "tool": self.tool} if self.server else {}


UNKNOWN_TARGET = CallTarget(server="", tool="unknown")
"""Stands for a tool that does not exist: its name may be any text."""


@record
class Refusal:
    """The reason why a call is not executed: a code for records, and a text for the model or the client."""

    code: str
    text: str

    def to_result(self, call_id: str, target: CallTarget | None = None) -> ToolResult:
        """Build the result of the call. `target`: counted as one of its calls."""
        labels = {} if target is None else target.labels
        return ToolResult.failure(call_id, self.text, **labels, **{REFUSED: self.code})


@record
class CallRules:
    """The facts about a call before it runs: where it goes, and what the rules of its target demand."""

    target: CallTarget
    refusal: Refusal | None = None
    """Why it does not run, whatever its arguments are: there is no such tool, or it has changed."""
    needs_approval: bool = False
    is_approved: bool = False
    """A person has approved this call already."""
    result: ToolResult | None = None
    """The result in place of a call that is not run again. It has `REFUSED` in its metadata if it never ran."""
    is_recorded: bool = True
    """False for a call that stays inside this process."""


@record
class ToolOffer:
    """The tools of an executor at one time. It never changes: all runs that are offered the same tools share it."""

    specs: Sequence[ToolSpec]
    by_name: Mapping[str, ToolSpec]
    targets: Mapping[str, tuple[str, str] | None]
    """By name, the server and the tool behind it."""


class CallRecorder(Protocol):
    """Records the calls of one run for its operator: each before it is executed, and its outcome after that."""

    async def record_call(self, call: ToolCall, target: CallTarget) -> str | None:
        """Record a call that is about to be executed. Returns the reason, for the model, if it must not be."""
        ...

    async def record_result(self, call: ToolCall, target: CallTarget, result: ToolResult, seconds: float) -> None:
        """Record the result of an executed call."""
        ...

    def record_interruption(self, call: ToolCall, target: CallTarget, code: str, seconds: float) -> None:
        """Record that a call has no result, with a code of the reason. Does not wait: its caller may be cancelled."""
        ...

    async def record_refusal(self, call: ToolCall, target: CallTarget, code: str) -> None:
        """Record a call that is not executed."""
        ...


class ToolExecutor(ABC):
    """Executes calls of a set of tools. Only cancellation leaves `execute` as an exception.

    Four methods make an executor. The others answer for tools that run here, have one meaning and need no person.
    """

    @property
    @abstractmethod
    def kind(self) -> ToolKind: ...

    @abstractmethod
    async def specs(self) -> Sequence[ToolSpec]:
        """Return the tools on offer now. An unavailable tool is absent; it does not raise."""
        ...

    @abstractmethod
    def can_execute(self, name: str) -> bool: ...

    @abstractmethod
    async def execute(self, call: ToolCall) -> ToolResult: ...

    def may_repeat(self, name: str) -> bool:
        """Return whether the tool may be run twice without harm."""
        return False

    def find_rules(self, call: ToolCall) -> CallRules:
        """Return where a call of a name of the latest `specs` goes, and the rules for it."""
        return CallRules(target=CallTarget(server="", tool=call.name))

    def target_of(self, name: str) -> tuple[str, str] | None:
        """Return the server and the tool behind a name of the latest `specs`, which can change its meaning."""
        return "", name

    def find_offer(self, specs: Sequence[ToolSpec]) -> ToolOffer:
        """Return the latest `specs` by name, with `target_of` each of them."""
        by_name = {spec.name: spec for spec in reversed(specs)}
        return ToolOffer(specs=specs, by_name=by_name, targets={name: self.target_of(name) for name in by_name})

    def find_bound_target(self, call: ToolCall) -> CallTarget | None:
        """Return the target of a call that is bound to one, although its tool is not on offer any more."""
        return None

    def find_resource_server(self, name: str) -> str | None:
        """Return the server of a tool, if resources that its results link to may be read."""
        return None

    async def read_resource(self, server: str, uri: str, call: ToolCall) -> ToolResult:
        """Read a resource of a server that `find_resource_server` has named."""
        return ToolResult.failure(call.call_id, f"The server '{server}' is not available at this moment.")

    def missing_servers(self) -> Sequence[MissingServer]:
        """Return the servers whose tools are not on offer."""
        return ()

    def find_missing_reason(self, name: str) -> str | None:
        """Return why a tool of this name is not on offer, if more is known than that it is not."""
        return None
