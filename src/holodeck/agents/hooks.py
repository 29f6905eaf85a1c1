"""Hooks: code of the program that runs before and after a run, its turns and its tool calls.

`RunContext` is the context of a run as its tools and hooks see it. The callbacks that ask a person, `on_approval` and
`on_elicitation`, have their types here, too, with the question of an MCP server (`Elicitation`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from holodeck.lib.record import record
from holodeck.models.events import RunResult
from holodeck.models.items import ContentBlock, Item, Usage
from holodeck.models.model_io import ModelAnswer, ModelRequest
from holodeck.tools.executor import ToolResult

DepsT = TypeVar("DepsT", default=None)
"""Type of the object that a program gives to the tools and hooks of a run."""


@record
class RunContext(Generic[DepsT]):
    """The run that a tool or hook is part of, as it is at the moment of the call.

    A tool that has a parameter of this type gets it as an argument, and the model does not see the parameter.
    """

    deps: DepsT
    """The object that was given to the run as `deps`."""
    run_id: str
    """Id of the run, as in its events."""
    agent: str
    """Name of the agent."""
    turn: int = 0
    """Number of the current turn. 0: the model was not asked yet."""
    usage: Usage = field(default_factory=Usage)
    """Tokens of the turns that have ended."""
    items: tuple[Item, ...] = ()
    """What the run has added to the conversation so far."""
    call_id: str = ""
    """Id of the tool call, in a tool and in hooks and callbacks of a call."""


AnyContext = RunContext[Any]


@record
class Elicitation:
    """A question of an MCP server to a person, while it works on a call."""

    server: str
    message: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the answer: an object with simple members."""
    url: str = ""
    """A page that the person shall visit instead of giving an answer here. Empty: there is none."""

    @staticmethod
    def from_params(server: str, params: Mapping[str, Any]) -> Elicitation:
        """Return the question in the parameters of a server's request."""
        schema, url = params.get("requestedSchema"), params.get("url")
        return Elicitation(
            server=server,
            message=str(params.get("message") or ""),
            schema=schema if isinstance(schema, dict) else {},
            url=url if isinstance(url, str) else "",
        )

    def build_result(self, answer: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the result of the server's request. None: the person declines."""
        if answer is None:
            return {"action": "decline"}
        return {"action": "accept"} if self.url else {"action": "accept", "content": dict(answer)}


@record
class RequestedCall:
    """A tool call that the model has asked for, with arguments that fit the tool."""

    call_id: str
    name: str
    """Name of the tool, as the model knows it."""
    arguments: Mapping[str, Any]
    server: str
    """Name of the MCP server. Empty for a Python function."""
    tool: str
    """Name of the tool at its server."""
    question: str = ""
    """The question of the hook that asks for an approval. Empty: the `approval` of the server asks for it."""
    agent: str = ""
    """Name of the agent that makes the call: the one that was started, or one that it has asked."""


@record
class ChangeArguments:
    """Decision of `before_call`: the tool runs with other arguments, which must fit its schema."""

    arguments: Mapping[str, Any]


@record
class AnswerCall:
    """Decision of `before_call`: the tool does not run, and the model gets this as its result."""

    text: str = ""
    content: tuple[ContentBlock, ...] = ()
    """Content blocks after the text."""
    is_error: bool = False


@record
class RefuseCall:
    """Decision of `before_call` or `on_approval`: the tool does not run, and the model is told the reason."""

    reason: str


@record
class AskPerson:
    """Decision of `before_call`: the tool runs only if `on_approval` permits it."""

    question: str = ""
    """For the person: why the call needs an approval."""


CallDecision: TypeAlias = ChangeArguments | AnswerCall | RefuseCall | AskPerson


class Hooks(Generic[DepsT]):
    """Base class of hooks. The methods do nothing: override those that are needed.

    The hooks of a run are called in their order, each with the outcome of the one before. An exception in one fails the
    run; `error` of the result names the hook.
    """

    async def before_run(self, ctx: RunContext[DepsT], items: Sequence[Item]) -> None:
        """Act before the servers of the run are started. `items`: the question."""

    async def after_run(self, ctx: RunContext[DepsT], result: RunResult[Any]) -> None:
        """Act at the end of a run, whatever its status. Not called for a run that is cancelled."""

    async def before_turn(self, ctx: RunContext[DepsT], request: ModelRequest) -> ModelRequest | None:
        """Return another request for this turn, before the model is asked, or None to leave it as it is."""

    async def after_turn(self, ctx: RunContext[DepsT], answer: ModelAnswer) -> None:
        """Act on the answer of the model, before its calls are run."""

    async def before_call(self, ctx: RunContext[DepsT], call: RequestedCall) -> CallDecision | None:
        """Decide about a tool call before it is approved and run. Returns what happens instead, or None to let it run.

        `AnswerCall` and `RefuseCall` end the matter: hooks that follow are not called.
        """

    async def after_call(self, ctx: RunContext[DepsT], call: RequestedCall, result: ToolResult) -> ToolResult | None:
        """Act on the result of a call, also of one that a hook or a person refused.

        Returns the result that the model gets instead, or None to leave it as it is.
        """


Approval: TypeAlias = bool | RefuseCall
"""Whether a call may run. `RefuseCall` is a no with a reason for the model."""
BuildInstructions: TypeAlias = Callable[[RunContext[DepsT]], str | Awaitable[str]]
"""Returns the instructions of a run, before its first turn."""
OnApproval: TypeAlias = Callable[[RunContext[DepsT], RequestedCall], Approval | Awaitable[Approval]]
"""Asks a person whether a call may run. One that is no coroutine function runs in a thread."""
OnElicitation: TypeAlias = Callable[
    [RunContext[DepsT], Elicitation], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None
]
"""Asks a person the question of a server. Returns the members of the answer, or None to decline."""
