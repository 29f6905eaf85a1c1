"""The options of one run of an agent, as type checkers and `Agent.run` know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypedDict

from holodeck.agents.context import DepsT
from holodeck.agents.hooks import Hooks, OnApproval, OnElicitation
from holodeck.models.items import Item
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.models.run_limits import RunLimits

if TYPE_CHECKING:
    from holodeck.agents.sessions.session import Session


class RunOptions(TypedDict, Generic[DepsT], total=False):
    """The options of one run."""

    deps: DepsT
    """The object that tools and hooks find in their context."""
    history: Sequence[Item]
    """The conversation before the question: `history` of an earlier result."""
    session: Session
    """The conversation that the run goes on with and is appended to, instead of `history`."""
    durable: bool
    """Whether each step is stored, so that `holodeck.runs.resume` can go on with the run after a crash."""
    functions: Sequence[ToolSpec]
    """Tools that the program runs itself: a call of one ends the run, which has it in `pending`."""
    tool_choice: ToolChoice
    """Whether the model may, must or must not call a tool."""
    parallel_tool_calls: bool
    """Whether the calls of one turn run at the same time."""
    run_id: str
    """Id of the run. Absent: a new one."""
    hooks: Sequence[Hooks[DepsT]]
    """Hooks of this run, after those of the agent."""
    limits: RunLimits
    """Limits of this run: each that is not None replaces that of the agent."""
    on_approval: OnApproval[DepsT]
    """Asks a person whether a call may run, in place of that of the agent."""
    on_elicitation: OnElicitation[DepsT]
    """Asks a person the question of a server, in place of that of the agent."""
