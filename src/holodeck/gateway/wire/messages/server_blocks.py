"""Blocks of the Messages API for results of calls that the gateway ran: of declared servers, and of web tools.

A web tool is run by an MCP tool, whose result has any form. Its block has what can be found in it: titles and URLs of
a search, the text of a page. The first result of a search carries the whole text in `encrypted_content`, which clients
send back as it is, so that the model reads the same text in the next request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.wire.response.hosted_calls import find_text, find_urls, parse_arguments
from holodeck.lib.json.parse import parse_json
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Part, describe_block

OWN_CONTENT = "text:"
"""Begins the `encrypted_content` of results of this gateway. Only Anthropic's servers can read that of theirs."""
WEB_ERROR = "unavailable"
"""The error code of the API for a call that failed."""
# Characters of a title that is the beginning of a text.
_TITLE_CHARS = 100


def mcp_result_to_json(call: FunctionCall, output: FunctionCallOutput) -> dict[str, Any]:
    """Build the result of a call of a declared server, in text: the API has nothing else for it."""
    content = [{"type": "text", "text": _describe_part(part), "citations": None} for part in output.content]
    return {"type": "mcp_tool_result", "tool_use_id": call.call_id, "is_error": output.is_error, "content": content}


def web_result_to_json(call: FunctionCall, output: FunctionCallOutput) -> dict[str, Any]:
    """Build the result of a call of a web tool."""
    kind, text = f"{call.name}_tool_result", "\n".join(map(_describe_part, output.content))
    content: Any
    if output.is_error:
        content = {"type": f"{kind}_error", "error_code": WEB_ERROR}
    elif call.name == "web_search":
        content = _build_search_results(text)
    else:
        source = {"type": "text", "media_type": "text/plain", "data": text}
        content = {
            "type": "web_fetch_result",
            "url": find_text(parse_arguments(call.arguments), "url"),
            "content": {"type": "document", "source": source, "title": None, "citations": None},
            "retrieved_at": None,
        }
    return {"type": kind, "tool_use_id": call.call_id, "content": content}


def _build_search_results(text: str) -> list[dict[str, Any]]:
    """Return the results of a search: the objects with a URL of a list in it, or its URLs, or the whole text as one."""
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    listed = value.get("results") if isinstance(value, dict) else value
    found = [each for each in listed if _text_of(each, "url")] if isinstance(listed, list) else []
    entries: list[Mapping[str, Any]] = found or [{"url": url} for url in find_urls(text)]
    if not entries and text:
        entries = [{"title": text[:_TITLE_CHARS].partition("\n")[0]}]
    return [
        {
            "type": "web_search_result",
            "url": _text_of(entry, "url"),
            "title": _text_of(entry, "title") or _text_of(entry, "name") or _text_of(entry, "url"),
            "encrypted_content": OWN_CONTENT + (text if index == 0 else ""),
            "page_age": _text_of(entry, "page_age") or None,
        }
        for index, entry in enumerate(entries)
    ]


def _text_of(entry: Any, key: str) -> str:
    value = entry.get(key) if isinstance(entry, Mapping) else None
    return value if isinstance(value, str) else ""


def _describe_part(part: Part) -> str:
    return f"[file: {part.url}]" if isinstance(part, ImageLink | FileData) else describe_block(part)
