"""Readers of calls of hosted tools: searches, code and images that OpenAI's API ran itself, or this gateway for it.

Such a call has no output that a model API could match with it. It becomes a note in words at its place in the
conversation, on the side of the assistant: what was called with what, and what came back as far as the item has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from holodeck.gateway.wire.request.json_fields import JSONFields
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_FILE_DATA_CHARS, MAX_INPUT_TEXT_CHARS
from holodeck.models.items import text_message

HOSTED_STATUSES = ("in_progress", "searching", "interpreting", "generating", "completed", "incomplete", "failed")
IMAGE_SETTINGS = ("action", "background", "output_format", "quality", "size")
"""Fields with which the API describes a generated image. They do not matter any more."""
_NO_RESULT = "What came back is not part of this conversation."


def _describe_web_search(fields: JSONFields) -> list[str]:
    action = fields.get_mapping("action") or {}
    found = fields.get_array("results")
    lines = [
        f"{label}: {text}"
        for label, key in (("Query", "query"), ("Page", "url"), ("Looked for", "pattern"))
        if (text := _text_of(action, key))
    ]
    queries = [each for each in _list_of(action, "queries") if isinstance(each, str) and each != action.get("query")]
    lines += [f"Query: {query}" for query in queries]
    sources = [url for each in _list_of(action, "sources") if (url := _text_of(each, "url"))]
    if sources:
        lines.append(f"Sources: {', '.join(sources)}")
    return [*lines, *_describe_results(found or ()), *([] if found else [_NO_RESULT])]


def _describe_file_search(fields: JSONFields) -> list[str]:
    lines = [f"Query: {query}" for query in fields.get_strings("queries") or ()]
    found = fields.get_array("results")
    return [*lines, *_describe_results(found or ()), *([_NO_RESULT] if found is None else [])]


def _describe_results(results: Iterable[Any]) -> list[str]:
    lines = []
    for result in results:
        names = (_text_of(result, key) for key in ("filename", "title", "url"))
        texts = (_text_of(result, key) for key in ("text", "snippet"))
        lines.append(f"Result from {next(filter(None, names), 'a file')}: {next(filter(None, texts), '')}".rstrip())
    return lines


def _describe_code(fields: JSONFields) -> list[str]:
    fields.get_text("container_id")
    code = fields.get_text("code", max_length=MAX_INPUT_TEXT_CHARS)
    outputs = fields.get_array("outputs")
    lines = [f"Code:\n{code}"] if code else []
    for output in outputs or ():
        logs = _text_of(output, "logs")
        lines.append(f"Output:\n{logs}" if logs else "Output: an image, which is not shown here.")
    return [*lines, *([_NO_RESULT] if outputs is None else [])]


def _describe_image(fields: JSONFields) -> list[str]:
    prompt = fields.get_text("revised_prompt", max_length=MAX_INPUT_TEXT_CHARS)
    for key in IMAGE_SETTINGS:
        fields.get_text(key)
    image = fields.get_text("result", max_length=MAX_FILE_DATA_CHARS)
    lines = [f"Prompt: {prompt}"] if prompt else []
    return [*lines, "The user got the image; it is not shown here." if image else _NO_RESULT]


def _text_of(value: Any, key: str) -> str:
    """Return the text of a field, or an empty one: what the API adds to these objects later must not matter."""
    text = value.get(key) if isinstance(value, Mapping) else None
    return text if isinstance(text, str) else ""


def _list_of(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def _read_hosted_call(
    tool: str, prefix: str, describe: Callable[[JSONFields], list[str]], fields: JSONFields, into: Input
) -> None:
    item_id = fields.get_text("id") or new_id(prefix)
    status = fields.get_choice("status", HOSTED_STATUSES) or "completed"
    head = f"Earlier call of the tool {tool} ({status})."
    text = "\n".join([head, *describe(fields)])
    into.items.append(text_message("assistant", f"[{text}]"))
    into.wire_items.append({**fields.value, "id": item_id})


HOSTED_ITEM_READERS: dict[str, Callable[[JSONFields, Input], None]] = {
    "web_search_call": partial(_read_hosted_call, "web_search", "ws", _describe_web_search),
    "file_search_call": partial(_read_hosted_call, "file_search", "fs", _describe_file_search),
    "code_interpreter_call": partial(_read_hosted_call, "code_interpreter", "ci", _describe_code),
    "image_generation_call": partial(_read_hosted_call, "image_generation", "ig", _describe_image),
}
