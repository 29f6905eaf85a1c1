"""Schemas of hosted tools: the tools in a request, their calls, and calls that are sent back."""

from __future__ import annotations

from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    array,
    body_of,
    choice,
    constant,
    mapping,
    nullable,
    number,
    record_of,
    string,
    variants,
)
from holodeck.gateway.wire.request.hosted_items import HOSTED_STATUSES, IMAGE_SETTINGS
from holodeck.gateway.wire.request.tools import HOSTED_TOOL_TYPES
from holodeck.lib.limits import MAX_FILE_DATA_CHARS, MAX_INPUT_TEXT_CHARS

HOSTED_INPUT_TYPES = {
    "web_search_call": "InputWebSearchCall",
    "file_search_call": "InputFileSearchCall",
    "code_interpreter_call": "InputCodeInterpreterCall",
    "image_generation_call": "InputImageGenerationCall",
}
HOSTED_OUTPUT_TYPES = {
    "web_search_call": "WebSearchCall",
    "file_search_call": "FileSearchCall",
    "code_interpreter_call": "CodeInterpreterCall",
    "image_generation_call": "ImageGenerationCall",
}
_LONG_TEXT = string(max_length=MAX_INPUT_TEXT_CHARS)


def hosted_tool_schema() -> Schema:
    """Build the schema of a hosted tool in a request."""
    about = "A tool that OpenAI runs itself. Here an MCP tool does, if the operator maps one to it (`builtin_tools`)."
    settings = "All other fields are settings, which the model reads."
    return mapping(f"{about} {settings}", properties={"type": choice(HOSTED_TOOL_TYPES)}, required=["type"])


def hosted_reference_schema() -> Schema:
    """Build the schema of a hosted tool in a tool choice."""
    return body_of({"type": choice(HOSTED_TOOL_TYPES)}, "A hosted tool.", required=("type",))


def hosted_output_schemas() -> dict[str, Schema]:
    """Build the schemas of the calls in a response."""

    def call(kind: str, fields: dict[str, Schema], about: str) -> Schema:
        return record_of(
            {"id": string(), "type": constant(kind), "status": choice(HOSTED_STATUSES), **fields},
            f"{about}, by the MCP tool of the gateway's operator.",
        )

    sources = array(record_of({"type": constant("url"), "url": string()}), "Only if `include` asks for them.")
    action = {"type": constant("search"), "query": string(), "sources": sources}
    result = {
        "file_id": string(),
        "filename": string(),
        "score": number(),
        "text": string(),
        "attributes": mapping(),
    }
    logs = record_of({"type": constant("logs"), "logs": string()})
    image = record_of({"type": constant("image"), "url": string("A data URL.")})
    return {
        "WebSearchCall": call("web_search_call", {"action": record_of(action, optional=("sources",))}, "A web search"),
        "FileSearchCall": call(
            "file_search_call",
            {
                "queries": array(string()),
                "results": nullable(array(record_of(result), "Null unless `include` asks for them.")),
            },
            "A search in files",
        ),
        "CodeOutputLogs": logs,
        "CodeOutputImage": image,
        "CodeInterpreterCall": call(
            "code_interpreter_call",
            {
                "code": string(),
                "container_id": string("The MCP server."),
                "outputs": nullable(
                    array(
                        variants({"logs": "CodeOutputLogs", "image": "CodeOutputImage"}),
                        "Null unless `include` asks for them.",
                    )
                ),
            },
            "Code that was run",
        ),
        "ImageGenerationCall": call(
            "image_generation_call", {"result": nullable(string("Base64."))}, "A generated image"
        ),
    }


def hosted_input_schemas() -> dict[str, Schema]:
    """Build the schemas of calls of hosted tools, here or at OpenAI, that are sent back."""

    def call(kind: str, fields: dict[str, Schema], about: str) -> Schema:
        common = {
            "type": constant(kind),
            "id": string("Left out: a new one."),
            "status": choice(HOSTED_STATUSES),
            "created_by": {"description": "Ignored."},
        }
        return body_of({**common, **fields}, f"{about}, sent back. The model reads it as a note.", required=("type",))

    image = {key: string() for key in IMAGE_SETTINGS}
    return {
        "InputWebSearchCall": call(
            "web_search_call", {"action": mapping("What was searched."), "results": array({})}, "A web search"
        ),
        "InputFileSearchCall": call(
            "file_search_call", {"queries": array(string()), "results": array({})}, "A search in files"
        ),
        "InputCodeInterpreterCall": call(
            "code_interpreter_call",
            {"code": _LONG_TEXT, "container_id": string(), "outputs": array({})},
            "Code that was run",
        ),
        "InputImageGenerationCall": call(
            "image_generation_call",
            {"result": string("Base64.", max_length=MAX_FILE_DATA_CHARS), "revised_prompt": _LONG_TEXT, **image},
            "A generated image",
        ),
    }
