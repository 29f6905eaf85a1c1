"""Readers of calls of hosted tools: searches, code and images that OpenAI's API ran itself, or this gateway for it.

Such a call has no output that a model API could match with it. It becomes a note in words at its place in the
conversation, on the side of the assistant: what was called with what, and what came back as far as the item has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from holodeck.gateway.api.models import input_items as api
from holodeck.gateway.wire.request.parsed_input import Input, WireItem
from holodeck.lib.ids import new_id
from holodeck.models.items import text_message

_NO_RESULT = "What came back is not part of this conversation."


def _describe_web_search(item: api.InputWebSearchCall) -> list[str]:
    action, found = item.action or {}, item.results
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


def _describe_file_search(item: api.InputFileSearchCall) -> list[str]:
    lines, found = [f"Query: {query}" for query in item.queries or ()], item.results
    return [*lines, *_describe_results(found or ()), *([_NO_RESULT] if found is None else [])]


def _describe_results(results: Iterable[Any]) -> list[str]:
    lines = []
    for result in results:
        names = (_text_of(result, key) for key in ("filename", "title", "url"))
        texts = (_text_of(result, key) for key in ("text", "snippet"))
        lines.append(f"Result from {next(filter(None, names), 'a file')}: {next(filter(None, texts), '')}".rstrip())
    return lines


def _describe_code(item: api.InputCodeInterpreterCall) -> list[str]:
    lines = [f"Code:\n{item.code}"] if item.code else []
    for output in item.outputs or ():
        logs = _text_of(output, "logs")
        lines.append(f"Output:\n{logs}" if logs else "Output: an image, which is not shown here.")
    return [*lines, *([_NO_RESULT] if item.outputs is None else [])]


def _describe_image(item: api.InputImageGenerationCall) -> list[str]:
    lines = [f"Prompt: {item.revised_prompt}"] if item.revised_prompt else []
    return [*lines, "The user got the image; it is not shown here." if item.result else _NO_RESULT]


def _text_of(value: Any, key: str) -> str:
    """Return the text of a field, or an empty one: what the API adds to these objects later must not matter."""
    text = value.get(key) if isinstance(value, Mapping) else None
    return text if isinstance(text, str) else ""


def _list_of(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


HostedCall = (
    api.InputWebSearchCall | api.InputFileSearchCall | api.InputCodeInterpreterCall | api.InputImageGenerationCall
)


def _read_hosted_call(
    tool: str,
    prefix: str,
    describe: Callable[[Any], list[str]],
    item: HostedCall,
    entry: WireItem,
    where: str,
    into: Input,
) -> None:
    head = f"Earlier call of the tool {tool} ({item.status or 'completed'})."
    text = "\n".join([head, *describe(item)])
    into.items.append(text_message("assistant", f"[{text}]"))
    into.wire_items.append({**entry, "id": item.id or new_id(prefix)})


HOSTED_ITEM_READERS: dict[str, Callable[[Any, WireItem, str, Input], None]] = {
    "web_search_call": partial(_read_hosted_call, "web_search", "ws", _describe_web_search),
    "file_search_call": partial(_read_hosted_call, "file_search", "fs", _describe_file_search),
    "code_interpreter_call": partial(_read_hosted_call, "code_interpreter", "ci", _describe_code),
    "image_generation_call": partial(_read_hosted_call, "image_generation", "ig", _describe_image),
}
