"""The request of one model turn, and the events of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Literal

from holodeck.lib.record import record
from holodeck.models.content import CacheMark
from holodeck.models.items import Compaction, Item, Usage

JSON_OBJECT_SCHEMA: Mapping[str, Any] = {"type": "object"}
"""The schema of `json_mode`, for models that have no such mode."""
NO_EXTRA_BODY: Mapping[str, Any] = MappingProxyType({})


@record
class ToolSpec:
    """A tool as it is described to a model."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False
    cache_mark: CacheMark | None = field(default=None, hash=False)
    native: Mapping[str, Any] | None = field(default=None, hash=False)
    """The tool as an API that defines it has it, by the key of its dialect. Models of other APIs get a function."""


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
    json_mode: bool = False
    """Whether the answer must be a JSON object, of any schema. Has no effect beside `response_format`."""
    top_logprobs: int | None = None
    """Number of alternatives for each token of the answer, with log probabilities. None: no log probabilities."""
    service_tier: str | None = None
    """Tier of price and speed at the provider, in the words of OpenAI's API."""
    prompt_cache_key: str | None = None
    """Key by which the provider finds cached prompts of the same kind."""
    prompt_cache_options: Mapping[str, Any] | None = None
    """How the provider caches the prompt, in the words of OpenAI's API."""
    prompt_cache_retention: str | None = None
    """How long the provider caches the prompt, in the words of OpenAI's API."""
    cache_mark: CacheMark | None = None
    """The mark of a whole request."""
    safety_identifier: str | None = None
    """Stable identifier of the end user, by which the provider detects abuse."""
    user: str | None = None
    """The older field for the end user."""
    extra_body: Mapping[str, Any] = field(default_factory=lambda: NO_EXTRA_BODY)
    """More members for the JSON body of a model behind HTTP."""


@record
class Logprob:
    """A token of the answer with its log probability, and the likeliest tokens at its place (`top`)."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None = None
    """UTF-8 bytes of the token, which may be a part of a character. None: the provider did not report them."""
    top: tuple[Logprob, ...] = ()


@record
class TextDelta:
    """More of the answer's text."""

    text: str
    is_refusal: bool = False
    """True if the text is a refusal to answer."""
    logprobs: tuple[Logprob, ...] = ()
    """The tokens of the text, where the request asked for log probabilities and the provider has them."""


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
    service_tier: str | None = None
    """Service tier that was used, as the provider reports it. None: it reports none."""


@record
class AnswerVoided:
    """The model broke off, and is asked again: everything before this event in the turn is void."""


ModelEvent = TextDelta | ReasoningDelta | CallDelta | ContextCompacted | AnswerVoided | ModelAnswer
