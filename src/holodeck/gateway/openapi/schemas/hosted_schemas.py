"""Schemas of hosted tools: the tools in a request, their calls, and calls that are sent back."""

from __future__ import annotations

from typing import get_args

from holodeck.gateway.api.models.input_items import HostedStatus
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
from holodeck.gateway.wire.request.tools import HOSTED_TOOL_TYPES

HOSTED_OUTPUT_TYPES = {
    "web_search_call": "WebSearchCall",
    "file_search_call": "FileSearchCall",
    "code_interpreter_call": "CodeInterpreterCall",
    "image_generation_call": "ImageGenerationCall",
}


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
            {"id": string(), "type": constant(kind), "status": choice(get_args(HostedStatus)), **fields},
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
