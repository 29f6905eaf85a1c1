"""The context of a run, as its tools and hooks see it."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Generic

from typing_extensions import TypeVar

from holodeck.lib.record import record
from holodeck.models.items import Item, Usage

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
