"""One exchange with a model: what it is asked, and what comes back while it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from holodeck.lib.types import record
from holodeck.models.items import Item, Usage


@record
class ToolSpec:
    """A tool as a model is offered it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False


@record
class ToolChoice:
    """Whether the model may, must or must not call a tool; `name` forces one tool, `allowed` narrows the choice."""

    mode: Literal["auto", "required", "none"] = "auto"
    name: str | None = None
    allowed: tuple[str, ...] | None = None


@record
class ModelRequest:
    """All that a model is told for one turn."""

    items: tuple[Item, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    """A JSON Schema that the answer must fit."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    effort: str | None = None
    """How hard to think: `low`, `medium`, `high`, and whatever else the model knows."""
    summary: str | None = None
    """How much of the thinking to tell: `auto`, `concise` or `detailed`."""
    verbosity: str | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple[str, ...] = ()
    """Words at which the answer ends, before them."""
    seed: int | None = None


@record
class TextDelta:
    """More of the answer's text."""

    text: str
    is_refusal: bool = False
    """True when the model says so that it will not answer."""


@record
class ReasoningDelta:
    """More of what the model thinks aloud."""

    text: str


@record
class CallDelta:
    """More of a tool call. The first one of an `index` has its `call_id` and `name`; `arguments` come in fragments."""

    index: int
    call_id: str = ""
    name: str = ""
    arguments: str = ""


FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "size", "memory"]
CUT_SHORT: frozenset[FinishReason] = frozenset({"length", "content_filter", "size", "memory"})
"""The model was stopped in the middle of what it said last, which may have been a call. `size` and `memory`:
by the engine, at a limit of bytes of its own, or of all runs together; no provider says so."""


@record
class ModelAnswer:
    """The end of a turn: everything the model said, whole. Always the last event, and there is exactly one."""

    items: tuple[Item, ...]
    finish: FinishReason
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """The name that the provider gave to the model that answered."""


ModelEvent = TextDelta | ReasoningDelta | CallDelta | ModelAnswer
