"""Tools that a client's tool search has found during a conversation. They are offered to the model from then on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.tools import TOOL_SEARCH, ClientToolAlias, read_found_tools
from holodeck.lib.json.parse import parse_json
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.models.model_io import ToolSpec


def add_found_tools(request: ResponseRequest, items: Iterable[Item]) -> ResponseRequest:
    """Return the request with the found tools added, if it has a tool search. `items`: the whole conversation."""
    if TOOL_SEARCH not in request.tools.aliases:
        return request
    known = {spec.name for spec in request.tools.functions}
    found: list[ToolSpec] = []
    aliases: dict[str, ClientToolAlias] = {}
    searches: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall) and item.name == TOOL_SEARCH:
            searches.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id in searches:
            found += read_found_tools(_parse_search_output(item).get("tools"), "input.tools.tools", aliases)
    new = {spec.name: spec for spec in found if spec.name not in known}
    if not new:
        return request
    functions = (*request.tools.functions, *new.values())
    tools = replace(request.tools, functions=functions, aliases={**aliases, **request.tools.aliases})
    return replace(request, tools=tools)


def _parse_search_output(output: FunctionCallOutput) -> dict[str, Any]:
    # The output is the text that the model has read.
    try:
        found = parse_json("".join(part.text for part in output.content if isinstance(part, TextContent)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
