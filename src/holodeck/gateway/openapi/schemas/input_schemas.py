"""Schemas of what a request contains: input items, content parts, tools and tool choices.

Limits and choices are those of the readers in `wire/request`, so that both always agree.
"""

from __future__ import annotations

from holodeck.gateway.api.models.mcp_tool import TOOL_MODELS, WEB_URL, NamedTools
from holodeck.gateway.api.models.tools import FunctionDefinition
from holodeck.gateway.openapi.schemas.action_schemas import (
    ACTION_INPUT_TYPES,
    action_input_schemas,
    action_reference_schema,
)
from holodeck.gateway.openapi.schemas.hosted_schemas import (
    HOSTED_INPUT_TYPES,
    hosted_input_schemas,
    hosted_reference_schema,
    hosted_tool_schema,
)
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    any_of,
    array,
    body_of,
    boolean,
    choice,
    constant,
    list_field_schemas,
    mapping,
    model_schema,
    ref,
    string,
    variants,
)
from holodeck.gateway.wire.request.content_parts import AUDIO_TYPES, CACHE_FIELD, IMAGE_DETAILS
from holodeck.gateway.wire.request.input_items import MCP_STATUSES, MESSAGE_ROLES
from holodeck.gateway.wire.request.parsed_input import ITEM_STATUSES
from holodeck.gateway.wire.request.tools import CHOICE_MODES, HOSTED_TOOL_TYPES
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_FILE_DATA_CHARS,
    MAX_IMAGE_URL_CHARS,
    MAX_INPUT_TEXT_CHARS,
    MAX_REQUEST_TOOLS,
    MAX_TOOL_NAME_CHARS,
)

IMAGE_URL = "^(https?://|data:image/)"
LONG_TEXT = string(max_length=MAX_INPUT_TEXT_CHARS)
JSON_SCHEMA = mapping("A JSON Schema.")
CACHE_MARK: dict[str, Schema] = {
    CACHE_FIELD: mapping("A mark for the prompt cache. Sent to the provider, if it has the field.")
}
_PART_TYPES = {
    "input_text": "InputText",
    "input_image": "InputImage",
    "input_file": "InputFile",
    "input_audio": "InputAudio",
    "output_text": "SentOutputText",
    "refusal": "SentRefusal",
}
_ITEM_TYPES = {
    "message": "InputMessage",
    "function_call": "InputFunctionCall",
    "function_call_output": "FunctionCallOutput",
    "custom_tool_call": "InputCustomToolCall",
    "custom_tool_call_output": "CustomToolCallOutput",
    **ACTION_INPUT_TYPES,
    **HOSTED_INPUT_TYPES,
    "tool_search_call": "InputToolSearchCall",
    "tool_search_output": "ToolSearchOutput",
    "reasoning": "InputReasoning",
    "compaction": "Compaction",
    "compaction_trigger": "CompactionTrigger",
    "mcp_list_tools": "InputMCPListTools",
    "mcp_call": "InputMCPCall",
    "mcp_approval_request": "InputMCPApprovalRequest",
    "mcp_approval_response": "MCPApprovalResponse",
    "item_reference": "ItemReference",
}
_FOUND_TYPES = {"function": "FunctionTool", "custom": "CustomTool", "namespace": "NamespaceTool"}
_TOOL_TYPES = {
    **{kind: model.__name__ for kind, model in TOOL_MODELS.items()},
    **dict.fromkeys(HOSTED_TOOL_TYPES, "HostedTool"),
}


def part_schemas() -> dict[str, Schema]:
    """Build the schemas of the parts of a message or of a tool's output."""
    sound = body_of(
        {"data": string("Base64.", max_length=MAX_FILE_DATA_CHARS), "format": choice(AUDIO_TYPES)},
        required=("data", "format"),
    )
    return {
        "InputPart": variants(_PART_TYPES, "A part of a message or of a tool's output."),
        "InputText": body_of(
            {"type": constant("input_text"), "text": LONG_TEXT, **CACHE_MARK}, required=("type", "text")
        ),
        "InputImage": body_of(
            {
                "type": constant("input_image"),
                "image_url": string(
                    "An http or https URL, or a data URL with an image.",
                    max_length=MAX_IMAGE_URL_CHARS,
                    pattern=IMAGE_URL,
                    example="https://example.com/chart.png",
                ),
                "detail": choice(IMAGE_DETAILS, "How closely the model looks at it."),
                **CACHE_MARK,
            },
            required=("type", "image_url"),
        ),
        "InputFile": body_of(
            {
                "type": constant("input_file"),
                "filename": string(),
                "file_data": string("The content, as base64 or as a data URL.", max_length=MAX_FILE_DATA_CHARS),
                "file_url": string(
                    "A URL that the gateway fetches, instead of the content. The operator must allow it.",
                    pattern=WEB_URL,
                    example="https://example.com/report.pdf",
                ),
                "detail": choice(("auto",)),
                **CACHE_MARK,
            },
            required=("type",),
            one_of=("file_data", "file_url"),
            is_exclusive=True,
        ),
        "InputAudio": body_of(
            {"type": constant("input_audio"), "input_audio": sound, **CACHE_MARK}, required=("type", "input_audio")
        ),
        "SentOutputText": body_of(
            {
                "type": constant("output_text"),
                "text": LONG_TEXT,
                "annotations": array({}),
                "logprobs": array({}),
                "parsed": {"description": "Ignored: some SDKs send the parsed text back."},
            },
            "Text of an earlier answer, sent back.",
            required=("type", "text"),
        ),
        "SentRefusal": body_of({"type": constant("refusal"), "refusal": LONG_TEXT}, required=("type", "refusal")),
    }


def item_schemas() -> dict[str, Schema]:
    """Build the schemas of the items of an input, by name."""
    return {
        "InputItem": variants(
            _ITEM_TYPES, "One item of an input. `type` may be left out in a message and a reference."
        ),
        **_message_schemas(),
        **_client_call_schemas(),
        **_server_call_schemas(),
        **hosted_input_schemas(),
    }


def _item(kind: str, fields: dict[str, Schema], about: str, *, required: tuple[str, ...]) -> Schema:
    common = {"type": constant(kind), "id": string("Left out: a new one."), "created_by": {"description": "Ignored."}}
    return body_of({**common, **fields}, about, required=required)


def _message_schemas() -> dict[str, Schema]:
    content = any_of(LONG_TEXT, array(ref("InputPart")))
    return {
        "InputMessage": _item(
            "message",
            {
                "role": choice(MESSAGE_ROLES),
                "content": content,
                "status": choice(ITEM_STATUSES),
                "phase": choice(("commentary", "final_answer")),
            },
            "A message. One of the assistant has only text and refusals.",
            required=("role", "content"),
        ),
        "InputReasoning": _item(
            "reasoning",
            {
                "summary": array(_thought("summary_text")),
                "content": array(_thought("reasoning_text")),
                "encrypted_content": string("As an earlier response had it."),
                "status": choice(ITEM_STATUSES),
            },
            "Reasoning of an earlier response, sent back.",
            required=("type", "summary"),
        ),
        "Compaction": _item(
            "compaction",
            {"encrypted_content": string(max_length=4 * MAX_INPUT_TEXT_CHARS)},
            "A compacted conversation, from `/v1/responses/compact` or from a response. One of a response replaces all "
            "items before it.",
            required=("type", "encrypted_content"),
        ),
        "CompactionTrigger": _item(
            "compaction_trigger",
            {},
            "The last item: compacts what comes before. The output is a `compaction` item, without an answer.",
            required=("type",),
        ),
        "ItemReference": body_of(
            {"type": constant("item_reference"), "id": string("The id of a stored item.", min_length=1)},
            "Stands for a stored item.",
            required=("id",),
        ),
    }


def _thought(kind: str) -> Schema:
    return body_of({"type": choice((kind, "text")), "text": LONG_TEXT}, required=("type", "text"))


def _client_call_schemas() -> dict[str, Schema]:
    call_id = string("Ties an output to its call.", max_length=MAX_CALL_ID_CHARS, min_length=1)
    name = string(max_length=2 * MAX_TOOL_NAME_CHARS, min_length=1)
    namespace = string(max_length=MAX_TOOL_NAME_CHARS)
    direct = {"caller": mapping(properties={"type": constant("direct")}, required=["type"])}
    call = {"call_id": call_id, "name": name, "namespace": namespace, "status": choice(ITEM_STATUSES), **direct}
    output = {
        "call_id": call_id,
        "output": any_of(LONG_TEXT, array(ref("InputPart"))),
        "status": choice(ITEM_STATUSES),
        "name": string("Ignored: the call has it."),
        "namespace": string("Ignored."),
        **direct,
    }
    search = {"call_id": call_id, "execution": choice(("client",)), "status": choice(ITEM_STATUSES)}
    return {
        "InputFunctionCall": _item(
            "function_call",
            {**call, "arguments": string("JSON."), "parsed_arguments": {"description": "Ignored."}},
            "A call of one of your functions, sent back.",
            required=("type", "call_id", "name", "arguments"),
        ),
        "FunctionCallOutput": _item(
            "function_call_output",
            output,
            "The output of one of your functions.",
            required=("type", "call_id", "output"),
        ),
        "InputCustomToolCall": _item(
            "custom_tool_call",
            {**call, "input": LONG_TEXT},
            "A call of one of your tools that take text, sent back.",
            required=("type", "call_id", "name", "input"),
        ),
        "CustomToolCallOutput": _item(
            "custom_tool_call_output",
            output,
            "The output of one of your tools that take text.",
            required=("type", "call_id", "output"),
        ),
        **action_input_schemas(direct),
        "InputToolSearchCall": _item(
            "tool_search_call",
            {**search, "arguments": {}},
            "A search for tools, sent back.",
            required=("type", "call_id"),
        ),
        "ToolSearchOutput": _item(
            "tool_search_output",
            {**search, "tools": array(variants(_FOUND_TYPES), max_items=MAX_REQUEST_TOOLS)},
            "The tools that your search has found. The model can call them from now on.",
            required=("type", "call_id"),
        ),
    }


def _server_call_schemas() -> dict[str, Schema]:
    label, name = string("The server.", min_length=1), string("The tool.", min_length=1)
    call = {"server_label": label, "name": name, "arguments": string("JSON.")}
    listed = body_of(
        {"name": name, "description": string(), "input_schema": JSON_SCHEMA, "annotations": mapping()},
        required=("name", "input_schema"),
    )
    return {
        "InputMCPListTools": _item(
            "mcp_list_tools",
            {"server_label": label, "tools": array(listed), "error": string()},
            "The tools of a server, sent back. They are not listed another time.",
            required=("type", "server_label", "tools"),
        ),
        "InputMCPCall": _item(
            "mcp_call",
            {
                **call,
                "approval_request_id": string(),
                "status": choice(MCP_STATUSES),
                "output": string(),
                "error": {"description": "A text or an object, as an earlier response had it."},
            },
            "A call that the gateway has run, sent back.",
            required=("type", "server_label", "name", "arguments"),
        ),
        "InputMCPApprovalRequest": _item(
            "mcp_approval_request",
            call,
            "A request for approval, sent back unchanged.",
            required=("type", "id", "server_label", "name", "arguments"),
        ),
        "MCPApprovalResponse": _item(
            "mcp_approval_response",
            {
                "approval_request_id": string("The id of the `mcp_approval_request`.", min_length=1),
                "approve": boolean("True runs the call."),
                "reason": string("For the model, if you refuse.", max_length=MAX_INPUT_TEXT_CHARS),
            },
            "Your answer to a request for approval.",
            required=("type", "approval_request_id", "approve"),
        ),
    }


def tool_schemas() -> dict[str, Schema]:
    """Build the schemas of the tools of a request, and of the ways to choose among them."""
    named_tools = list_field_schemas(NamedTools)
    return {
        "Tool": variants(_TOOL_TYPES, "A tool that the model may call."),
        **{model.__name__: model_schema(model) for model in TOOL_MODELS.values()},
        "FunctionDefinition": model_schema(FunctionDefinition),
        "HostedTool": hosted_tool_schema(),
        "ToolFilter": any_of(named_tools["tool_names"], body_of(named_tools), about="Some tools of a server."),
        **_tool_choice_schemas(),
    }


def _tool_choice_schemas() -> dict[str, Schema]:
    named = body_of(
        {"type": choice(("function", "custom")), "name": string(min_length=1), "namespace": string()},
        "One of your tools.",
        required=("type", "name"),
    )
    server = body_of(
        {"type": constant("mcp"), "server_label": string(min_length=1), "name": string("Left out: any of its tools.")},
        "A tool of an MCP server.",
        required=("type", "server_label"),
    )
    return {
        "MCPServerReference": server,
        "ToolReference": any_of(named, ref("MCPServerReference"), action_reference_schema(), hosted_reference_schema()),
        "ToolChoice": any_of(
            choice(CHOICE_MODES),
            ref("ToolReference"),
            body_of(
                {
                    "type": constant("allowed_tools"),
                    "mode": choice(CHOICE_MODES),
                    "tools": array(ref("ToolReference"), max_items=MAX_REQUEST_TOOLS, min_items=1),
                },
                "Only these tools.",
                required=("type", "tools"),
            ),
            about="Whether the model may, must or must not call tools, and which.",
        ),
    }
