"""Schemas of the Messages API: its body as `wire/messages` reads it, the message, its events and its errors."""

from __future__ import annotations

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
    mapping,
    nullable,
    number,
    record_of,
    ref,
    string,
)
from holodeck.gateway.wire.messages.content_blocks import IMAGE_TYPES, PDF_TYPE
from holodeck.gateway.wire.messages.errors import ERROR_TYPES
from holodeck.gateway.wire.messages.request import (
    CLEAR_THINKING,
    DISPLAYS,
    EFFORTS,
    MAX_STOP_SEQUENCES,
    MAX_TEMPERATURE,
    MIN_THINKING_TOKENS,
    SERVICE_TIERS,
)
from holodeck.gateway.wire.messages.response import STOP_REASONS
from holodeck.gateway.wire.request.tools import FUNCTION_NAME
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_FILE_DATA_CHARS,
    MAX_IMAGE_URL_CHARS,
    MAX_INPUT_ITEMS,
    MAX_INPUT_TEXT_CHARS,
    MAX_REQUEST_TOOLS,
    MAX_TOOL_NAME_CHARS,
)

_TEXT = string(max_length=MAX_INPUT_TEXT_CHARS)
_NULL: Schema = {"type": "null"}
_HINT = mapping("A hint for the provider's prompt cache. Accepted without effect.")
_CALL_ID = string(min_length=1, max_length=MAX_CALL_ID_CHARS)
_NO_CITATIONS = body_of({"enabled": {"const": False}})

_KEEP_THINKING = body_of(
    {
        "type": constant(CLEAR_THINKING),
        "keep": any_of(constant("all"), body_of({"type": constant("all")}, required=("type",))),
    },
    "Accepted without effect: nothing is removed from a conversation.",
    required=("type", "keep"),
)


def build_messages_schemas() -> dict[str, Schema]:
    """Every schema of the Messages API, by name."""
    return {
        "CreateMessage": body_of(_body_fields(), required=("messages", "max_tokens")),
        "CountMessageTokens": body_of(_body_fields(), required=("messages",)),
        **_option_schemas(),
        **_block_schemas(),
        **_reply_schemas(),
        **_event_schemas(),
    }


def _body_fields() -> dict[str, Schema]:
    return {
        "model": string("A name of `/v1/models`. May be left out if there is only one."),
        "messages": array(ref("MessagesMessage"), "The whole conversation.", max_items=MAX_INPUT_ITEMS, min_items=1),
        "max_tokens": integer("Tokens of one answer of the model, at most.", minimum=1),
        "system": any_of(_TEXT, array(ref("MessagesText")), about="Instructions, beside those of the agent."),
        "stream": boolean("True: the reply is a stream of events."),
        "tools": array(ref("MessagesTool"), "Your own tools.", max_items=MAX_REQUEST_TOOLS),
        "tool_choice": ref("MessagesToolChoice"),
        "thinking": ref("MessagesThinking"),
        "output_config": body_of(
            {"effort": choice(EFFORTS, "How much the model thinks."), "format": ref("MessagesFormat")}
        ),
        "output_format": ref("MessagesFormat", "The older name of `output_config.format`."),
        "stop_sequences": array(string(min_length=1), "The model stops before these.", max_items=MAX_STOP_SEQUENCES),
        "temperature": number(minimum=0, maximum=MAX_TEMPERATURE),
        "top_p": number(minimum=0, maximum=1),
        "metadata": body_of({"user_id": _TEXT}),
        "service_tier": choice(SERVICE_TIERS, "Accepted without effect: there is one tier."),
        "speed": choice(("standard",)),
        "cache_control": _HINT,
        "context_management": body_of({"edits": array(_KEEP_THINKING)}),
    }


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
    parallel = {"disable_parallel_tool_use": boolean("True: the model calls one tool at a time.")}
    display = {"display": choice(DISPLAYS, "`omitted`: thinking blocks have no text.")}
    return {
        "MessagesTool": body_of(tool, required=("name", "input_schema")),
        "MessagesToolChoice": any_of(
            body_of({"type": choice(("auto", "any")), **parallel}, required=("type",)),
            body_of({"type": constant("none"), **parallel}, required=("type",)),
            body_of({"type": constant("tool"), "name": string(min_length=1), **parallel}, required=("type", "name")),
        ),
        "MessagesThinking": any_of(
            body_of(
                {
                    "type": constant("enabled"),
                    "budget_tokens": integer("Decides the effort.", minimum=MIN_THINKING_TOKENS),
                    **display,
                },
                required=("type", "budget_tokens"),
            ),
            body_of({"type": choice(("adaptive", "between_tools", "disabled")), **display}, required=("type",)),
            about="`disabled`: the message has no thinking blocks.",
        ),
        "MessagesFormat": body_of(
            {"type": constant("json_schema"), "schema": mapping("A JSON Schema.")}, required=("type", "schema")
        ),
    }


def _block_schemas() -> dict[str, Schema]:
    parts = [ref(f"Messages{name}") for name in ("Text", "Image", "Document", "SearchResult")]
    of_assistant = [ref(f"Messages{name}") for name in ("Text", "SentThinking", "RedactedThinking", "ToolUse")]
    return {
        "MessagesMessage": any_of(
            _message("user", *parts, ref("MessagesToolResult")),
            _message("assistant", *of_assistant),
            _message("system", ref("MessagesText")),
        ),
        "MessagesText": _block("text", {"text": _TEXT, "citations": array({})}, required=("text",)),
        "MessagesImage": _block("image", {"source": _image_source(), "transformations": mapping()}),
        "MessagesDocument": _block(
            "document",
            {"source": _document_source(), "title": string(), "context": _TEXT, "citations": _NO_CITATIONS},
            required=("source",),
        ),
        "MessagesSearchResult": _block(
            "search_result",
            {
                "title": string(),
                "source": string(),
                "content": array(ref("MessagesText")),
                "citations": _NO_CITATIONS,
            },
            required=("title", "source"),
        ),
        "MessagesToolUse": _block(
            "tool_use",
            {
                "id": _CALL_ID,
                "name": string(min_length=1, max_length=2 * MAX_TOOL_NAME_CHARS),
                "input": mapping(),
                "caller": mapping(),
            },
            required=("id", "name"),
        ),
        "MessagesToolResult": _block(
            "tool_result",
            {"tool_use_id": _CALL_ID, "content": any_of(_TEXT, array(any_of(*parts))), "is_error": boolean()},
            required=("tool_use_id",),
        ),
        "MessagesSentThinking": _block(
            "thinking", {"thinking": string(), "signature": string()}, required=("thinking", "signature")
        ),
        "MessagesRedactedThinking": _block("redacted_thinking", {"data": string()}, required=("data",)),
    }


def _message(role: str, *blocks: Schema) -> Schema:
    content = any_of(_TEXT, array(any_of(*blocks)))
    return body_of({"role": constant(role), "content": content}, required=("role", "content"))


def _block(kind: str, fields: dict[str, Schema], *, required: tuple[str, ...] = ("source",)) -> Schema:
    return body_of({"type": constant(kind), **fields, "cache_control": _HINT}, required=("type", *required))


def _image_source() -> Schema:
    return any_of(
        body_of(
            {
                "type": constant("base64"),
                "media_type": choice(IMAGE_TYPES),
                "data": string(max_length=MAX_FILE_DATA_CHARS),
            },
            required=("type", "media_type", "data"),
        ),
        body_of({"type": constant("url"), "url": string(max_length=MAX_IMAGE_URL_CHARS)}, required=("type", "url")),
    )


def _document_source() -> Schema:
    data = string(max_length=MAX_FILE_DATA_CHARS)
    return any_of(
        body_of(
            {"type": constant("base64"), "media_type": constant(PDF_TYPE), "data": data},
            required=("type", "media_type", "data"),
        ),
        body_of({"type": constant("url"), "url": _TEXT}, required=("type", "url")),
        body_of(
            {"type": constant("text"), "media_type": constant("text/plain"), "data": _TEXT}, required=("type", "data")
        ),
        body_of(
            {
                "type": constant("content"),
                "content": any_of(_TEXT, array(any_of(ref("MessagesText"), ref("MessagesImage")))),
            },
            required=("type", "content"),
        ),
    )


def _reply_schemas() -> dict[str, Schema]:
    text = record_of({"type": constant("text"), "text": string(), "citations": _NULL})
    thinking = record_of({"type": constant("thinking"), "thinking": string(), "signature": string()})
    call = record_of({"type": constant("tool_use"), "id": string(), "name": string(), "input": mapping()})
    types = sorted({*ERROR_TYPES.values(), "invalid_request_error", "api_error"})
    return {
        "MessageBlock": any_of(text, thinking, call),
        "CreatedMessage": record_of(
            {
                "id": string(),
                "type": constant("message"),
                "role": constant("assistant"),
                "model": string(),
                "content": array(ref("MessageBlock")),
                "stop_reason": nullable(choice(STOP_REASONS)),
                "stop_sequence": _NULL,
                "usage": record_of({**_usage_fields(), "service_tier": constant("standard")}),
                "incomplete_details": BUDGET_DETAILS,
            },
            optional=("incomplete_details",),
        ),
        "MessageTokens": record_of({"input_tokens": integer()}),
        "MessagesError": record_of(
            {
                "type": constant("error"),
                "error": record_of({"type": choice(types), "message": string()}),
                "request_id": string("The `x-request-id` of the reply. An event has none."),
            },
            optional=("request_id",),
        ),
    }


def _usage_fields() -> dict[str, Schema]:
    return {
        "input_tokens": integer("Tokens that were not read from a cache."),
        "cache_creation_input_tokens": integer(),
        "cache_read_input_tokens": integer(),
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
        {"type": constant("message_delta"), "delta": ending, "usage": record_of(_usage_fields())},
        {"type": choice(("message_stop", "ping"))},
    )
    return {
        "MessageEvent": any_of(
            *(record_of(event) for event in events), ref("MessagesError"), about="The data of one event of a stream."
        )
    }
