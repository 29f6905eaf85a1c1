"""The lists of the faulty server, without I/O: resources, templates and completions, and faulty lists of tools.

Lists of tools are too long, endless or partly invalid, or have output schemas that cannot be checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holodeck.testing.mcp.actions import Message
from holodeck.testing.mcp.faults import MANY_TOOLS, PAGES, REF_DOUBLINGS, TOOLS_PER_PAGE, VERY_MANY_TOOLS, Fault
from holodeck.testing.mcp.tools import BLOB, RESOURCE_BLOB, RESOURCE_TEXT, tool_entry

Page = Callable[[list[Message], str | None], Message]
"""Builds one page from the normal tools and the requested cursor."""

REMOTE_SCHEMA_URL = "http://127.0.0.1:9/schema.json"
"""Where `remote-ref` points over stdio; nothing listens there. A network server refers to itself, to record a fetch."""
RESOURCE_NOT_FOUND = -32002
"""The error code of the legacy era for a resource that is not there; the modern one has INVALID_PARAMS."""
_PAGES = "test://pages/"
_TEMPLATE = {
    "uriTemplate": f"{_PAGES}{{topic}}/{{page}}",
    "name": "pages",
    "description": "One page about a topic.",
    "mimeType": "text/plain",
}
_PAGES_BY_TOPIC = {"people": ["1", "2"], "plans": ["1", "2", "3"], "plants": ["1"]}
_CODES = ["f()", "fib()", "g()"]


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


class ResourceStore:
    """The resources of the server: entries of its list, and contents by URI. All sessions share it."""

    def __init__(self) -> None:
        self.contents: dict[str, list[Message]] = {
            "test://notes.txt": [RESOURCE_TEXT["resource"]],
            "test://data.bin": [RESOURCE_BLOB["resource"]],
            # The file that a tool links to: its bytes and a long text.
            "test://far.pdf": [
                {"uri": "test://far.pdf", "mimeType": "application/pdf", "blob": BLOB},
                {"uri": "test://far.pdf#text", "mimeType": "text/plain", "text": "far away\n" * 10_000},
            ],
        }
        self.entries: dict[str, Message] = {
            "test://notes.txt": {
                "name": "notes.txt",
                "description": "Some notes.",
                "mimeType": "text/plain",
                "size": 5,
            },
            "test://data.bin": {"name": "data.bin", "mimeType": "application/octet-stream", "size": 6},
            "test://far.pdf": {"name": "far.pdf", "mimeType": "application/pdf"},
        }

    def put(self, uri: str, content: Message, entry: Message) -> bool:
        """Add or replace a resource. Returns whether it is new."""
        is_new = uri not in self.entries
        self.contents[uri] = [{"uri": uri, **content}]
        self.entries[uri] = {"name": uri.rpartition("/")[2] or uri, **self.entries.get(uri, {}), **entry}
        return is_new

    def remove(self, uri: str) -> None:
        """Remove a resource from the list, and its contents."""
        del self.entries[uri], self.contents[uri]

    def list_entries(self) -> list[Message]:
        """Return the resources as entries of a list."""
        return [{"uri": uri, **entry} for uri, entry in self.entries.items()]

    def list_templates(self) -> list[Message]:
        """Return the resource templates as entries of a list."""
        return [_TEMPLATE]

    def find_contents(self, uri: str) -> list[Message] | None:
        """Return the contents of a resource, or of a URI that a template has; None if there is none."""
        topic, _, page = uri.removeprefix(_PAGES).partition("/")
        if uri.startswith(_PAGES) and page in _PAGES_BY_TOPIC.get(topic, []):
            return [{"uri": uri, "mimeType": "text/plain", "text": f"{topic}, page {page}"}]
        return self.contents.get(uri)


def complete(params: Message) -> Message:
    """Return the completion of an argument of the prompt `review`, or of a variable of the template."""
    reference, argument = params.get("ref") or {}, params.get("argument") or {}
    known: dict[str, Any] = (params.get("context") or {}).get("arguments") or {}
    values: list[str] = []
    if reference == {"type": "ref/prompt", "name": "review"}:
        values = _CODES
    elif reference == {"type": "ref/resource", "uri": _TEMPLATE["uriTemplate"]}:
        is_topic = argument.get("name") == "topic"
        values = list(_PAGES_BY_TOPIC) if is_topic else _PAGES_BY_TOPIC.get(str(known.get("topic")), [])
    found = [value for value in values if value.startswith(str(argument.get("value", "")))]
    return {"completion": {"values": found, "total": len(found), "hasMore": False}}
