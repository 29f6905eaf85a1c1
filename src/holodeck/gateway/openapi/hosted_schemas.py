"""Schemas of hosted tools: calls that are sent back."""

from __future__ import annotations

from holodeck.gateway.openapi.schema import Schema, array, body_of, choice, constant, mapping, string
from holodeck.gateway.wire.request.hosted_items import HOSTED_STATUSES, IMAGE_SETTINGS
from holodeck.lib.limits import MAX_FILE_DATA_CHARS, MAX_INPUT_TEXT_CHARS

HOSTED_INPUT_TYPES = {
    "web_search_call": "InputWebSearchCall",
    "file_search_call": "InputFileSearchCall",
    "code_interpreter_call": "InputCodeInterpreterCall",
    "image_generation_call": "InputImageGenerationCall",
}
_LONG_TEXT = string(max_length=MAX_INPUT_TEXT_CHARS)


def hosted_input_schemas() -> dict[str, Schema]:
    """Calls of hosted tools, here or at OpenAI, that are sent back."""

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
