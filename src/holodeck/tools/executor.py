"""The interface between the engine and tools: `ToolCall` in, `ToolResult` out, through a `ToolExecutor`.

Nothing here depends on how a tool is run. A failed call is a `ToolResult` with `is_error`, never an exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from holodeck.lib.record import record
from holodeck.models.content import ContentBlock, TextContent
from holodeck.models.model_io import ToolSpec


class ToolKind(StrEnum):
    """The component that executes a tool."""

    FUNCTION = "function"
    """A Python function of the project, or a function of the client that sent the request."""
    MCP = "mcp"
    BUILTIN = "builtin"


class ResumePoint(Protocol):
    """Where the call of a durable run stores how another process can wait for its result.

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

    @classmethod
    def failure(cls, call_id: str, reason: str, **metadata: Any) -> ToolResult:
        """Build an error result whose text tells the model the reason."""
        return cls(call_id=call_id, content=(TextContent(text=reason),), is_error=True, metadata=metadata)

    @property
    def text(self) -> str:
        """The text blocks, joined; others are omitted."""
        return "".join(block.text for block in self.content if isinstance(block, TextContent))


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


@record
class CallTarget:
    """The MCP server and the tool that a call goes to."""

    server: str
    """Empty for a Python function."""
    tool: str
    host: str = ""
    """The host of a server that the caller declared by its URL."""


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

    async def record_refusal(self, call: ToolCall, target: CallTarget | None, code: str) -> None:
        """Record a call that is not executed. `target` None: there is no such tool."""
        ...


class ToolExecutor(Protocol):
    """Executes calls of a set of tools. Only cancellation leaves `execute` as an exception.

    Optional methods, looked up by name:

    - `may_repeat(name) -> bool`: the tool may be run twice without harm.
    - `needs_person(name) -> bool`: the tool is not run without a person's approval.
    - `ask_person(call) -> bool | None`: ask for a person's approval before `execute`; None when none is needed.
    - `target_of(name)`: identifies the tool behind a name that can change its meaning; equal values, same tool.
    - `find_call_target(call) -> CallTarget | None`: the server and the tool that a call goes to.
    - `find_refusal(call) -> ToolResult | None`: awaited before `execute` where calls are recorded. The result of a call
      that its rules do not let run, with `REFUSED` in its metadata unless it may have run in an earlier process.
    - `is_approved(call) -> bool`: a person has approved this call; asked after `find_refusal`.
    - `find_resource_server(name) -> str | None`: the server of a tool, if resources that its results link to may be
      read; then also `read_resource(server, uri, call) -> ToolResult`.
    - `missing_servers() -> Sequence[MissingServer]`: servers whose tools are not on offer.
    """

    @property
    def kind(self) -> ToolKind: ...

    async def specs(self) -> Sequence[ToolSpec]:
        """Return the tools on offer now. An unavailable tool is absent; it does not raise."""
        ...

    def can_execute(self, name: str) -> bool: ...

    async def execute(self, call: ToolCall) -> ToolResult: ...
