"""Schemas of what the gateway sends: resources, output items and chat completions."""

from __future__ import annotations

from typing import get_args

from holodeck.gateway.api.models.create_response import (
    PLAIN_MEMBERS,
    REPEATED_MEMBERS,
    RESPONSE_DEFAULTS,
    CreateResponse,
)
from holodeck.gateway.api.models.input_items import ItemStatus
from holodeck.gateway.http.error_codes import ERROR_CODES
from holodeck.gateway.openapi.schemas.action_schemas import ACTION_OUTPUT_TYPES, action_output_schemas
from holodeck.gateway.openapi.schemas.body_schemas import METADATA
from holodeck.gateway.openapi.schemas.hosted_schemas import HOSTED_OUTPUT_TYPES, hosted_output_schemas
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    any_of,
    array,
    boolean,
    choice,
    constant,
    counts_schema,
    inner_option_schemas,
    integer,
    list_field_schemas,
    mapping,
    nullable,
    number,
    record_of,
    ref,
    string,
    variants,
)
from holodeck.gateway.wire.chat.request import REASONING_FIELD
from holodeck.gateway.wire.chat.response import usage_to_chat_json
from holodeck.gateway.wire.response.resource import ERROR_TYPES, usage_to_json
from holodeck.lib.errors import BUDGET_EXCEEDED
from holodeck.models.generation import LEFT_OUT, OPTION_OF, OPTIONS, REPORTED_OPTIONS, Option
from holodeck.models.items import Usage
from holodeck.models.model_io import LOGPROB_ALTERNATIVES

RESPONSE_STATUSES = ("queued", "in_progress", "completed", "requires_action", "incomplete", "failed", "cancelled")
INCOMPLETE_REASONS = ("max_output_tokens", "content_filter", "max_turns", BUDGET_EXCEEDED, "cancelled")
BUDGET_DETAILS = record_of(
    {"reason": constant(BUDGET_EXCEEDED)}, "Only where the caller's budget was spent after tools had run."
)
_KINDS = ("type", "enum")
_TIME = integer("Seconds since 1970.")
_NULLABLE_TEXT = nullable(string())
_OUTPUT_ITEM_TYPES = {
    "message": "Message",
    "reasoning": "Reasoning",
    "function_call": "FunctionCall",
    "function_call_output": "FunctionCallResult",
    "custom_tool_call": "CustomToolCall",
    **ACTION_OUTPUT_TYPES,
    **HOSTED_OUTPUT_TYPES,
    "tool_search_call": "ToolSearchCall",
    "mcp_list_tools": "MCPListTools",
    "mcp_call": "MCPCall",
    "mcp_approval_request": "MCPApprovalRequest",
    "compaction": "CompactionItem",
}


def build_reply_schemas() -> dict[str, Schema]:
    """Build the schemas of everything that a reply can contain, by name."""
    return {
        "Error": _error_schema(),
        "Response": _response_schema(),
        "Usage": counts_schema(usage_to_json(Usage()), "Tokens of all turns together."),
        **_output_item_schemas(),
        **_resource_schemas(),
        **_list_schemas(),
        **_chat_reply_schemas(),
    }


def _error_schema() -> Schema:
    codes = list(dict.fromkeys(each.code for each in ERROR_CODES))
    kinds = dict.fromkeys(each.kind for each in ERROR_CODES)
    return record_of(
        {
            "error": record_of(
                {
                    "message": string("What happened, and what to do."),
                    "type": choice(kinds),
                    "code": {"enum": codes, "description": "For programs. Null where there is none."},
                    "param": nullable(string("The field of the request, such as `input[2].content`.")),
                    "response_id": string("In the error of a failed run: the response."),
                },
                optional=("response_id",),
            )
        }
    )


def _response_schema() -> Schema:
    text = record_of({"format": mapping(), **inner_option_schemas("responses", "text")})
    reasoning = record_of({name: nullable(choice(OPTION_OF[name].values.choices)) for name in ("effort", "summary")})
    error = record_of({"code": choice((*ERROR_TYPES, "server_error")), "message": string()})
    repeated: dict[str, Schema] = {
        **{option.repeated_as: _repeated_schema(option) for option in OPTIONS if option.repeated_as is not None},
        **_plain_schemas(),
        "model": string(),
        "tools": array(mapping(), "As the request had them, without credentials."),
        "tool_choice": any_of(string(), mapping()),
        "text": text,
        "reasoning": reasoning,
        "metadata": METADATA,
        "conversation": record_of({"id": string()}),
    }
    optional = (
        "conversation",
        *(each.repeated_as for each in OPTIONS if each.repeated_as and each.default is LEFT_OUT),
    )
    return record_of(
        {
            "id": string(),
            "object": constant("response"),
            "created_at": _TIME,
            "completed_at": nullable(_TIME),
            "status": choice(RESPONSE_STATUSES),
            "incomplete_details": nullable(record_of({"reason": choice(INCOMPLETE_REASONS)})),
            "output": array(ref("OutputItem")),
            "error": nullable(error),
            "usage": nullable(ref("Usage")),
            **{name: repeated[name] for name in (*REPEATED_MEMBERS, *optional)},
        },
        "A response. Fields that the request did not have are at their defaults.",
        optional=optional,
    )


def _plain_schemas() -> dict[str, Schema]:
    """Build the schemas of the members that have the value of a field of the request."""
    declared = list_field_schemas(CreateResponse)
    schemas = {}
    for name in PLAIN_MEMBERS:
        values: Schema = {key: declared[name][key] for key in _KINDS if key in declared[name]}
        schemas[name] = nullable(values) if RESPONSE_DEFAULTS[name] is None else values
    return schemas


def _repeated_schema(option: Option) -> Schema:
    values = option.values
    if values.kind == "decimal":
        return number(minimum=values.minimum, maximum=values.maximum)
    kinds = {"flag": boolean(), "integer": integer(), "text_or_texts": array(string())}
    schema = kinds.get(values.kind, string(option.reported))
    return nullable(schema) if option.default is None else schema


def _token_fields() -> dict[str, Schema]:
    return {"token": string(), "logprob": {"type": "number"}, "bytes": array(integer())}


def _output_item_schemas() -> dict[str, Schema]:
    return {
        "OutputItem": variants(_OUTPUT_ITEM_TYPES, "One item of the output."),
        "OutputText": record_of(
            {
                "type": constant("output_text"),
                "text": string(),
                "annotations": array({}),
                "logprobs": array(ref("Logprob"), "Only if the request asks for them."),
            }
        ),
        "CompactionItem": record_of(
            {"id": string(), "type": constant("compaction"), "encrypted_content": string()},
            "Holds what came before it in fewer tokens, encrypted. Send it back instead of that.",
        ),
        "Logprob": record_of({**_token_fields(), LOGPROB_ALTERNATIVES: array(record_of(_token_fields()))}),
        "Refusal": record_of({"type": constant("refusal"), "refusal": string()}),
        "SummaryText": record_of({"type": constant("summary_text"), "text": string()}),
        "ReasoningText": record_of({"type": constant("reasoning_text"), "text": string()}),
        "OutputPart": variants(
            {
                "output_text": "OutputText",
                "refusal": "Refusal",
                "summary_text": "SummaryText",
                "reasoning_text": "ReasoningText",
            }
        ),
        "Message": _item(
            "message",
            {
                "role": constant("assistant"),
                "content": array(variants({"output_text": "OutputText", "refusal": "Refusal"})),
            },
            "Text of the model.",
        ),
        "Reasoning": _item(
            "reasoning",
            {
                "summary": array(ref("SummaryText")),
                "content": array(ref("ReasoningText")),
                "encrypted_content": string("Only for the gateway and the model. Send it back as it is."),
            },
            "What the model thought.",
            optional=("content", "encrypted_content"),
        ),
        **_client_call_schemas(),
        **_server_call_schemas(),
    }


def _item(kind: str, fields: dict[str, Schema], about: str, *, optional: tuple[str, ...] = ()) -> Schema:
    common = {"id": string(), "type": constant(kind), "status": choice(get_args(ItemStatus))}
    return record_of({**common, **fields}, about, optional=optional)


def _client_call_schemas() -> dict[str, Schema]:
    call = {"call_id": string("Send the output with it."), "name": string(), "namespace": string()}
    return {
        "FunctionCall": _item(
            "function_call",
            {**call, "arguments": string("JSON.")},
            "A call of a function. Run it if it is one of yours, and send its output. A call that the gateway runs has "
            "its output in the same response.",
            optional=("namespace",),
        ),
        "FunctionCallResult": _item(
            "function_call_output",
            {"call_id": string(), "output": any_of(string(), array(ref("InputPart")))},
            "The output of a call that the gateway has run.",
        ),
        "CustomToolCall": _item(
            "custom_tool_call",
            {**call, "input": string()},
            "A call of one of your tools that take text.",
            optional=("namespace",),
        ),
        **action_output_schemas(),
        **hosted_output_schemas(),
        "ToolSearchCall": _item(
            "tool_search_call",
            {"call_id": string(), "execution": constant("client"), "arguments": {}},
            "A search for tools, which your program makes.",
        ),
    }


def _server_call_schemas() -> dict[str, Schema]:
    call = {"server_label": string(), "name": string(), "arguments": string("JSON.")}
    listed = record_of(
        {
            "name": string(),
            "description": _NULLABLE_TEXT,
            "input_schema": mapping(),
            "annotations": nullable(mapping()),
        }
    )
    tool_error = record_of({"type": constant("mcp_tool_execution_error"), "content": array(mapping())})
    other_error = record_of(
        {"type": choice(("mcp_protocol_error", "http_error")), "code": integer(), "message": string()}
    )
    return {
        "MCPListTools": record_of(
            {
                "id": string(),
                "type": constant("mcp_list_tools"),
                "server_label": string(),
                "tools": array(listed),
                "error": _NULLABLE_TEXT,
            },
            "The tools of a declared server.",
            optional=("error",),
        ),
        "MCPCall": record_of(
            {
                "id": string(),
                "type": constant("mcp_call"),
                "status": choice((*get_args(ItemStatus), "failed")),
                **call,
                "approval_request_id": _NULLABLE_TEXT,
                "output": _NULLABLE_TEXT,
                "error": nullable(any_of(tool_error, other_error)),
            },
            "A call that the gateway has run on an MCP server.",
        ),
        "MCPApprovalRequest": record_of(
            {"id": string(), "type": constant("mcp_approval_request"), **call},
            "A call that waits for your approval. Answer with an `mcp_approval_response`.",
        ),
    }


def _resource_schemas() -> dict[str, Schema]:
    model = {
        "id": string(),
        "object": constant("model"),
        "created": _TIME,
        "owned_by": string(),
        "kind": choice(("model", "agent")),
        "description": _NULLABLE_TEXT,
        "mcp_servers": array(string(), "The MCP servers that a request to it can declare, by `server_label`."),
    }
    return {
        "DeletedResponse": record_of({"id": string(), "object": constant("response"), "deleted": boolean()}),
        "CompactedConversation": record_of(
            {
                "id": string(),
                "object": constant("response.compaction"),
                "created_at": _TIME,
                "output": array(
                    any_of(ref("KeptMessage"), ref("CompactionItem")), "Your messages, and last the compaction."
                ),
                "usage": ref("Usage"),
            }
        ),
        "KeptMessage": record_of(
            {
                "id": string(),
                "type": constant("message"),
                "role": constant("user"),
                "status": constant("completed"),
                "content": array(mapping("A part, as it was sent.")),
            },
            "A message of yours that a compaction keeps.",
        ),
        "InputTokens": record_of({"object": constant("response.input_tokens"), "input_tokens": integer()}),
        "Conversation": record_of(
            {"id": string(), "object": constant("conversation"), "created_at": _TIME, "metadata": METADATA}
        ),
        "DeletedConversation": record_of(
            {"id": string(), "object": constant("conversation.deleted"), "deleted": boolean()}
        ),
        "Model": record_of(model),
        "Health": record_of(
            {
                "status": choice(("ok", "no storage", "storage incomplete", "no audit log")),
                "reason": string("What is wrong with the storage, where that is known.", example="the disk is full"),
                "failing": array(string(), "Tasks of the gateway that keep failing. Absent: none."),
            },
            optional=("reason", "failing"),
        ),
    }


def _list_schemas() -> dict[str, Schema]:
    page = {"first_id": _NULLABLE_TEXT, "last_id": _NULLABLE_TEXT, "has_more": boolean("There are further pages.")}
    return {
        # As it was sent, with what the gateway has added to it.
        "StoredItem": {
            **any_of(ref("InputItem"), ref("OutputItem"), about="An item of an input or of an output."),
            "required": ["id", "type"],
        },
        "ConversationList": record_of({"object": constant("list"), "data": array(ref("Conversation")), **page}),
        "ItemList": record_of({"object": constant("list"), "data": array(ref("StoredItem")), **page}),
        "ModelList": record_of({"object": constant("list"), "data": array(ref("Model"))}),
    }


def _chat_reply_schemas() -> dict[str, Schema]:
    common = {
        "id": string(),
        "created": _TIME,
        "model": string(),
        **{option.name: _repeated_schema(option) for option in REPORTED_OPTIONS},
        "system_fingerprint": _NULLABLE_TEXT,
    }
    function = record_of({"name": string(), "arguments": string()})
    message = record_of(
        {
            "role": constant("assistant"),
            "content": _NULLABLE_TEXT,
            "refusal": _NULLABLE_TEXT,
            "annotations": array({}),
            REASONING_FIELD: string(),
            "tool_calls": array(record_of({"id": string(), "type": constant("function"), "function": function})),
        },
        optional=(REASONING_FIELD, "tool_calls"),
    )
    reason = choice(("stop", "length", "tool_calls", "content_filter"))
    tokens = nullable(array(ref("Logprob")))
    common_choice = {"index": integer(), "logprobs": nullable(record_of({"content": tokens, "refusal": tokens}))}
    return {
        "ChatCompletion": record_of(
            {
                **common,
                "object": constant("chat.completion"),
                "choices": array(record_of({**common_choice, "message": message, "finish_reason": reason})),
                "usage": ref("ChatUsage"),
                "incomplete_details": BUDGET_DETAILS,
            },
            optional=("incomplete_details",),
        ),
        "ChatChunk": record_of(
            {
                **common,
                "object": constant("chat.completion.chunk"),
                "choices": array(
                    record_of({**common_choice, "delta": _delta_schema(), "finish_reason": nullable(reason)})
                ),
                "usage": nullable(ref("ChatUsage")),
                "incomplete_details": BUDGET_DETAILS,
            },
            "One chunk of a stream. With `include_usage`, the last one has no choices and the tokens.",
            optional=("usage", "incomplete_details"),
        ),
        "ChatError": record_of(
            {"error": record_of({"type": string(), "param": _NULLABLE_TEXT, "code": string(), "message": string()})},
            "The last chunk of a run that failed.",
        ),
        "ChatEvent": any_of(ref("ChatChunk"), ref("ChatError"), about="The data of one event of a stream."),
        "ChatUsage": counts_schema(usage_to_chat_json(Usage())),
    }


def _delta_schema() -> Schema:
    function = record_of({"name": string(), "arguments": string()}, optional=("name",))
    call = record_of(
        {"index": integer(), "id": string(), "type": constant("function"), "function": function},
        optional=("id", "type"),
    )
    fields = {
        "role": constant("assistant"),
        "content": string(),
        "refusal": _NULLABLE_TEXT,
        REASONING_FIELD: string(),
        "tool_calls": array(call),
    }
    return record_of(fields, optional=fields)
