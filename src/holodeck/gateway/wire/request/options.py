"""Options of a request: format and length of the answer, sampling, reasoning, `metadata` and `include`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, get_args

from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice, refuse_type, refuse_unsupported
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.lib.record import record
from holodeck.models.content import CacheMark
from holodeck.models.items import Item
from holodeck.models.llm import MAX_PENALTY, MAX_SEED, MAX_STOP_WORDS, Effort, Verbosity
from holodeck.models.model_io import NO_EXTRA_BODY, ModelRequest, ToolChoice

# Limits of the Responses API.
MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512
MIN_OUTPUT_TOKENS = 16
MAX_TOP_LOGPROBS = 20
MAX_TEMPERATURE = 2.0

EFFORTS: tuple[str, ...] = get_args(Effort)
VERBOSITIES: tuple[str, ...] = get_args(Verbosity)
SERVICE_TIERS = ("auto", "default", "flex", "priority", "scale", "standard", "fast", "ultrafast", "batch")
ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = (
    ENCRYPTED_REASONING,
    LOGPROBS,
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    # No effect: the first is not part of an item here, the second always is.
    "web_search_call.results",
    "computer_call_output.output.image_url",
)
SUMMARIES = ("auto", "concise", "detailed")
_TEXT_FORMAT: Mapping[str, Any] = {"type": "text"}


@record
class GenerationOptions:
    """Options for the model. None is the default of the model."""

    format: Mapping[str, Any] = field(default_factory=lambda: _TEXT_FORMAT)
    """The format as the response repeats it."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer."""
    verbosity: str | None = None
    effort: str | None = None
    summary: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    json_mode: bool = False
    """Whether the answer must be a JSON object, without a schema."""
    top_logprobs: int | None = None
    """Alternatives for each token, with log probabilities. None: no log probabilities."""
    service_tier: str | None = None
    prompt_cache_options: Mapping[str, Any] | None = None
    prompt_cache_retention: str | None = None
    cache_mark: CacheMark | None = None

    def build_model_request(
        self,
        *,
        items: tuple[Item, ...],
        instructions: str | None,
        tool_choice: ToolChoice,
        parallel_tool_calls: bool,
        prompt_cache_key: str | None = None,
        safety_identifier: str | None = None,
        user: str | None = None,
        extra_body: Mapping[str, Any] = NO_EXTRA_BODY,
    ) -> ModelRequest:
        return ModelRequest(
            items=items,
            instructions=instructions,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            response_format=self.schema,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_output_tokens,
            effort=self.effort,
            summary=self.summary,
            verbosity=self.verbosity,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            stop=self.stop,
            seed=self.seed,
            json_mode=self.json_mode,
            top_logprobs=self.top_logprobs,
            service_tier=self.service_tier,
            prompt_cache_key=prompt_cache_key,
            prompt_cache_options=self.prompt_cache_options,
            prompt_cache_retention=self.prompt_cache_retention,
            cache_mark=self.cache_mark,
            safety_identifier=safety_identifier,
            user=user,
            extra_body=extra_body,
        )


_DEFAULT_OPTIONS = GenerationOptions()
_SAMPLING_FIELDS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_OPTION_FIELDS = frozenset(
    {"text", "reasoning", "top_logprobs", "max_output_tokens", "service_tier", "stop", "seed", *_SAMPLING_FIELDS}
    | {"prompt_cache_options", "prompt_cache_retention"}
)


def read_generation_options(fields: JSONFields, include: frozenset[str] = frozenset()) -> GenerationOptions:
    """Read `text`, `reasoning`, the numbers and the service tier. Raises `BadRequestError`, which names the field.

    `include`: what the response shall include; with `LOGPROBS`, log probabilities are asked for.
    """
    if LOGPROBS not in include and fields.has_none_of(_OPTION_FIELDS):
        return _DEFAULT_OPTIONS
    echo, schema, verbosity = _read_text_options(fields)
    effort, summary = _read_reasoning_options(fields)
    top_logprobs = fields.get_integer("top_logprobs", minimum=0, maximum=MAX_TOP_LOGPROBS) or 0
    return GenerationOptions(
        format=echo,
        schema=schema,
        verbosity=verbosity,
        effort=effort,
        summary=summary,
        json_mode=is_json_mode(echo),
        top_logprobs=top_logprobs if top_logprobs or LOGPROBS in include else None,
        max_output_tokens=fields.get_integer("max_output_tokens", minimum=MIN_OUTPUT_TOKENS),
        **read_sampling_fields(fields),
    )


def read_sampling_fields(fields: JSONFields) -> dict[str, Any]:
    """Read the options that responses and chat completions share."""
    return {
        "service_tier": fields.get_choice("service_tier", SERVICE_TIERS),
        "stop": _read_stop_words(fields),
        "seed": fields.get_integer("seed", minimum=-MAX_SEED, maximum=MAX_SEED),
        "temperature": fields.get_decimal("temperature", minimum=0, maximum=MAX_TEMPERATURE),
        "top_p": fields.get_decimal("top_p", minimum=0, maximum=1),
        "presence_penalty": fields.get_decimal("presence_penalty", minimum=-MAX_PENALTY, maximum=MAX_PENALTY),
        "frequency_penalty": fields.get_decimal("frequency_penalty", minimum=-MAX_PENALTY, maximum=MAX_PENALTY),
        **read_cache_hints(fields),
    }


def read_cache_hints(fields: JSONFields) -> dict[str, Any]:
    """Read the hints for the prompt cache of the model's provider, which knows their values."""
    options = fields.get_mapping("prompt_cache_options")
    if options is not None:
        # The provider has stored no response that it could compare with.
        options = {key: value for key, value in options.items() if key != "comparison_response_id"}
    return {"prompt_cache_options": options, "prompt_cache_retention": fields.get_text("prompt_cache_retention")}


def is_json_mode(text_format: Mapping[str, Any]) -> bool:
    """True for the format of an answer that is a JSON object without a schema."""
    return bool(text_format["type"] == "json_object")


def _read_stop_words(fields: JSONFields) -> tuple[str, ...]:
    value = fields.value.get("stop")
    words = [fields.require_text("stop")] if isinstance(value, str) else fields.get_strings("stop") or []
    if len(words) > MAX_STOP_WORDS:
        message = f"Invalid 'stop': array too long. Expected at most {MAX_STOP_WORDS} elements, but got {len(words)}."
        refuse(message, "stop", "array_above_max_length")
    if "" in words:
        refuse("Invalid 'stop': empty string.", "stop", "empty_string")
    return tuple(words)


def read_format(
    fields: JSONFields, key: str, *, is_nested: bool = False
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Read a format: `text`, `json_object` or `json_schema`. Returns it as the response repeats it, and its schema.

    `is_nested`: the schema is in an object of its own, as in chat completions.
    """
    inner = fields.get_object(key)
    if inner is None:
        return _TEXT_FORMAT, None
    kind = inner.get_choice("type", ("text", "json_object", "json_schema")) or inner.refuse_missing("type")
    if kind == "json_schema":
        schema = inner.get_object("json_schema") or inner.refuse_missing("json_schema") if is_nested else inner
        echo_and_schema = read_json_schema(schema)
        inner.refuse_unread()
        return echo_and_schema
    inner.refuse_unread()
    return {"type": kind}, None


def read_json_schema(fields: JSONFields) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a named schema. Returns it as the response repeats it, and as the model gets it."""
    name = fields.require_text("name", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    schema = RequestSchemas().read(fields, "schema")
    if schema is None:
        fields.refuse_missing("schema")
    strict = fields.get_flag("strict")
    description = fields.get_text("description")
    fields.refuse_unread()
    echo = {
        "type": "json_schema",
        "name": name,
        "description": description,
        "schema": schema,
        "strict": strict or False,
    }
    about = {"description": description} if description else {}
    return echo, {"title": name, **about, **schema}


def read_metadata(fields: JSONFields) -> dict[str, str]:
    metadata = fields.get_mapping("metadata") or {}
    if not metadata:
        return metadata
    where = fields.path_of("metadata")
    if len(metadata) > MAX_METADATA_PAIRS:
        message = (
            f"Invalid '{where}': too many properties. Expected at most {MAX_METADATA_PAIRS}, but got {len(metadata)}."
        )
        refuse(message, where, "object_above_max_properties")
    for key, value in metadata.items():
        if not isinstance(value, str):
            refuse_type(f"{where}.{key[:MAX_METADATA_KEY_CHARS]}", "a string", value)
        if len(key) > MAX_METADATA_KEY_CHARS or len(value) > MAX_METADATA_VALUE_CHARS:
            limits = f"{MAX_METADATA_KEY_CHARS} characters for a key and {MAX_METADATA_VALUE_CHARS} for a value"
            name = f"{where}.{key[:MAX_METADATA_KEY_CHARS]}"
            refuse(f"Invalid '{name}': string too long. Expected at most {limits}.", name, "string_above_max_length")
    return metadata


def read_include(fields: JSONFields) -> frozenset[str]:
    wanted = fields.get_strings("include")
    if not wanted:
        return frozenset()
    for index, value in enumerate(wanted):
        if value not in INCLUDABLE:
            refuse_choice(f"include[{index}]", value, INCLUDABLE)
    return frozenset(wanted)


def _read_text_options(fields: JSONFields) -> tuple[Mapping[str, Any], Mapping[str, Any] | None, str | None]:
    text = fields.get_object("text")
    if text is None:
        return _TEXT_FORMAT, None, None
    verbosity = text.get_choice("verbosity", VERBOSITIES)
    echo, schema = read_format(text, "format")
    text.refuse_unread()
    return echo, schema, verbosity


def _read_reasoning_options(fields: JSONFields) -> tuple[str | None, str | None]:
    inner = fields.get_object("reasoning")
    if inner is None:
        return None, None
    effort = inner.get_choice("effort", EFFORTS)
    older = inner.get_choice("generate_summary", SUMMARIES)
    summary = inner.get_choice("summary", SUMMARIES) or older
    for key, only in (("mode", "standard"), ("context", "auto")):
        if inner.get_text(key) not in (None, only):
            refuse_unsupported(inner.path_of(key), "The models behind this gateway have one way to reason.")
    inner.refuse_unread()
    return effort, summary
