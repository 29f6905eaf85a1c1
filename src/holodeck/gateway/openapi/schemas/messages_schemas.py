"""Schemas of the Messages API: its body as `wire/messages` reads it, the message, its events and its errors."""

from __future__ import annotations

from collections.abc import Iterator

from holodeck.gateway.api.model import APIModel
from holodeck.gateway.api.models.create_message import (
    CreateMessage,
    EnabledThinking,
    FreeToolChoice,
    MessagesFormat,
    NamedToolChoice,
    NoToolChoice,
    OtherThinking,
)
from holodeck.gateway.api.models.message_blocks import BLOCK_MODELS, CACHE_HINT, MESSAGE_MODELS, WEB_TOOLS
from holodeck.gateway.api.models.tools import FUNCTION_NAME
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
from holodeck.gateway.wire.messages.client_tools import MAX_DISPLAY_PIXELS, NATIVE_TYPE
from holodeck.gateway.wire.messages.errors import ERROR_TYPES, THREAD_NOT_FOUND
from holodeck.gateway.wire.messages.response import STOP_REASONS
from holodeck.gateway.wire.messages.server_blocks import WEB_ERROR
from holodeck.gateway.wire.messages.tools import HOSTED_TYPE, TOOLSET
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_INPUT_TEXT_CHARS,
    MAX_TOOL_NAME_CHARS,
)

_TEXT = string(max_length=MAX_INPUT_TEXT_CHARS)
_NULL: Schema = {"type": "null"}
_HINT = mapping(CACHE_HINT)
_CALL_ID = string(min_length=1, max_length=MAX_CALL_ID_CHARS)
_NO_CITATIONS = body_of({"enabled": {"const": False}})


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
    tool = {
        "type": constant("custom"),
        "name": string(pattern=f"^{FUNCTION_NAME.pattern}$", max_length=MAX_TOOL_NAME_CHARS),
        "description": string(),
        "input_schema": mapping("A JSON Schema."),
        "strict": boolean(),
        "input_examples": array(mapping()),
        "eager_input_streaming": boolean("Accepted without effect: an input is streamed as the model writes it."),
        "defer_loading": {"const": False},
        "allowed_callers": array(choice(("direct",))),
        "cache_control": _HINT,
    }
    return {
        "MessagesTool": body_of(tool, required=("name", "input_schema")),
        **_special_tool_schemas(),
        "MessagesToolChoice": _any_form(FreeToolChoice, NoToolChoice, NamedToolChoice),
        "MessagesThinking": _any_form(
            EnabledThinking, OtherThinking, about="`disabled`: the message has no thinking blocks."
        ),
        "MessagesFormat": body_of(list_field_schemas(MessagesFormat), required=list_required(MessagesFormat)),
    }


def _special_tool_schemas() -> dict[str, Schema]:
    pixels = integer(minimum=1, maximum=MAX_DISPLAY_PIXELS)
    offered = {"defer_loading": {"const": False}, "allowed_callers": array(choice(("direct",))), "cache_control": _HINT}
    config = body_of({"enabled": boolean(), "defer_loading": {"const": False}})
    return {
        "MessagesClientTool": body_of(
            {
                "type": string(pattern=f"^{NATIVE_TYPE.pattern}$", example="bash_20250124"),
                "name": string(pattern=f"^{FUNCTION_NAME.pattern}$", max_length=MAX_TOOL_NAME_CHARS),
                "display_width_px": pixels,
                "display_height_px": pixels,
                "display_number": integer(minimum=0),
                "enable_zoom": boolean(),
                "max_characters": integer(minimum=1),
                "strict": boolean(),
                "input_examples": array({}),
                **offered,
            },
            "A tool that you run and Anthropic's API defines. Its models get it as it is, others as a function.",
            required=("type", "name"),
        ),
        "MessagesHostedTool": mapping(
            "A tool that Anthropic's servers run. Here an MCP tool does, if the operator has mapped one to it.",
            properties={
                "type": string(pattern=f"^{HOSTED_TYPE.pattern}$", example="web_search_20250305"),
                **{key: nullable(value) for key, value in offered.items()},
            },
            required=["type"],
        ),
        "MessagesServerTool": body_of(
            {
                "type": constant(TOOLSET),
                "mcp_server_name": string("A name of `mcp_servers`.", min_length=1, max_length=MAX_TOOL_NAME_CHARS),
                "default_config": config,
                "configs": mapping("By the names of tools.", additionalProperties=config),
                "cache_control": mapping("Accepted without effect."),
            },
            "Which tools of a server the model gets. Left out: all.",
            required=("type", "mcp_server_name"),
        ),
        "MessagesServer": body_of(
            {
                "type": constant("url"),
                "name": string(min_length=1, max_length=MAX_TOOL_NAME_CHARS),
                "url": _TEXT,
                "authorization_token": string("Sent to the server. Never stored."),
                "tool_configuration": body_of({"enabled": boolean(), "allowed_tools": array(string())}),
            },
            required=("type", "name", "url"),
        ),
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
                "usage": _usage(service_tier=constant("standard")),
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
