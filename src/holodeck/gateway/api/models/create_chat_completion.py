"""The body of `POST /v1/chat/completions`, without the generation options.

Those are declared in `models/generation.py`; other members of the body are extra parameters, which the operator allows.
The entries of `messages` and `tools` are declared in `chat_messages.py`, `response_format` in `text_format.py`: each is
read by its model, after the rest of the body. The values of `tool_choice` are read by `wire/chat`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from holodeck.gateway.api.field_rows import (
    NOT_SUPPORTED,
    REFUSED,
    done_row,
    everywhere,
    no_effect_row,
    passed_on_row,
    refused_row,
)
from holodeck.gateway.api.model import NAMED, APIModel, ClosedModel, accept_only, declare_field
from holodeck.gateway.api.models.create_response import IN_MESSAGES, METADATA_SCHEMA
from holodeck.lib.limits import MAX_INPUT_ITEMS, MAX_REQUEST_TOOLS

CHAT_FUNCTION = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TEXT_ONLY = "This gateway answers in text."
_NOT_PADDED = "Chunks of this API are not padded here."
_ONE_ANSWER = "This gateway gives one answer to a request."
_NOT_STORED = "A chat completion is not stored, so nothing repeats it. The model does not get it."
_TOOL_SCHEMA = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"type": {"type": "string", "const": "function"}, "function": {NAMED: "FunctionDefinition"}},
            "required": ["type", "function"],
            "additionalProperties": False,
        },
        {NAMED: "MCPTool"},
    ]
}


def _refuse_bias(value: object) -> object:
    """Accept an empty value, which has no effect."""
    if value:
        raise PydanticCustomError("unsupported", NOT_SUPPORTED)
    return value


_Unpadded = Annotated[bool, accept_only(False, _NOT_PADDED), WithJsonSchema({"const": False})]
_One = Annotated[int, Field(ge=1), accept_only(1, _ONE_ANSWER), WithJsonSchema({"const": 1})]
_Unstored = Annotated[bool, accept_only(False, NOT_SUPPORTED), WithJsonSchema({"const": False})]
_Unbiased = Annotated[Any, AfterValidator(_refuse_bias), WithJsonSchema({"type": "object", "maxProperties": 0})]
_Text = Annotated[
    Any,
    accept_only(["text"], TEXT_ONLY),
    WithJsonSchema({"type": "array", "items": {"type": "string", "enum": ["text"]}}),
]


class ChatStreamOptions(ClosedModel):
    """Options of a stream of chunks."""

    include_usage: bool | None = declare_field(
        done_row("stream_options.include_usage", True, "A last chunk has the tokens.", stream=True),
        "True: a last chunk has the tokens.",
    )
    include_obfuscation: _Unpadded | None = declare_field(
        refused_row("stream_options.include_obfuscation", True, _NOT_PADDED, harmless=False, stream=True)
    )


class CreateChatCompletion(APIModel):
    """The body. Its members that are not declared here are generation options and extra parameters."""

    model: str | None = declare_field(
        done_row("model", "demo", "A name of `/v1/models`."),
        "A name of `/v1/models`. May be left out if there is only one.",
    )
    messages: Annotated[
        list[Any],
        Field(max_length=MAX_INPUT_ITEMS),
        WithJsonSchema(
            {"type": "array", "items": {NAMED: "ChatMessage"}, "minItems": 1, "maxItems": MAX_INPUT_ITEMS},
        ),
    ] = declare_field(
        passed_on_row("messages", [{"role": "user", "content": "Hello there"}], IN_MESSAGES),
        "The whole conversation.",
        is_required=True,
    )
    stream: bool | None = declare_field(
        done_row("stream", True, "The reply is a stream of chunks."), "True: the reply is a stream of chunks."
    )
    stream_options: ChatStreamOptions | None = Field(default=None, description="Only with `stream`.")
    tools: (
        Annotated[
            list[Any],
            Field(max_length=MAX_REQUEST_TOOLS),
            WithJsonSchema({"type": "array", "items": _TOOL_SCHEMA, "maxItems": MAX_REQUEST_TOOLS}),
        ]
        | None
    ) = declare_field(
        passed_on_row("tools", [CHAT_FUNCTION], everywhere("tools")),
        "Your functions, and MCP servers.",
    )
    tool_choice: Annotated[Any, WithJsonSchema({NAMED: "ChatToolChoice"})] = declare_field(
        passed_on_row(
            "tool_choice",
            {"type": "function", "function": {"name": "look_up"}},
            everywhere("tool_choice"),
            "A mode, a function, an MCP server, or `allowed_tools`.",
            tools=[CHAT_FUNCTION],
        )
    )
    response_format: Annotated[Any, WithJsonSchema({NAMED: "ChatResponseFormat"})] = None
    max_tokens: Annotated[int, Field(ge=1)] | None = declare_field(
        passed_on_row(
            "max_tokens",
            77,
            {"chat": "max_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"},
            "The older name of `max_completion_tokens`.",
        ),
        "The older name of `max_completion_tokens`.",
    )
    metadata: Annotated[dict[str, Any], WithJsonSchema(METADATA_SCHEMA)] | None = declare_field(
        no_effect_row("metadata", {"ticket": "7"}, _NOT_STORED), "Your own key-value pairs."
    )
    n: _One | None = declare_field(refused_row("n", 2, _ONE_ANSWER, harmless=1))
    store: _Unstored | None = declare_field(refused_row("store", True, NOT_SUPPORTED, harmless=False))
    logprobs: bool | None = declare_field(
        passed_on_row("logprobs", True, {"chat": "logprobs", "responses": "include", "anthropic": REFUSED}),
        "True: the answer has log probabilities.",
    )
    logit_bias: _Unbiased | None = declare_field(
        refused_row("logit_bias", {"50256": -100}, NOT_SUPPORTED, harmless={}), "Only empty."
    )
    modalities: _Text | None = declare_field(
        refused_row("modalities", ["text", "audio"], TEXT_ONLY, harmless=["text"]), "Only text."
    )
    audio: None = declare_field(refused_row("audio", {"voice": "alloy", "format": "wav"}, NOT_SUPPORTED))
    functions: None = declare_field(refused_row("functions", [{"name": "look_up"}], "Use 'tools'."))
    function_call: None = declare_field(refused_row("function_call", "auto", "Use 'tool_choice'."))
    moderation: None = declare_field(refused_row("moderation", {"model": "m"}, NOT_SUPPORTED))
    prediction: None = declare_field(refused_row("prediction", {"type": "content", "content": "x"}, NOT_SUPPORTED))
    web_search_options: None = declare_field(refused_row("web_search_options", {}, NOT_SUPPORTED))
