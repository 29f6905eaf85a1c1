"""How the answer shall be: its format, its length, and how the model is to choose its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from holodeck.gateway.wire.fields import Fields, not_one_of, refuse, unsupported, wrong_type
from holodeck.gateway.wire.request_schemas import RequestSchemas
from holodeck.lib.limits import (
    MAX_METADATA_KEY_CHARS,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE_CHARS,
    MAX_PENALTY,
    MAX_TEMPERATURE,
    MAX_TOOL_NAME_CHARS,
    MAX_TOP_LOGPROBS,
    MIN_OUTPUT_TOKENS,
)
from holodeck.lib.record import record
from holodeck.models.exchange import ModelRequest, ToolChoice
from holodeck.models.items import Item

ENCRYPTED_REASONING = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
_INCLUDABLE = (
    ENCRYPTED_REASONING,
    _LOGPROBS,
    "message.input_image.image_url",
    # These are about tools that a request cannot ask for here, so there is never anything to include.
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
_NO_LOGPROBS = "The models behind this gateway report no log probabilities."
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SUMMARIES = ("auto", "concise", "detailed")
_TEXT_FORMAT: Mapping[str, Any] = {"type": "text"}


@record
class Answer:
    """None is the model's own choice."""

    format: Mapping[str, Any] = field(default_factory=lambda: _TEXT_FORMAT)
    """As it is shown again."""
    schema: Mapping[str, Any] | None = None
    """What the answer must fit."""
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

    def model_request(
        self, *, items: tuple[Item, ...], instructions: str | None, tool_choice: ToolChoice, parallel_tool_calls: bool
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
        )


_AS_THE_MODEL_LIKES = Answer()
_NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_ANSWER_FIELDS = frozenset({"text", "reasoning", "top_logprobs", "max_output_tokens", *_NUMBERS})


def read_answer(fields: Fields) -> Answer:
    """`text`, `reasoning`, and the numbers."""
    if fields.lacks(_ANSWER_FIELDS):
        return _AS_THE_MODEL_LIKES
    shown, schema, verbosity = _text(fields)
    effort, summary = _reasoning(fields)
    if fields.integer("top_logprobs", least=0, most=MAX_TOP_LOGPROBS):
        unsupported("top_logprobs", _NO_LOGPROBS)
    return Answer(
        format=shown,
        schema=schema,
        verbosity=verbosity,
        effort=effort,
        summary=summary,
        max_output_tokens=fields.integer("max_output_tokens", least=MIN_OUTPUT_TOKENS),
        **read_numbers(fields),
    )


def read_numbers(fields: Fields) -> dict[str, Any]:
    """The numbers that both dialects have."""
    return {
        "temperature": fields.decimal("temperature", least=0, most=MAX_TEMPERATURE),
        "top_p": fields.decimal("top_p", least=0, most=1),
        "presence_penalty": fields.decimal("presence_penalty", least=-MAX_PENALTY, most=MAX_PENALTY),
        "frequency_penalty": fields.decimal("frequency_penalty", least=-MAX_PENALTY, most=MAX_PENALTY),
    }


def read_metadata(fields: Fields) -> dict[str, str]:
    given = fields.mapping("metadata") or {}
    if not given:
        return given
    where = fields.at("metadata")
    if len(given) > MAX_METADATA_PAIRS:
        message = (
            f"Invalid '{where}': too many properties. Expected at most {MAX_METADATA_PAIRS}, but got {len(given)}."
        )
        refuse(message, where, "object_above_max_properties")
    for key, value in given.items():
        if not isinstance(value, str):
            wrong_type(f"{where}.{key[:MAX_METADATA_KEY_CHARS]}", "a string", value)
        if len(key) > MAX_METADATA_KEY_CHARS or len(value) > MAX_METADATA_VALUE_CHARS:
            limits = f"{MAX_METADATA_KEY_CHARS} characters for a key and {MAX_METADATA_VALUE_CHARS} for a value"
            name = f"{where}.{key[:MAX_METADATA_KEY_CHARS]}"
            refuse(f"Invalid '{name}': string too long. Expected at most {limits}.", name, "string_above_max_length")
    return given


def read_include(fields: Fields) -> frozenset[str]:
    wanted = fields.strings("include")
    if not wanted:
        return frozenset()
    for index, value in enumerate(wanted):
        if value not in _INCLUDABLE:
            not_one_of(f"include[{index}]", value, _INCLUDABLE)
        if value == _LOGPROBS:
            unsupported(f"include[{index}]", _NO_LOGPROBS)
    return frozenset(wanted)


def json_schema(fields: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """A named schema: as it is shown again, and as the model gets it."""
    name = fields.required("name", longest=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    schema = RequestSchemas().read(fields, "schema")
    if schema is None:
        fields.missing("schema")
    strict = fields.flag("strict")
    description = fields.text("description")
    fields.done()
    shown = {
        "type": "json_schema",
        "name": name,
        "description": description,
        "schema": schema,
        "strict": strict or False,
    }
    about = {"description": description} if description else {}
    return shown, {"title": name, **about, **schema}


def _text(fields: Fields) -> tuple[Mapping[str, Any], Mapping[str, Any] | None, str | None]:
    text = fields.object("text")
    if text is None:
        return _TEXT_FORMAT, None, None
    verbosity = text.choice("verbosity", ("low", "medium", "high"))
    shown, schema = read_format(text, "format")
    text.done()
    return shown, schema, verbosity


def read_format(
    fields: Fields, key: str, *, is_nested: bool = False
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """`text`, `json_object` or `json_schema`; the older API has the schema in an object of its own."""
    inner = fields.object(key)
    if inner is None:
        return _TEXT_FORMAT, None
    kind = inner.choice("type", ("text", "json_object", "json_schema")) or inner.missing("type")
    if kind == "json_schema":
        schema = inner.object("json_schema") or inner.missing("json_schema") if is_nested else inner
        shown = json_schema(schema)
        inner.done()
        return shown
    inner.done()
    return {"type": kind}, {"type": "object"} if kind == "json_object" else None


def _reasoning(fields: Fields) -> tuple[str | None, str | None]:
    inner = fields.object("reasoning")
    if inner is None:
        return None, None
    effort = inner.choice("effort", _EFFORTS)
    older = inner.choice("generate_summary", _SUMMARIES)
    summary = inner.choice("summary", _SUMMARIES) or older
    for key, only in (("mode", "standard"), ("context", "auto")):
        if inner.text(key) not in (None, only):
            unsupported(inner.at(key), "The models behind this gateway have one way to reason.")
    inner.done()
    return effort, summary
