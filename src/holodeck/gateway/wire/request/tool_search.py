"""Tools that a client has found for its model in the course of a conversation: from then on they are offered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.json_fields import JSONFields
from holodeck.gateway.wire.request.tools import TOOL_SEARCH, ClientToolAlias, read_found_tools
from holodeck.lib.json.parse import parse_json
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.models.model_io import ToolSpec


def add_found_tools(request: ResponseRequest, items: Iterable[Item]) -> ResponseRequest:
    """The request with what searches have found by now, if it has a search at all. `items`: the whole conversation."""
    if TOOL_SEARCH not in request.tools.aliases:
        return request
    known = {spec.name for spec in request.tools.functions}
    found: list[ToolSpec] = []
    guises: dict[str, ClientToolAlias] = {}
    searches: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall) and item.name == TOOL_SEARCH:
            searches.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id in searches:
            found += read_found_tools(JSONFields(_parse_search_output(item), "input.tools"), guises)
    new = {spec.name: spec for spec in found if spec.name not in known}
    if not new:
        return request
    functions = (*request.tools.functions, *new.values())
    tools = replace(request.tools, functions=functions, aliases={**guises, **request.tools.aliases})
    return replace(request, tools=tools)


def _parse_search_output(output: FunctionCallOutput) -> object:
    """What a search gave, which the model has read in the same words."""
    try:
        said = parse_json("".join(part.text for part in output.content if isinstance(part, TextContent)))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
