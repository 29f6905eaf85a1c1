"""Schemas of request bodies, field by field as `wire/request` and `wire/chat` read them."""

from __future__ import annotations

from holodeck.gateway.api.models.chat_messages import MESSAGE_MODELS, PART_MODELS
from holodeck.gateway.api.models.compact_conversation import WITHOUT_EFFECT, CompactConversation
from holodeck.gateway.api.models.create_chat_completion import CreateChatCompletion
from holodeck.gateway.api.models.create_response import (
    METADATA_SCHEMA,
    CreateResponse,
    ReasoningOptions,
)
from holodeck.gateway.api.models.other_bodies import AddItems, CreateConversation, UpdateConversation
from holodeck.gateway.api.models.text_format import ChatSchemaFormat, PlainFormat, SchemaFormat
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    any_of,
    array,
    body_of,
    boolean,
    choice,
    constant,
    inner_option_schemas,
    integer,
    list_field_schemas,
    list_required,
    mapping,
    model_schema,
    model_schemas,
    only,
    option_schema,
    option_schemas,
    ref,
    string,
)
from holodeck.gateway.wire.request.body import SOCKET_FIELDS, STREAM_ID
from holodeck.gateway.wire.request.tools import CHOICE_MODES
from holodeck.lib.limits import MAX_IDENTIFIER_CHARS

_NAMED = ("TextOptions", "ReasoningOptions")
METADATA: Schema = {**METADATA_SCHEMA, "description": "Your own key-value pairs."}


def build_body_schemas() -> dict[str, Schema]:
    """Build the schema of every request body, by name."""
    created = {**list_field_schemas(CreateResponse, named=_NAMED), **option_schemas("responses")}
    return {
        "CreateResponse": body_of(
            created,
            "`input` is required unless the request continues a response or a conversation.",
            one_of=("input", "previous_response_id", "conversation"),
        ),
        "SocketMessage": body_of(
            {
                "type": constant("response.create"),
                "stream_id": string(
                    "Repeated in every event that answers this message.", pattern=f"^{STREAM_ID.pattern}$"
                ),
                "generate": boolean("False prepares the next message: no model is asked."),
                "stream": only(True, "A WebSocket always streams."),
                "background": only(False),
                **{name: schema for name, schema in created.items() if name not in SOCKET_FIELDS},
            },
            "A message of a WebSocket: a response to create.",
            required=("type",),
            one_of=("input", "previous_response_id", "conversation"),
        ),
        "CompactConversation": body_of(
            {
                **list_field_schemas(CompactConversation),
                **{name: option_schema(name, "responses") for name in WITHOUT_EFFECT},
                "prompt_cache_key": string("Accepted without effect.", max_length=MAX_IDENTIFIER_CHARS),
            },
            "`input` is required unless there is a `previous_response_id`.",
            one_of=("input", "previous_response_id"),
        ),
        "UpdateConversation": {
            **body_of(list_field_schemas(UpdateConversation), UpdateConversation.__doc__ or ""),
            "required": ["metadata"],
        },
        **model_schemas((CreateConversation, AddItems)),
        **_option_schemas(),
        **_chat_schemas(),
        **_handed_on_schemas(),
    }


def _option_schemas() -> dict[str, Schema]:
    return {
        "TextOptions": body_of(
            {"format": ref("TextFormat"), **inner_option_schemas("responses", "text")},
            "The form of the answer.",
        ),
        "TextFormat": any_of(model_schema(PlainFormat), model_schema(SchemaFormat)),
        "ReasoningOptions": body_of(list_field_schemas(ReasoningOptions)),
    }


def _handed_on_schemas() -> dict[str, Schema]:
    fields = {"model": string("A name of `/v1/models`. May be left out if there is only one.")}
    text = any_of(string(), array(any_of(string(), integer(), array(integer()))), about="Texts, or their tokens.")
    return {
        name: mapping("Other fields are handed on.", properties={**fields, key: text}, required=[key])
        for name, key in (("CreateEmbeddings", "input"), ("CreateCompletion", "prompt"))
    } | {"CompletionChunk": mapping("A chunk as the provider sent it, or an error.", properties={"model": string()})}


def _chat_schemas() -> dict[str, Schema]:
    return {
        "CreateChatCompletion": body_of(
            {**list_field_schemas(CreateChatCompletion), **option_schemas("chat")},
            required=list_required(CreateChatCompletion),
        ),
        "ChatResponseFormat": any_of(model_schema(PlainFormat), model_schema(ChatSchemaFormat)),
        "ChatToolChoice": _chat_tool_choice(),
        **_chat_message_schemas(),
    }


def _chat_tool_choice() -> Schema:
    chosen = body_of(
        {
            "type": constant("function"),
            "function": body_of({"name": string(min_length=1)}, required=("name",)),
        },
        required=("type", "function"),
    )
    allowed = body_of({"mode": choice(CHOICE_MODES), "tools": array(chosen, min_items=1)}, required=("tools",))
    return any_of(
        choice(CHOICE_MODES),
        chosen,
        ref("MCPServerReference"),
        body_of({"type": constant("allowed_tools"), "allowed_tools": allowed}, required=("type", "allowed_tools")),
    )


def _chat_message_schemas() -> dict[str, Schema]:
    return {
        "ChatMessage": any_of(
            *(ref(model.__name__) for model in MESSAGE_MODELS),
            about="A message. Its `role` says which of these it is.",
        ),
        **model_schemas((*MESSAGE_MODELS, *PART_MODELS)),
    }
