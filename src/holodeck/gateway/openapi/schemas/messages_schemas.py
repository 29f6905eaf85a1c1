"""Schemas of the Messages API: its body as `wire/messages` reads it, the message, its events and its errors."""

from __future__ import annotations

from collections.abc import Iterator

from holodeck.gateway.api.model import APIModel
from holodeck.gateway.api.models.create_message import (
    ONE_TIER,
    CreateMessage,
    EnabledThinking,
    FreeToolChoice,
    MessagesFormat,
    NamedToolChoice,
    NoToolChoice,
    OtherThinking,
)
from holodeck.gateway.api.models.message_blocks import BLOCK_MODELS, CACHE_HINT, MESSAGE_MODELS, WEB_TOOLS
from holodeck.gateway.api.models.message_tools import (
    ComputerTool,
    EditorTool,
    MessagesHostedTool,
    MessagesServer,
    MessagesServerTool,
    MessagesTool,
    NativeTool,
)
from holodeck.gateway.openapi.schemas.reply_schemas import BUDGET_DETAILS
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
    model_schema,
    model_schemas,
    nullable,
    option_schemas,
    record_of,
    ref,
    string,
)
from holodeck.gateway.wire.messages.errors import ERROR_TYPES, THREAD_NOT_FOUND
from holodeck.gateway.wire.messages.response import STOP_REASONS
from holodeck.gateway.wire.messages.server_blocks import WEB_ERROR
from holodeck.lib.limits import (
    MAX_INPUT_TEXT_CHARS,
)

_TEXT = string(max_length=MAX_INPUT_TEXT_CHARS)
_NULL: Schema = {"type": "null"}
_HINT = mapping(CACHE_HINT)


def build_messages_schemas() -> dict[str, Schema]:
    """Build every schema of the Messages API, by name."""
    return {
        "CreateMessage": body_of(_body_fields(), required=(*list_required(CreateMessage), "max_tokens")),
        "CountMessageTokens": body_of(_body_fields(), required=list_required(CreateMessage)),
        **_option_schemas(),
        **_block_schemas(),
        **_reply_schemas(),
        **_event_schemas(),
    }


def _body_fields() -> dict[str, Schema]:
    return {**list_field_schemas(CreateMessage, named=("MessagesFormat",)), **option_schemas("messages")}


def _any_form(*models: type[APIModel], about: str = "") -> Schema:
    return any_of(*(body_of(list_field_schemas(each), required=list_required(each)) for each in models), about=about)


def _option_schemas() -> dict[str, Schema]:
    return {
        "MessagesTool": body_of(list_field_schemas(MessagesTool), required=list_required(MessagesTool)),
        **_special_tool_schemas(),
        "MessagesToolChoice": _any_form(FreeToolChoice, NoToolChoice, NamedToolChoice),
        "MessagesThinking": _any_form(
            EnabledThinking, OtherThinking, about="`disabled`: the message has no thinking blocks."
        ),
        "MessagesFormat": body_of(list_field_schemas(MessagesFormat), required=list_required(MessagesFormat)),
    }


def _special_tool_schemas() -> dict[str, Schema]:
    native: dict[str, Schema] = {}
    for model in (ComputerTool, EditorTool):
        native |= list_field_schemas(model)
    hosted = list_field_schemas(MessagesHostedTool)
    return {
        "MessagesClientTool": body_of(native, NativeTool.__doc__ or "", required=list_required(NativeTool)),
        "MessagesHostedTool": mapping(
            MessagesHostedTool.__doc__ or "",
            properties={key: each if key == "type" else nullable(each) for key, each in hosted.items()},
            required=list_required(MessagesHostedTool),
        ),
        "MessagesServerTool": model_schema(MessagesServerTool),
        "MessagesServer": body_of(list_field_schemas(MessagesServer), required=list_required(MessagesServer)),
    }


def _block_schemas() -> dict[str, Schema]:
    return {
        "MessagesMessage": any_of(*map(model_schema, MESSAGE_MODELS.values())),
        **model_schemas(BLOCK_MODELS),
    }


def _reply_schemas() -> dict[str, Schema]:
    text = record_of({"type": constant("text"), "text": string(), "citations": _NULL})
    thinking = record_of({"type": constant("thinking"), "thinking": string(), "signature": string()})
    call = record_of({"type": constant("tool_use"), "id": string(), "name": string(), "input": mapping()})
    types = sorted({*ERROR_TYPES.values(), "invalid_request_error", "api_error"})
    return {
        "MessageBlock": any_of(text, thinking, call, *_server_call_schemas(text), *_web_call_schemas()),
        "CreatedMessage": record_of(
            {
                "id": string(),
                "type": constant("message"),
                "role": constant("assistant"),
                "model": string(),
                "content": array(ref("MessageBlock")),
                "stop_reason": nullable(choice(STOP_REASONS)),
                "stop_sequence": _NULL,
                "usage": _usage(**{name: constant(tier) for name, tier in ONE_TIER.items()}),
                "incomplete_details": BUDGET_DETAILS,
            },
            optional=("incomplete_details",),
        ),
        "MessageTokens": record_of({"input_tokens": integer()}),
        "MessagesError": record_of(
            {
                "type": constant("error"),
                "error": record_of(
                    {
                        "type": choice(types),
                        "message": string(),
                        "details": record_of({"error_code": constant(THREAD_NOT_FOUND)}),
                    },
                    optional=("details",),
                ),
                "request_id": string("The `x-request-id` of the reply. An event has none."),
            },
            optional=("request_id",),
        ),
    }


def _server_call_schemas(text: Schema) -> tuple[Schema, Schema]:
    call = {"type": constant("mcp_tool_use"), "id": string(), "name": string(), "server_name": string()}
    result = {
        "type": constant("mcp_tool_result"),
        "tool_use_id": string(),
        "is_error": boolean(),
        "content": array(text),
    }
    return record_of({**call, "input": mapping()}), record_of(result)


def _web_call_schemas() -> Iterator[Schema]:
    call = {"type": constant("server_tool_use"), "id": string(), "name": choice(WEB_TOOLS), "input": mapping()}
    yield record_of(call, "A call of a web tool, which an MCP tool has run.")
    found = {
        "type": constant("web_search_result"),
        "url": string("Empty where the result of the MCP tool has none."),
        "title": string(),
        "encrypted_content": string("Send it back as it is: the model reads it again."),
        "page_age": nullable(string()),
    }
    source = record_of({"type": constant("text"), "media_type": constant("text/plain"), "data": string()})
    document = {"type": constant("document"), "source": source, "title": _NULL, "citations": _NULL}
    page = {
        "type": constant("web_fetch_result"),
        "url": string(),
        "content": record_of(document),
        "retrieved_at": _NULL,
    }
    for tool, content in (("web_search", array(record_of(found))), ("web_fetch", record_of(page))):
        error = record_of({"type": constant(f"{tool}_tool_result_error"), "error_code": constant(WEB_ERROR)})
        result = {"type": constant(f"{tool}_tool_result"), "tool_use_id": string(), "content": any_of(content, error)}
        yield record_of(result)


def _usage(**more: Schema) -> Schema:
    counted = {f"{name}_requests": integer() for name in WEB_TOOLS}
    uses = record_of(counted, "Calls of web tools that did not fail. Left out where there are none.")
    return record_of({**_usage_fields(), "server_tool_use": uses, **more}, optional=("server_tool_use",))


def _usage_fields() -> dict[str, Schema]:
    return {
        "input_tokens": integer("Tokens that were neither read from a cache nor written to one."),
        "cache_creation_input_tokens": integer("Tokens that the provider has stored in its cache."),
        "cache_creation": record_of(
            {"ephemeral_5m_input_tokens": integer(), "ephemeral_1h_input_tokens": integer()},
            "The same by how long they are stored.",
        ),
        "cache_read_input_tokens": integer("Tokens that the provider has read from its cache."),
        "output_tokens": integer(),
        "output_tokens_details": record_of({"thinking_tokens": integer()}),
    }


def _event_schemas() -> dict[str, Schema]:
    delta = any_of(
        record_of({"type": constant("text_delta"), "text": string()}),
        record_of({"type": constant("thinking_delta"), "thinking": string()}),
        record_of({"type": constant("signature_delta"), "signature": string()}),
        record_of({"type": constant("input_json_delta"), "partial_json": string()}),
    )
    ending = record_of(
        {"stop_reason": choice(STOP_REASONS), "stop_sequence": _NULL, "incomplete_details": BUDGET_DETAILS},
        optional=("incomplete_details",),
    )
    index = {"index": integer()}
    events: tuple[dict[str, Schema], ...] = (
        {"type": constant("message_start"), "message": ref("CreatedMessage")},
        {"type": constant("content_block_start"), **index, "content_block": ref("MessageBlock")},
        {"type": constant("content_block_delta"), **index, "delta": delta},
        {"type": constant("content_block_stop"), **index},
        {"type": constant("message_delta"), "delta": ending, "usage": _usage()},
        {"type": choice(("message_stop", "ping"))},
    )
    return {
        "MessageEvent": any_of(
            *(record_of(event) for event in events), ref("MessagesError"), about="The data of one event of a stream."
        )
    }
