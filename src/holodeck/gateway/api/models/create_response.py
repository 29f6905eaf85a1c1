"""The body of `POST /v1/responses`, and of messages of a WebSocket, without the generation options.

Those are declared in `models/generation.py`; other members of the body are extra parameters, which the operator allows.
Items of `input`, tools, `tool_choice` and `text.format` are declared in modules of their own (`input_items.py`,
`tools.py`, `mcp_tool.py`, `tool_choice.py`, `text_format.py`): each is read by its model, after the rest of the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, Tag, WithJsonSchema

from holodeck.gateway.api.field_rows import (
    NOT_SENT,
    NOT_SUPPORTED,
    Places,
    done_row,
    everywhere,
    no_effect_row,
    passed_on_row,
    refused_row,
)
from holodeck.gateway.api.model import (
    NAMED,
    APIModel,
    ClosedModel,
    LongText,
    NonEmptyText,
    accept_only,
    declare_field,
)
from holodeck.lib.limits import MAX_INPUT_ITEMS, MAX_INPUT_TEXT_CHARS, MAX_REQUEST_TOOLS
from holodeck.models.generation import OPTION_OF, OPTIONS, Effort, Summary, Verbosity

# Limits of the Responses API.
MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512
MIN_COMPACT_THRESHOLD = 1_000
# There is one kind of entry, so a second one could only contradict it.
MAX_ENTRIES = 1
# Values of `include`, of which there are a few.
_MAX_INCLUDED = 1_000

ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
LOGPROBS: Final = "message.output_text.logprobs"
Includable = Literal[
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    # No effect: the first is not part of an item here, the second always is.
    "web_search_call.results",
    "computer_call_output.output.image_url",
]
METADATA_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE_CHARS},
    "propertyNames": {"maxLength": MAX_METADATA_KEY_CHARS},
    "maxProperties": MAX_METADATA_PAIRS,
}
FUNCTION = {
    "type": "function",
    "name": "look_up",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
IN_MESSAGES: Places = {"chat": "messages", "responses": "input", "anthropic": "messages"}
_ONE_WAY = "The models behind this gateway have one way to reason."

InputValue = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "maxLength": MAX_INPUT_TEXT_CHARS},
                {"type": "array", "items": {NAMED: "InputItem"}, "maxItems": MAX_INPUT_ITEMS},
            ]
        }
    ),
]


_StandardMode = Annotated[
    str, accept_only("standard", _ONE_WAY), WithJsonSchema({"type": "string", "enum": ["standard"]})
]
_AutoContext = Annotated[str, accept_only("auto", _ONE_WAY), WithJsonSchema({"type": "string", "enum": ["auto"]})]


class Conversation(ClosedModel):
    """A conversation, by its id."""

    id: NonEmptyText


class StreamOptions(ClosedModel):
    """Options of a stream."""

    include_obfuscation: bool | None = Field(
        default=None, description="True pads each delta, so that its size tells little."
    )


class CompactionEntry(ClosedModel):
    """The one entry that `context_management` can have."""

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Field(ge=MIN_COMPACT_THRESHOLD)] | None = Field(
        default=None, description="The context is compacted beyond so many tokens."
    )


class TextOptions(ClosedModel):
    """The form of the answer."""

    verbosity: Verbosity | None = None
    format: Annotated[Any, WithJsonSchema({NAMED: "TextFormat"})] = None


class ReasoningOptions(ClosedModel):
    """Options of the reasoning."""

    effort: Effort | None = Field(default=None, description=OPTION_OF["effort"].about)
    summary: Summary | None = Field(default=None, description=OPTION_OF["summary"].about)
    generate_summary: Summary | None = declare_field(
        passed_on_row(
            "reasoning.generate_summary",
            "concise",
            {"chat": NOT_SENT, "responses": "reasoning.summary", "anthropic": NOT_SENT},
            "The older name of `reasoning.summary`.",
        ),
        "The older name of `summary`.",
    )
    mode: _StandardMode | None = declare_field(refused_row("reasoning.mode", "pro", _ONE_WAY, harmless="standard"))
    context: _AutoContext | None = declare_field(
        refused_row("reasoning.context", "all_turns", _ONE_WAY, harmless="auto")
    )


def _form_of(conversation: object) -> str:
    return "~object" if isinstance(conversation, dict) else "~text"


class CreateResponse(APIModel):
    """The body. Its members that are not declared here are generation options and extra parameters."""

    model: str | None = declare_field(
        done_row("model", "demo", "A name of `/v1/models`. It may be left out where the gateway has one model."),
        "A name of `/v1/models`. May be left out if there is only one.",
    )
    input: InputValue = declare_field(
        passed_on_row("input", "Hello there", IN_MESSAGES, "A text, or items of the types below."),
        "A text, or the items of a conversation.",
    )
    instructions: LongText | None = declare_field(
        passed_on_row(
            "instructions",
            "Be brief.",
            {"chat": "messages", "responses": "instructions", "anthropic": "system"},
            "In place of the agent's instructions.",
        ),
        "Replaces the instructions of the agent.",
    )
    previous_response_id: str | None = declare_field(
        done_row("previous_response_id", "resp_example", "The gateway sends the model what came before."),
        "The response that this one continues.",
    )
    # The tags keep the errors of one form from those of the other.
    conversation: (
        Annotated[Annotated[str, Tag("~text")] | Annotated[Conversation, Tag("~object")], Discriminator(_form_of)]
        | None
    ) = declare_field(
        done_row("conversation", "conv_example", "The gateway stores conversations. An id, or an object with an `id`."),
        "The conversation that this response becomes part of.",
    )
    store: bool | None = declare_field(
        done_row("store", False, "False: the response cannot be read again."),
        "False: the response cannot be read again. Left out: true.",
    )
    background: bool | None = declare_field(
        done_row("background", True, "The response runs without a client."),
        "True: the response is stored as queued, and runs without a client.",
    )
    stream: bool | None = declare_field(
        done_row("stream", True, "The reply is a stream of events."), "True: the reply is a stream of events."
    )
    stream_options: StreamOptions | None = declare_field(
        done_row(
            "stream_options.include_obfuscation", True, "True pads each delta. Left out: no padding.", stream=True
        ),
        "Only with `stream`.",
    )
    tools: Annotated[
        Any,
        WithJsonSchema({"type": "array", "items": {NAMED: "Tool"}, "maxItems": MAX_REQUEST_TOOLS}),
    ] = declare_field(
        passed_on_row("tools", [FUNCTION], everywhere("tools"), "Tools of the types below."),
        "Your functions, and MCP servers.",
    )
    tool_choice: Annotated[Any, WithJsonSchema({NAMED: "ToolChoice"})] = declare_field(
        passed_on_row(
            "tool_choice",
            {"type": "function", "name": "look_up"},
            everywhere("tool_choice"),
            "A mode, `allowed_tools`, or one of the tools of the request.",
            tools=[FUNCTION],
        )
    )
    max_tool_calls: Annotated[int, Field(ge=1)] | None = declare_field(
        done_row("max_tool_calls", 3, "The gateway counts the calls that it runs."),
        "Calls that the gateway runs for this response, at most.",
    )
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: Annotated[list[Includable], Field(max_length=_MAX_INCLUDED)] | None = Field(
        default=None,
        description=f"`{ENCRYPTED_REASONING}` adds reasoning that you can send back, `{LOGPROBS}` log probabilities; "
        "others add results of hosted tools.",
    )
    metadata: Annotated[dict[str, Any], WithJsonSchema(METADATA_SCHEMA)] | None = declare_field(
        done_row("metadata", {"ticket": "7"}, "Stored with the response, and repeated in it."),
        "Your own key-value pairs.",
    )
    truncation: Literal["auto", "disabled"] | None = declare_field(
        done_row("truncation", "auto", "The oldest items are left out if the model does not have room for all."),
        "`auto`: the oldest items are left out if the model does not have room for all.",
    )
    context_management: Annotated[list[CompactionEntry], Field(max_length=MAX_ENTRIES)] | None = declare_field(
        done_row("context_management", [{"type": "compaction"}], "Beyond its threshold, a conversation is compacted.")
    )
    elicitation: Literal["ask", "decline"] | None = declare_field(
        done_row(
            "elicitation", "ask", "Questions of MCP servers wait for your answer. Left out, or `decline`: declined."
        ),
        "`ask`: questions of MCP servers wait for your answer at `/v1/responses/{id}/elicitations`. Needs a "
        "response that is stored. Left out: they are declined.",
    )
    client_metadata: dict[str, Any] | None = declare_field(
        no_effect_row("client_metadata", {"program": "editor"}, "Codex describes itself here."),
        "Accepted without effect.",
    )
    prompt: None = declare_field(refused_row("prompt", {"id": "pmpt_1"}, NOT_SUPPORTED))
    moderation: None = declare_field(refused_row("moderation", {"model": "m"}, NOT_SUPPORTED))
    image: None = declare_field(refused_row("image", {"size": "auto"}, NOT_SUPPORTED))
    access_programs: None = declare_field(refused_row("access_programs", ["p"], NOT_SUPPORTED))


REPEATED_MEMBERS = (
    *("model", "previous_response_id", "instructions", "tools", "tool_choice", "truncation", "parallel_tool_calls"),
    *("text", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning"),
    *("max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata"),
    *("safety_identifier", "prompt_cache_key"),
)
"""Members of every response that repeat its request, in their order."""
_BUILT_MEMBERS = {"model", "tools", "tool_choice", "text", "reasoning", "metadata"}
PLAIN_MEMBERS = tuple(each for each in REPEATED_MEMBERS if each in CreateResponse.model_fields.keys() - _BUILT_MEMBERS)
"""Those of them that have the value of the field in the request, and are no options."""
RESPONSE_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(REPEATED_MEMBERS),
    **{option.repeated_as: option.default for option in OPTIONS if option.repeated_as in REPEATED_MEMBERS},
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "background": False,
    "metadata": {},
}
"""What these members are if the request has none of them."""
