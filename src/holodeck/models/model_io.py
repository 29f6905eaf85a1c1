"""The request of one model turn, and the events of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from holodeck.lib.record import record
from holodeck.models.items import Compaction, Item, Usage


@record
class ToolSpec:
    """A tool as it is described to a model."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False


@record
class ToolChoice:
    """Whether the model may, must or must not call a tool. `name` forces one tool, `allowed` restricts the choice."""

    mode: Literal["auto", "required", "none"] = "auto"
    name: str | None = None
    allowed: tuple[str, ...] | None = None


@record
class ModelRequest:
    """The whole request of one turn."""

    items: tuple[Item, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    """JSON Schema that the answer must match."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    effort: str | None = None
    """Reasoning effort: `low`, `medium`, `high`, or another value that the model knows."""
    summary: str | None = None
    """Summary of the reasoning in the answer: `auto`, `concise` or `detailed`."""
    verbosity: str | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple[str, ...] = ()
    """Texts before which the answer ends."""
    seed: int | None = None


@record
class TextDelta:
    """More of the answer's text."""

    text: str
    is_refusal: bool = False
    """True if the text is a refusal to answer."""


@record
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@record
class CallDelta:
    """More of a tool call. The first one of an `index` has its `call_id` and `name`; `arguments` come in fragments."""

    index: int
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@record
class ContextCompacted:
    """The context of the turn was compacted before the model was asked. Comes before all other events of the turn."""

    item: Compaction
    usage: Usage = field(default_factory=Usage)
    """Tokens of the request for the summary."""


FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "size", "memory"]
CUT_SHORT: frozenset[FinishReason] = frozenset({"length", "content_filter", "size", "memory"})
"""Reasons for which the last item may be incomplete, a call included. `size` and `memory` are set by the engine, at the
byte limit of the answer and at the shared byte budget; no provider reports them."""


@record
class ModelAnswer:
    """The complete answer of a turn. Exactly one per turn, always the last event."""

    items: tuple[Item, ...]
    finish: FinishReason
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """Name of the model that answered, as the provider reports it."""


ModelEvent = TextDelta | ReasoningDelta | CallDelta | ContextCompacted | ModelAnswer
