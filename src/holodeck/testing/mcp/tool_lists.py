"""Faulty lists of tools: too long, endless or partly invalid, or with output schemas that cannot be checked."""

from __future__ import annotations

from collections.abc import Callable

from holodeck.testing.mcp.actions import Message
from holodeck.testing.mcp.faults import MANY_TOOLS, PAGES, REF_DOUBLINGS, TOOLS_PER_PAGE, VERY_MANY_TOOLS, Fault
from holodeck.testing.mcp.tools import tool_entry

Page = Callable[[list[Message], str | None], Message]
"""Builds one page from the normal tools and the requested cursor."""

REMOTE_SCHEMA_URL = "http://127.0.0.1:9/schema.json"
"""Where `remote-ref` points over stdio; nothing listens there. A network server refers to itself, to record a fetch."""


def _paged_list(count: int, size: int) -> Page:
    def page(tools: list[Message], cursor: str | None) -> Message:
        first = int(cursor or 0)
        last = min(first + size, count)
        page_tools = [
            (
                tools[number]
                if number < len(tools)
                else tool_entry(f"tool_{number}", "One of many.", {"n": {"type": "integer"}})
            )
            for number in range(first, last)
        ]
        return {"tools": page_tools, "nextCursor": str(last)} if last < count else {"tools": page_tools}

    return page


def _looping_page(tools: list[Message], cursor: str | None) -> Message:
    return {"tools": tools if cursor is None else [], "nextCursor": "again"}


def _endless_page(tools: list[Message], cursor: str | None) -> Message:
    number = int(cursor or 0) + 1
    return {"tools": tools if cursor is None else [], "nextCursor": str(number)}


def _invalid_page(tools: list[Message], cursor: str | None) -> Message:
    bad: list[object] = [
        {"name": "no_schema", "description": "Has no input schema."},
        {"name": "schema_not_object", "inputSchema": {"type": "string"}},
        {"name": "schema_is_a_list", "inputSchema": []},
        {"description": "Has no name.", "inputSchema": {"type": "object"}},
        {"name": 7, "inputSchema": {"type": "object"}},
        {"name": "", "inputSchema": {"type": "object"}},
        "not a tool",
        None,
    ]
    return {"tools": [*bad[:4], *tools, *bad[4:]]}


def _duplicates_page(tools: list[Message], cursor: str | None) -> Message:
    return {"tools": [*tools, tool_entry("add", "Another tool of the same name.", {"x": {"type": "string"}})]}


def _bad_annotations_page(tools: list[Message], cursor: str | None) -> Message:
    def tool_with(name: str, *annotations: Message) -> Message:
        properties = {f"p{number}": annotation for number, annotation in enumerate(annotations)}
        return tool_entry(name, "Has a bad annotation.", properties)

    nested = {"type": "array", "items": {"type": "string", "x-mcp-header": "Deep"}}
    twice = {"type": "string", "x-mcp-header": "Same"}
    bad = [
        tool_with("header_empty", {"type": "string", "x-mcp-header": ""}),
        tool_with("header_no_token", {"type": "string", "x-mcp-header": "two words"}),
        tool_with("header_number", {"type": "number", "x-mcp-header": "Number"}),
        tool_with("header_twice", twice, {"type": "string", "x-mcp-header": "SAME"}),
        tool_with("header_nested", nested),
    ]
    return {"tools": [*tools, *bad]}


def doubling_schema() -> Message:
    """Return a schema whose check visits its last definition 2**40 times for any value."""
    definitions: Message = {"d0": {"not": {"type": "null"}}}
    for number in range(1, REF_DOUBLINGS + 1):
        below = {"$ref": f"#/$defs/d{number - 1}"}
        definitions[f"d{number}"] = {"allOf": [below, {"allOf": [below]}]}
    return {"type": "object", "$defs": definitions, "allOf": [{"$ref": f"#/$defs/d{REF_DOUBLINGS}"}]}


SCHEMAS: dict[Fault, Message] = {
    Fault.SLOW_SCHEMA_REGEX: {
        "type": "object",
        "properties": {"total": {"type": "string", "pattern": "^(a+)+(?=b)$"}},
    },
    Fault.SLOW_SCHEMA_REF: doubling_schema(),
    Fault.INVALID_SCHEMA: {"type": "object", "properties": {"total": {"type": "no such type", "minimum": "low"}}},
}
"""The output schema of the tool `structured` under each fault."""


def _with_schema(schema: Message) -> Page:
    def page(tools: list[Message], cursor: str | None) -> Message:
        return {"tools": [{**each, "outputSchema": schema} if each["name"] == "structured" else each for each in tools]}

    return page


def remote_schema_list(url: str) -> Page:
    """Return the list whose output schema refers to `url`."""
    return _with_schema({"type": "object", "$ref": url})


LISTS: dict[Fault, Page] = {
    Fault.LOOPING_CURSOR: _looping_page,
    Fault.ENDLESS_PAGES: _endless_page,
    Fault.THOUSAND_PAGES: _paged_list(PAGES, 1),
    Fault.THOUSAND_TOOLS: _paged_list(MANY_TOOLS, TOOLS_PER_PAGE),
    Fault.TEN_THOUSAND_TOOLS: _paged_list(VERY_MANY_TOOLS, TOOLS_PER_PAGE),
    Fault.INVALID_TOOL: _invalid_page,
    Fault.DUPLICATE_TOOLS: _duplicates_page,
    Fault.BAD_HEADER_ANNOTATION: _bad_annotations_page,
    **{fault: _with_schema(schema) for fault, schema in SCHEMAS.items()},
}
"""The pages of `tools/list` under each fault of lists."""
