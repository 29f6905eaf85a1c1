"""The body of `POST /v1/messages`, and of the request that counts its tokens, without most generation options.

Those are declared in `models/generation.py`; other members of the body are extra parameters, which the operator allows.
The entries of `messages` are declared in `message_blocks.py`, and read one by one. Those of `tools`, `mcp_servers` and
`context_management.edits` are read by `wire/messages`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
    TextOr,
    accept_only,
    declare_field,
)
from holodeck.gateway.api.models.create_response import IN_MESSAGES
from holodeck.gateway.api.models.message_blocks import CACHE_HINT, Texts
from holodeck.gateway.api.models.text_format import CHECKED, CITY_SCHEMA, IN_FORMAT
from holodeck.lib.limits import MAX_INPUT_ITEMS, MAX_REQUEST_TOOLS
from holodeck.models.generation import OPTION_OF, MessagesEffort

# A limit of the Messages API.
_MIN_THINKING_TOKENS = 1_024
CLEAR_THINKING = "clear_thinking_20251015"
CACHE_NOTE = "A mark for the prompt cache, as it was sent."
_ONE_SPEED = "The operator's models have one speed."
MESSAGES_FUNCTION = {"name": "look_up", "input_schema": CITY_SCHEMA}
_FORMAT = {"type": "json_schema", "schema": CITY_SCHEMA}
_IN_SYSTEM: Places = {"chat": "messages", "responses": "input", "anthropic": "system"}
_EDITS_SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "description": "Accepted without effect: nothing is removed from a conversation.",
        "properties": {
            "type": {"type": "string", "const": CLEAR_THINKING},
            "keep": {
                "anyOf": [
                    {"type": "string", "const": "all"},
                    {
                        "type": "object",
                        "properties": {"type": {"type": "string", "const": "all"}},
                        "required": ["type"],
                        "additionalProperties": False,
                    },
                ]
            },
        },
        "required": ["type", "keep"],
        "additionalProperties": False,
    },
}

_Speed = Annotated[
    Literal["standard", "fast"],
    accept_only("standard", _ONE_SPEED),
    WithJsonSchema({"type": "string", "enum": ["standard"]}),
]
_Display = Literal["summarized", "omitted"]


def _by_type(*kinds: str) -> Discriminator:
    """Tell forms apart by their types. Every other value is of the form `~other`, whose error lists all types."""

    def find_tag(value: object) -> str:
        kind = value.get("type") if isinstance(value, dict) else None
        return f"~{kind}" if kind in kinds else "~other"

    return Discriminator(find_tag)


class EnabledThinking(ClosedModel):
    """Thinking within a budget."""

    type: Literal["enabled"]
    display: _Display | None = Field(default=None, description="`omitted`: thinking blocks have no text.")
    budget_tokens: Annotated[int, Field(ge=_MIN_THINKING_TOKENS)] = Field(description="Decides the effort.")


class OtherThinking(ClosedModel):
    """Thinking without a budget."""

    type: Annotated[
        Literal["enabled", "disabled", "adaptive", "between_tools"],
        WithJsonSchema({"type": "string", "enum": ["adaptive", "between_tools", "disabled"]}),
    ]
    display: _Display | None = Field(default=None, description="`omitted`: thinking blocks have no text.")


class NewThread(ClosedModel):
    """A conversation that the gateway holds."""

    type: Annotated[Literal["create", "continue"], WithJsonSchema({"type": "string", "const": "create"})]


class ContinuedThread(ClosedModel):
    """A conversation that the gateway has held."""

    type: Literal["continue"]
    previous_message_id: NonEmptyText


class FreeToolChoice(ClosedModel):
    """A choice of the model."""

    type: Annotated[Literal["auto", "any", "tool", "none"], WithJsonSchema({"type": "string", "enum": ["auto", "any"]})]
    disable_parallel_tool_use: bool | None = Field(
        default=None, description="True: the model calls one tool at a time."
    )


class NoToolChoice(ClosedModel):
    """The choice of no tool."""

    type: Literal["none"]


class NamedToolChoice(ClosedModel):
    """The choice of one tool."""

    type: Literal["tool"]
    disable_parallel_tool_use: bool | None = Field(
        default=None, description="True: the model calls one tool at a time."
    )
    name: NonEmptyText


class MessagesFormat(ClosedModel):
    """A schema that the answer must match."""

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema", description="A JSON Schema.")


class OutputConfig(ClosedModel):
    """Effort and form of the answer."""

    effort: MessagesEffort | None = Field(default=None, description=OPTION_OF["effort"].about)
    format: MessagesFormat | None = declare_field(passed_on_row("output_config.format", _FORMAT, IN_FORMAT, CHECKED))


class MessageMetadata(ClosedModel):
    """About the request."""

    user_id: LongText | None = None


class ContextEdits(ClosedModel):
    """Edits of the context, of which one is accepted, without effect."""

    edits: Annotated[list[Any], Field(max_length=MAX_INPUT_ITEMS), WithJsonSchema(_EDITS_SCHEMA)] | None = None


class CreateMessage(APIModel):
    """The body. Its members that are not declared here are generation options and extra parameters."""

    model: str | None = declare_field(
        done_row("model", "demo", "A name of `/v1/models`."),
        "A name of `/v1/models`. May be left out if there is only one.",
    )
    messages: Annotated[
        list[Any],
        Field(max_length=MAX_INPUT_ITEMS),
        WithJsonSchema(
            {"type": "array", "items": {NAMED: "MessagesMessage"}, "minItems": 1, "maxItems": MAX_INPUT_ITEMS}
        ),
    ] = declare_field(
        passed_on_row("messages", [{"role": "user", "content": "Hello there"}], IN_MESSAGES),
        "The whole conversation.",
        is_required=True,
    )
    system: Annotated[LongText | Texts, TextOr("a string or an array of text blocks")] | None = declare_field(
        passed_on_row("system", "Be brief.", _IN_SYSTEM, "Beside the instructions of an agent."),
        "Instructions, beside those of the agent.",
    )
    stream: bool | None = declare_field(
        done_row("stream", True, "The reply is a stream of events."), "True: the reply is a stream of events."
    )
    tools: (
        Annotated[
            list[Any],
            Field(max_length=MAX_REQUEST_TOOLS),
            WithJsonSchema(
                {
                    "type": "array",
                    "items": {"anyOf": [{NAMED: f"Messages{name}Tool"} for name in ("", "Client", "Hosted", "Server")]},
                    "maxItems": MAX_REQUEST_TOOLS,
                }
            ),
        ]
        | None
    ) = declare_field(
        passed_on_row("tools", [MESSAGES_FUNCTION], everywhere("tools")),
        "Your own tools, those that Anthropic's API defines, and tools of `mcp_servers`.",
    )
    mcp_servers: (
        Annotated[
            list[Any],
            Field(max_length=MAX_REQUEST_TOOLS),
            WithJsonSchema({"type": "array", "items": {NAMED: "MessagesServer"}, "maxItems": MAX_REQUEST_TOOLS}),
        ]
        | None
    ) = declare_field(
        refused_row(
            "mcp_servers",
            [{"type": "url", "name": "mine", "url": "https://example.com/mcp"}],
            "The operator of this gateway does not allow servers that a request names by their address.",
        ),
        "MCP servers by their URL. The operator must allow it.",
    )
    tool_choice: (
        Annotated[
            Annotated[FreeToolChoice, Tag("~other")]
            | Annotated[NoToolChoice, Tag("~none")]
            | Annotated[NamedToolChoice, Tag("~tool")],
            _by_type("none", "tool"),
            WithJsonSchema({NAMED: "MessagesToolChoice"}),
        ]
        | None
    ) = declare_field(
        passed_on_row(
            "tool_choice",
            {"type": "tool", "name": "look_up"},
            everywhere("tool_choice"),
            tools=[MESSAGES_FUNCTION],
        )
    )
    thinking: (
        Annotated[
            Annotated[EnabledThinking, Tag("~enabled")] | Annotated[OtherThinking, Tag("~other")],
            _by_type("enabled"),
            WithJsonSchema({NAMED: "MessagesThinking"}),
        ]
        | None
    ) = declare_field(
        passed_on_row(
            "thinking",
            {"type": "enabled", "budget_tokens": _MIN_THINKING_TOKENS},
            {"chat": "reasoning_effort", "responses": "reasoning.effort", "anthropic": "output_config.effort"},
            "The budget decides the effort. With `disabled`, the reply has no thinking blocks.",
            max_tokens=2_000,
        )
    )
    output_config: OutputConfig | None = None
    output_format: MessagesFormat | None = declare_field(
        passed_on_row("output_format", _FORMAT, IN_FORMAT, "The older name of it."),
        "The older name of `output_config.format`.",
    )
    metadata: MessageMetadata | None = declare_field(
        passed_on_row(
            "metadata", {"user_id": "u7"}, {"chat": "user", "responses": "user", "anthropic": "metadata.user_id"}
        )
    )
    service_tier: Literal["auto", "standard_only"] | None = declare_field(
        no_effect_row("service_tier", "auto", "The usage names the tier."),
        "Accepted without effect: there is one tier.",
    )
    speed: _Speed | None = declare_field(refused_row("speed", "fast", _ONE_SPEED, harmless="standard"))
    cache_control: dict[str, Any] | None = declare_field(
        passed_on_row(
            "cache_control",
            {"type": "ephemeral"},
            {"chat": NOT_SENT, "responses": NOT_SENT, "anthropic": "cache_control"},
            CACHE_NOTE,
        ),
        CACHE_HINT,
    )
    context_management: ContextEdits | None = declare_field(
        no_effect_row(
            "context_management",
            {"edits": [{"type": CLEAR_THINKING, "keep": "all"}]},
            "Keeping all thinking is what happens anyway. Every other edit is refused.",
        )
    )
    thread: (
        Annotated[
            Annotated[NewThread, Tag("~other")] | Annotated[ContinuedThread, Tag("~continue")], _by_type("continue")
        ]
        | None
    ) = declare_field(
        done_row("thread", {"type": "create"}, "The gateway holds the conversation, in memory, for an hour."),
        "`create`: the gateway holds the conversation, for an hour. `continue`: `messages` has what is new.",
    )
    inference_geo: None = declare_field(
        refused_row("inference_geo", "eu", "The operator's models decide where they run.")
    )
    compaction: None = declare_field(refused_row("compaction", "x", NOT_SUPPORTED))
    container: None = declare_field(refused_row("container", "x", NOT_SUPPORTED))
    diagnostics: None = declare_field(refused_row("diagnostics", "x", NOT_SUPPORTED))
    fallbacks: None = declare_field(refused_row("fallbacks", "x", NOT_SUPPORTED))
    fallback_credit_token: None = declare_field(refused_row("fallback_credit_token", "x", NOT_SUPPORTED))
    user_profile_id: None = declare_field(refused_row("user_profile_id", "x", NOT_SUPPORTED))
    workspace_id: None = declare_field(refused_row("workspace_id", "x", NOT_SUPPORTED))


ONE_TIER = {"service_tier": "standard"}
"""The tier that the usage of every message has."""
