"""Generation options: each option of a model's answer is declared here, and nowhere else.

An option is a field of `GenerationOptions`. Its declaration says which values it has, where the requests of each of the
gateway's APIs have it, what a response repeats of it, and how the APIs of models call it. From `OPTIONS` derive the
readers and the OpenAPI schemas of requests, the table of request fields, the limits of keys in agent files, the bodies
for models, and the attributes of spans. All of them are computed at import.

`APIFields` says which fields of a `ModelRequest` the API of a model has. An option that it does not have is either a
hint, which is left out, or the request is refused, unless the value means what is usual anyway.
`json_mode` is neither: a model without it gets `JSON_OBJECT_SCHEMA`. Fields that are no options exist in every API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from operator import attrgetter
from typing import Any, Literal, get_args

from holodeck.lib.limits import MAX_IDENTIFIER_CHARS, MAX_INPUT_TEXT_CHARS
from holodeck.lib.record import record
from holodeck.models.items import CacheMark

API = Literal["responses", "chat", "messages"]
"""An API of the gateway."""
ModelAPI = Literal["chat", "responses", "anthropic", "ollama", "local", "rehearsal"]
"""An API of models. That of Ollama is a part of Chat Completions."""
Kind = Literal["flag", "integer", "decimal", "choice", "text", "texts", "text_or_texts", "object"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
MessagesEffort = Literal["low", "medium", "high", "xhigh", "max"]
Summary = Literal["auto", "concise", "detailed"]
Verbosity = Literal["low", "medium", "high"]
ServiceTier = Literal["auto", "default", "flex", "priority", "scale", "standard", "fast", "ultrafast", "batch"]

LEFT_OUT: Any = object()
"""In `Option.default`: a response has the option only if its request has it."""


@record
class Values:
    """The values that an option can have. `max_length`: characters of a text, or how many texts."""

    kind: Kind
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None
    choices: tuple[str, ...] = ()


@record
class RequestPlace:
    """The place of an option in a body of one of the gateway's APIs, with the values that the API allows."""

    path: str
    values: Values
    note: str
    """A note for the page of request fields."""


@record
class Option:
    """One generation option."""

    name: str
    """Its field in `GenerationOptions` and `ModelRequest`."""
    values: Values
    example: Any
    sent_as: Mapping[ModelAPI, str]
    """Path in the body for a model, by its API. Other APIs do not have it."""
    places: Mapping[API, RequestPlace]
    about: str = ""
    """Description in the OpenAPI document."""
    hint: Literal["cache", "caller", "reasoning"] | None = None
    """What it is a hint about: it changes no answer, and is left out for an API that does not have it.
    None: such a request is refused."""
    neutral: Any = None
    """A value that asks for nothing, besides None."""
    usual: tuple[str, ...] = ()
    """Values that any API fulfils, since they mean what it does anyway."""
    values_in: Mapping[ModelAPI, Mapping[str, str]] = field(default_factory=dict)
    """The words of an API that has only some of its values, by these values."""
    sent_values: Mapping[ModelAPI, Mapping[Any, Any]] = field(default_factory=dict)
    """What an API is sent for a value, where that is not the value: nothing for one that is not here."""
    is_zero_left_out: bool = False
    """Whether APIs of models are asked for zero by leaving it out."""
    is_with_tools: bool = False
    """Whether it is sent only beside tools."""
    is_traced: bool = False
    """Whether spans of model turns have it as an attribute."""
    repeated_as: str | None = None
    """Member of a response that repeats it. None: no member of its own."""
    default: Any = None
    """What that member is if the request does not have the option."""
    reported: str = ""
    """Description of that member, if it has what the provider used instead of what was asked for."""


_EVERYWHERE: Mapping[ModelAPI, str] = dict.fromkeys(get_args(ModelAPI), "")
_IN_OPENAI: Mapping[ModelAPI, str] = {"chat": "", "responses": ""}
# Of a place, a declaration has what differs from the option. An empty path is the name of the option.
_Places = Mapping[API, Mapping[str, Any]]
_BOTH_OPENAI: _Places = {"responses": {}, "chat": {}}
_ALL: _Places = {**_BOTH_OPENAI, "messages": {}}
_SENT_ON = "Sent to the provider, if it has the field."
_CACHE_HINT = "A hint. A server that refuses it gets the request without it."
_PENALTY = Values(kind="decimal", minimum=-2.0, maximum=2.0)
_PENALIZED: Mapping[ModelAPI, str] = {"chat": "", "ollama": "", "responses": "", "local": ""}
_TIERS = get_args(ServiceTier)
# The largest signed integer of 64 bits.
_MAX_SEED = 2**63 - 1


def _option(values: Values, *, unset: Any = None, places: _Places = _BOTH_OPENAI, **more: Any) -> Any:
    """Declare an option, whose field is `unset` where a request does not have it. `more`: see `Option`."""
    return field(default=unset, metadata={"option": {"values": values, "places": places, **more}})


@record
class GenerationOptions:
    """Options for the answer of a model. None is the default of the model."""

    parallel_tool_calls: bool = _option(
        Values(kind="flag"),
        unset=True,
        about="False: the model calls one tool at a time.",
        example=False,
        sent_as={**_EVERYWHERE, "anthropic": "tool_choice.disable_parallel_tool_use"},
        sent_values={"chat": {False: False}, "ollama": {False: False}, "anthropic": {False: True}},
        is_with_tools=True,
        repeated_as="parallel_tool_calls",
        default=True,
    )
    response_format: Mapping[str, Any] | None = None
    """JSON Schema that the answer must match."""
    temperature: float | None = _option(
        Values(kind="decimal", minimum=0, maximum=2.0),
        about="0: always the most likely token.",
        example=0.25,
        sent_as=_EVERYWHERE,
        places={**_ALL, "messages": {"values": Values(kind="decimal", minimum=0, maximum=1.0)}},
        is_traced=True,
        repeated_as="temperature",
        default=1.0,
    )
    top_p: float | None = _option(
        Values(kind="decimal", minimum=0, maximum=1),
        about="Only tokens within this share of the probability.",
        example=0.25,
        sent_as=_EVERYWHERE,
        places=_ALL,
        is_traced=True,
        repeated_as="top_p",
        default=1.0,
    )
    max_tokens: int | None = _option(
        Values(kind="integer", minimum=1),
        about="Tokens of one answer of the model, at most.",
        example=77,
        sent_as={**_EVERYWHERE, "responses": "max_output_tokens"},
        places={
            "responses": {
                "path": "max_output_tokens",
                "values": Values(kind="integer", minimum=16),
                "note": "OpenAI's own Chat Completions API calls it `max_completion_tokens`.",
            },
            "chat": {"path": "max_completion_tokens", "note": "OpenAI's own API gets it under the same name."},
            "messages": {},
        },
        is_traced=True,
        repeated_as="max_output_tokens",
    )
    effort: str | None = _option(
        Values(kind="choice", choices=get_args(Effort)),
        about="How much the model thinks.",
        example="low",
        sent_as={
            "chat": "reasoning_effort",
            "ollama": "reasoning_effort",
            "responses": "reasoning.effort",
            "anthropic": "output_config.effort",
        },
        places={
            "responses": {"path": "reasoning.effort"},
            "chat": {"path": "reasoning_effort"},
            "messages": {
                "path": "output_config.effort",
                "values": Values(kind="choice", choices=get_args(MessagesEffort)),
            },
        },
        hint="reasoning",
    )
    """Reasoning effort: `low`, `medium`, `high`, or another value that the model knows."""
    summary: str | None = _option(
        Values(kind="choice", choices=get_args(Summary)),
        about="Asks for a summary of the reasoning instead of its text.",
        example="concise",
        sent_as={"responses": "reasoning.summary"},
        places={"responses": {"path": "reasoning.summary"}},
        hint="reasoning",
    )
    """Summary of the reasoning in the answer: `auto`, `concise` or `detailed`."""
    user: str | None = _option(
        Values(kind="text", max_length=MAX_INPUT_TEXT_CHARS),
        about=_SENT_ON,
        example="u7",
        sent_as={**_IN_OPENAI, "anthropic": "metadata.user_id"},
        hint="caller",
        repeated_as="user",
        default=LEFT_OUT,
    )
    """The older field for the end user."""
    safety_identifier: str | None = _option(
        Values(kind="text", max_length=MAX_IDENTIFIER_CHARS),
        about=_SENT_ON,
        example="u7",
        sent_as={**_IN_OPENAI, "anthropic": "metadata.user_id"},
        hint="caller",
        repeated_as="safety_identifier",
    )
    """Stable identifier of the end user, by which the provider detects abuse."""
    stop: tuple[str, ...] = _option(
        # OpenAI accepts 4, other servers more.
        Values(kind="text_or_texts", max_length=16),
        unset=(),
        about="The model stops before these.",
        example=["END"],
        sent_as={"chat": "", "ollama": "", "anthropic": "stop_sequences", "local": "", "rehearsal": ""},
        places={**_BOTH_OPENAI, "messages": {"path": "stop_sequences", "values": Values(kind="texts", max_length=16)}},
        neutral=(),
        repeated_as="stop",
        default=LEFT_OUT,
    )
    """Texts before which the answer ends."""
    seed: int | None = _option(
        Values(kind="integer", minimum=-_MAX_SEED, maximum=_MAX_SEED),
        about="For the same answer again, where the model can do that.",
        example=7,
        # Rehearsal follows fixed rules, which give the same answer for every seed.
        sent_as={"chat": "", "ollama": "", "local": "", "rehearsal": ""},
        repeated_as="seed",
        default=LEFT_OUT,
    )
    presence_penalty: float | None = _option(
        _PENALTY,
        about="Against topics that were mentioned.",
        example=0.25,
        sent_as=_PENALIZED,
        neutral=0,
        is_traced=True,
        repeated_as="presence_penalty",
        default=0.0,
    )
    frequency_penalty: float | None = _option(
        _PENALTY,
        about="Against repeated words.",
        example=0.25,
        sent_as=_PENALIZED,
        neutral=0,
        is_traced=True,
        repeated_as="frequency_penalty",
        default=0.0,
    )
    verbosity: str | None = _option(
        Values(kind="choice", choices=get_args(Verbosity)),
        example="low",
        sent_as={"chat": "", "responses": "text.verbosity"},
        places={"responses": {"path": "text.verbosity"}, "chat": {}},
    )
    json_mode: bool = False
    """Whether the answer must be a JSON object, of any schema. Has no effect beside `response_format`."""
    top_logprobs: int | None = _option(
        Values(kind="integer", minimum=0, maximum=20),
        about="Alternatives for each token.",
        example=3,
        sent_as={"chat": "", "ollama": "", "responses": ""},
        is_zero_left_out=True,
        repeated_as="top_logprobs",
        default=0,
    )
    """Number of alternatives for each token of the answer, with log probabilities. None: no log probabilities."""
    prompt_cache_key: str | None = _option(
        Values(kind="text", max_length=MAX_IDENTIFIER_CHARS),
        about=_SENT_ON,
        example="k7",
        sent_as=_IN_OPENAI,
        hint="cache",
        repeated_as="prompt_cache_key",
    )
    """Key by which the provider finds cached prompts of the same kind."""
    prompt_cache_options: Mapping[str, Any] | None = _option(
        Values(kind="object"),
        about=f"A hint. {_SENT_ON}",
        note=_CACHE_HINT,
        example={"mode": "explicit"},
        sent_as=_IN_OPENAI,
        hint="cache",
    )
    """How the provider caches the prompt, in the words of OpenAI's API."""
    prompt_cache_retention: str | None = _option(
        Values(kind="text"),
        about=f"A hint. {_SENT_ON}",
        note=_CACHE_HINT,
        example="24h",
        sent_as=_IN_OPENAI,
        hint="cache",
    )
    """How long the provider caches the prompt, in the words of OpenAI's API."""
    cache_mark: CacheMark | None = None
    """The mark of a whole request."""
    service_tier: str | None = _option(
        Values(kind="choice", choices=_TIERS),
        about="The tier at the provider. The response has the one that was used.",
        note="The reply has the tier that was used. Anthropic has `auto` and `default`.",
        example="flex",
        sent_as={**_IN_OPENAI, "anthropic": ""},
        usual=("auto", "default", "standard"),
        values_in={"anthropic": {"auto": "auto", "default": "standard_only", "standard": "standard_only"}},
        repeated_as="service_tier",
        default="default",
        reported="The tier that was used, in the words of the provider.",
    )
    """Tier of price and speed at the provider, in the words of OpenAI's API."""

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer has log probabilities, with alternatives or without."""
        return self.top_logprobs is not None


def _build_option(
    name: str,
    *,
    values: Values,
    sent_as: Mapping[ModelAPI, str],
    places: _Places,
    note: str = "",
    **more: Any,
) -> Option:
    """Build the option that a field declares."""
    return Option(
        name=name,
        values=values,
        sent_as={api: path or name for api, path in sent_as.items()},
        places={
            api: RequestPlace(**{"path": name, "values": values, "note": note, **own}) for api, own in places.items()
        },
        **more,
    )


OPTIONS: tuple[Option, ...] = tuple(
    _build_option(each.name, **each.metadata["option"])
    for each in fields(GenerationOptions)
    if "option" in each.metadata
)
OPTION_OF: Mapping[str, Option] = {option.name: option for option in OPTIONS}
DEFAULT_OPTIONS = GenerationOptions()
REPORTED_OPTIONS = tuple(option for option in OPTIONS if option.reported)
"""Options of which a reply has what the provider used."""
TIER = OPTION_OF["service_tier"].name
"""The member of a reply with the tier that was used, in each API of models."""
CACHE_HINTS = tuple(option.name for option in OPTIONS if option.hint == "cache")
"""Options for the prompt caches of OpenAI's APIs."""
IDENTIFIERS = frozenset((*CACHE_HINTS, *(option.name for option in OPTIONS if option.hint == "caller")))
"""Options that change no answer, and that some servers refuse as unknown."""
_NAMES = tuple(each.name for each in fields(GenerationOptions))
_get_values = attrgetter(*_NAMES)


def options_to_dict(options: GenerationOptions) -> dict[str, Any]:
    """Return the fields of options, for another record with these fields; nothing if all have their defaults."""
    return {} if options is DEFAULT_OPTIONS else dict(zip(_NAMES, _get_values(options), strict=True))


@record
class APIFields:
    """The fields of one API."""

    api: ModelAPI
    request: frozenset[str]
    """Fields of `ModelRequest` that are sent."""
    refused: tuple[tuple[str, tuple[object, ...]], ...]
    """Options for whose sake a request is refused, and the values with which none of them is."""
    body: frozenset[str]
    """Members of the JSON body that HoloDeck writes itself, so that no `extra_body` may have them."""


def _describe_api(api: ModelAPI, *other_fields: str, body: frozenset[str] = frozenset()) -> APIFields:
    """Describe an API by what is no option: other fields of a request, and other members of its body."""
    sent = {option.name: option.sent_as[api] for option in OPTIONS if api in option.sent_as}
    return APIFields(
        api=api,
        request=frozenset((*sent, *other_fields)),
        refused=tuple(
            (option.name, (None, option.neutral, *option.usual, *option.values_in.get(api, ())))
            for option in OPTIONS
            if option.hint is None and (option.name not in sent or api in option.values_in)
        ),
        body=body | {path.partition(".")[0] for path in sent.values()} if body else body,
    )


_OPENAI_BODY = frozenset({"model", "stream", "tools", "tool_choice"})
_CHAT_BODY = _OPENAI_BODY | {"messages", "stream_options", "max_completion_tokens", "response_format", "logprobs"}
RESPONSES_FIELDS = _describe_api(
    "responses",
    *("json_mode", "extra_body"),
    body=_OPENAI_BODY | {"input", "instructions", "store", "include", "text"},
)
CHAT_FIELDS = _describe_api("chat", "json_mode", "extra_body", body=_CHAT_BODY)
# A member that Ollama does not have is ours all the same.
OLLAMA_FIELDS = _describe_api("ollama", "json_mode", "extra_body", body=CHAT_FIELDS.body)
ANTHROPIC_FIELDS = _describe_api(
    "anthropic",
    "extra_body",
    body=frozenset({"model", "messages", "stream", "system", "tools", "output_config", "cache_control"}),
)
LOCAL_FIELDS = _describe_api("local", "json_mode")
REHEARSAL_FIELDS = _describe_api("rehearsal")
