"""Schemas of request bodies, field by field as `wire/request` and `wire/chat` read them."""

from __future__ import annotations

from holodeck.gateway.api.models.compact_conversation import CompactConversation
from holodeck.gateway.api.models.create_chat_completion import CreateChatCompletion
from holodeck.gateway.api.models.create_response import (
    METADATA_SCHEMA,
    CreateResponse,
    ReasoningOptions,
)
from holodeck.gateway.endpoints.conversations import MAX_NEW_ITEMS
from holodeck.gateway.openapi.schemas.input_schemas import CACHE_MARK, IMAGE_URL, JSON_SCHEMA, LONG_TEXT
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    any_of,
    array,
    body_of,
    boolean,
    choice,
    constant,
    integer,
    list_field_schemas,
    list_required,
    mapping,
    only,
    option_schema,
    option_schemas,
    ref,
    string,
)
from holodeck.gateway.wire.chat.request import REASONING_FIELD
from holodeck.gateway.wire.request.body import SOCKET_FIELDS, STREAM_ID
from holodeck.gateway.wire.request.content_parts import AUDIO_TYPES
from holodeck.gateway.wire.request.tools import CHOICE_MODES
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_FILE_DATA_CHARS,
    MAX_IDENTIFIER_CHARS,
    MAX_IMAGE_URL_CHARS,
    MAX_TOOL_NAME_CHARS,
)
from holodeck.models.generation import CACHE_HINTS

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
                **{name: option_schema(name, "responses") for name in (*CACHE_HINTS, "service_tier")},
                "prompt_cache_key": string("Accepted without effect.", max_length=MAX_IDENTIFIER_CHARS),
            },
            "`input` is required unless there is a `previous_response_id`.",
            one_of=("input", "previous_response_id"),
        ),
        "CreateConversation": body_of(
            {
                "items": any_of(LONG_TEXT, array(ref("InputItem"), max_items=MAX_NEW_ITEMS)),
                "metadata": METADATA,
            }
        ),
        "UpdateConversation": {
            **body_of({"metadata": METADATA}, "The metadata is replaced; null empties it."),
            "required": ["metadata"],
        },
        "AddItems": body_of(
            {"items": any_of(LONG_TEXT, array(ref("InputItem"), max_items=MAX_NEW_ITEMS))}, required=("items",)
        ),
        **_option_schemas(),
        **_chat_schemas(),
        **_handed_on_schemas(),
    }


def _named_schema_fields() -> dict[str, Schema]:
    return {
        "name": string(max_length=MAX_TOOL_NAME_CHARS, min_length=1),
        "description": string(),
        "schema": JSON_SCHEMA,
        "strict": boolean(),
    }


def _option_schemas() -> dict[str, Schema]:
    return {
        "TextOptions": body_of(
            {"format": ref("TextFormat"), "verbosity": option_schema("verbosity", "responses")},
            "The form of the answer.",
        ),
        "TextFormat": any_of(
            body_of({"type": choice(("text", "json_object"))}, required=("type",)),
            body_of({"type": constant("json_schema"), **_named_schema_fields()}, required=("type", "name", "schema")),
        ),
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
        "ChatResponseFormat": _chat_format(),
        "ChatToolChoice": _chat_tool_choice(),
        **_chat_message_schemas(),
    }


def _chat_format() -> Schema:
    return any_of(
        body_of({"type": choice(("text", "json_object"))}, required=("type",)),
        body_of(
            {
                "type": constant("json_schema"),
                "json_schema": body_of(_named_schema_fields(), required=("name", "schema")),
            },
            required=("type", "json_schema"),
        ),
    )


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
    ignored = {"description": "Ignored: some SDKs send it back."}
    name = {"name": string(max_length=MAX_IDENTIFIER_CHARS)}
    return {
        "ChatMessage": any_of(
            *(ref(f"Chat{who}Message") for who in ("System", "User", "Assistant", "Tool")),
            about="A message. Its `role` says which of these it is.",
        ),
        "ChatSystemMessage": body_of(
            {"role": choice(("system", "developer")), "content": _chat_content("Text"), **name},
            required=("role", "content"),
        ),
        "ChatUserMessage": body_of(
            {"role": constant("user"), "content": _chat_content("Text", "Image", "Audio", "File"), **name},
            required=("role", "content"),
        ),
        "ChatAssistantMessage": body_of(
            {
                "role": constant("assistant"),
                "content": _chat_content("SentText", "SentRefusal"),
                **name,
                "tool_calls": array(_chat_call()),
                "refusal": string(),
                REASONING_FIELD: string(),
                "annotations": array({}),
                "parsed": ignored,
                "provider_specific_fields": ignored,
            },
            "An earlier answer, sent back. It has `content`, `refusal` or `tool_calls`.",
            required=("role",),
            one_of=("content", "refusal", "tool_calls"),
        ),
        "ChatToolMessage": body_of(
            {
                "role": constant("tool"),
                "tool_call_id": string("The call.", max_length=MAX_CALL_ID_CHARS, min_length=1),
                "content": _chat_content("Text", "Image"),
                "name": string("Ignored: the call has it."),
            },
            "The output of one of your functions.",
            required=("role", "tool_call_id", "content"),
        ),
        **_chat_part_schemas(ignored),
    }


def _chat_content(*parts: str) -> Schema:
    return any_of(LONG_TEXT, array(any_of(*(ref(f"Chat{part}Part") for part in parts))))


def _chat_call() -> Schema:
    function = body_of(
        {
            "name": string(max_length=2 * MAX_TOOL_NAME_CHARS, min_length=1),
            "arguments": string("JSON."),
            "parsed_arguments": {"description": "Ignored."},
        },
        required=("name", "arguments"),
    )
    return body_of(
        {
            "id": string(max_length=MAX_CALL_ID_CHARS, min_length=1),
            "type": constant("function"),
            "index": {"description": "Ignored."},
            "function": function,
        },
        required=("id", "function"),
    )


def _chat_part_schemas(ignored: Schema) -> dict[str, Schema]:
    sent_back = dict.fromkeys(("role", "annotations", "tool_calls", REASONING_FIELD), ignored)
    text = {"type": constant("text"), "text": LONG_TEXT, "parsed": ignored, **CACHE_MARK}
    image = body_of(
        {
            "url": string(
                "An http or https URL, or a data URL with an image.",
                max_length=MAX_IMAGE_URL_CHARS,
                pattern=IMAGE_URL,
                example="https://example.com/chart.png",
            ),
            "detail": choice(("auto", "low", "high")),
        },
        required=("url",),
    )
    sound = body_of(
        {"data": string("Base64.", max_length=MAX_FILE_DATA_CHARS), "format": choice(AUDIO_TYPES)},
        required=("data", "format"),
    )
    file = body_of(
        {"file_data": string("Base64, or a data URL.", max_length=MAX_FILE_DATA_CHARS), "filename": string()},
        required=("file_data",),
    )
    refusal = {"type": constant("refusal"), "refusal": LONG_TEXT, "parsed": ignored, **CACHE_MARK}
    return {
        "ChatTextPart": body_of(text, required=("type", "text")),
        "ChatImagePart": body_of(
            {"type": constant("image_url"), "image_url": image, **CACHE_MARK}, required=("type", "image_url")
        ),
        "ChatAudioPart": body_of(
            {"type": constant("input_audio"), "input_audio": sound, **CACHE_MARK}, required=("type", "input_audio")
        ),
        "ChatFilePart": body_of({"type": constant("file"), "file": file, **CACHE_MARK}, required=("type", "file")),
        "ChatSentTextPart": body_of(
            {**text, **sent_back, "refusal": ignored}, "Text of an earlier answer.", required=("type", "text")
        ),
        "ChatSentRefusalPart": body_of({**refusal, **sent_back}, required=("type", "refusal")),
    }
