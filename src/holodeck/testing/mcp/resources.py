"""The resources, resource templates and completions of the server, without I/O."""

from __future__ import annotations

from typing import Any

from holodeck.testing.mcp.actions import Message
from holodeck.testing.mcp.tools import BLOB, RESOURCE_BLOB, RESOURCE_TEXT

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
