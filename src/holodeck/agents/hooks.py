"""Hooks: code of the program that runs before and after a run, its turns and its tool calls.

The callbacks that ask a person, `on_approval` and `on_elicitation`, have their types here, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias

from holodeck.agents.context import DepsT, RunContext
from holodeck.agents.elicitation import Elicitation
from holodeck.lib.record import record
from holodeck.models.content import ContentBlock
from holodeck.models.events import RunResult
from holodeck.models.items import Item
from holodeck.models.model_io import ModelAnswer, ModelRequest
from holodeck.tools.executor import ToolResult


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
OnApproval: TypeAlias = Callable[[RunContext[DepsT], RequestedCall], Approval | Awaitable[Approval]]
"""Asks a person whether a call may run. One that is no coroutine function runs in a thread."""
OnElicitation: TypeAlias = Callable[
    [RunContext[DepsT], Elicitation], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None
]
"""Asks a person the question of a server. Returns the members of the answer, or None to decline."""
