"""The request of one model turn, and the events of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from holodeck.lib.byte_budget import Reservation
from holodeck.lib.record import record
from holodeck.models.generation import OPTION_OF, APIFields, GenerationOptions
from holodeck.models.items import CacheMark, Compaction, Item, Usage

JSON_OBJECT_SCHEMA: Mapping[str, Any] = {"type": "object"}
"""The schema of `json_mode`, for models that have no such mode."""


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


class Receipt:
    """The state of a turn at its provider, before the answer is complete. One for all copies of a request."""

    is_sent = False
    """Whether the request is at its provider, which may bill it from now on."""
    told: Usage | None = None
    """The tokens that the provider has told so far."""


@record
class ModelRequest(GenerationOptions):
    """The whole request of one turn."""

    items: tuple[Item, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """More members for the JSON body of a model behind HTTP."""
    is_streamed: bool = True
    """Whether anything reads the deltas as they arrive. False: a model may answer with one delta for each item."""
    answer_bytes: int | None = None
    """Bytes of text and arguments after which an answer that is not streamed is cut. None: there is no limit."""
    memory: Reservation | None = field(default=None, compare=False)
    """Counts an answer that is not streamed while it is read. None: it is not counted."""
    receipt: Receipt = field(default_factory=Receipt, compare=False)
    """Written by the model that is asked, for a turn that is left before its end."""
    run_id: str = field(default="", compare=False)
    """The run that asks. Empty: the request is no part of a run."""
    caller_id: str = field(default="", compare=False)
    """The caller of the gateway that asks. Empty: there is none."""
    thread: str = field(default="", compare=False)
    """The conversation that the request continues, or the response. Empty: none that is known."""
    answered_by: str | None = field(default=None, compare=False)
    """The stand-in that has answered the turns of the run so far; empty for the model itself. None: it has no turn."""


def find_unsupported(request: ModelRequest, api: APIFields) -> str | None:
    """Return the first field of a request that must be refused, since the API does not have it; else None."""
    for name, accepted in api.refused:
        if getattr(request, name) not in accepted:
            return name
    return "extra_body" if request.extra_body and "extra_body" not in api.request else None


@record
class Logprob:
    """A token of the answer with its log probability, and the likeliest tokens at its place (`top`)."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None = None
    """UTF-8 bytes of the token, which may be a part of a character. None: the provider did not report them."""
    top: tuple[Logprob, ...] = ()


LOGPROB_ALTERNATIVES = OPTION_OF["top_logprobs"].name
"""The member of a token with the likeliest tokens at its place, in OpenAI's APIs."""


def parse_logprobs(entries: Any) -> tuple[Logprob, ...]:
    """Parse log probabilities, which have the same form in both of OpenAI's APIs."""
    return tuple(
        Logprob(
            token=entry["token"],
            logprob=entry["logprob"],
            bytes=None if entry.get("bytes") is None else tuple(entry["bytes"]),
            top=parse_logprobs(entry.get(LOGPROB_ALTERNATIVES)),
        )
        for entry in entries or ()
    )


def logprobs_to_json(logprobs: Sequence[Logprob], *, has_all_bytes: bool = False) -> list[dict[str, Any]]:
    """Return log probabilities as `parse_logprobs` reads them.

    `has_all_bytes`: where the provider reported no bytes, those of the token's text stand in.
    """
    return [
        {
            **_token_to_json(each, has_all_bytes),
            LOGPROB_ALTERNATIVES: [_token_to_json(other, has_all_bytes) for other in each.top],
        }
        for each in logprobs
    ]


def _token_to_json(entry: Logprob, has_all_bytes: bool) -> dict[str, Any]:
    encoded: Iterable[int] | None = entry.bytes
    if encoded is None and has_all_bytes:
        encoded = entry.token.encode("utf-8", "replace")
    return {"token": entry.token, "logprob": entry.logprob, "bytes": None if encoded is None else list(encoded)}


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
    cost: float | None = None
    """Of that request. None: the price of its model is unknown."""


@record
class StandInChosen:
    """A stand-in answers in place of the model that was asked. Comes before all other events of its answer."""

    name: str


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
    answered_by: str = ""
    """The stand-in that answered, by its name in the configuration. Empty: the model itself."""
    cost: float | None = None
    """Cost of the turn, with that of a summary before it. Set by the engine. None: the model has no price."""


REPORTED_FACTS = ("model", "service_tier")
"""The fields of an answer with what its provider reports of it."""


@record
class AnswerVoided:
    """The model broke off, and is asked again: everything before this event in the turn is void."""


ModelEvent = TextDelta | ReasoningDelta | CallDelta | ContextCompacted | StandInChosen | AnswerVoided | ModelAnswer
