"""The tools and prompts that the server offers when it behaves, one for every kind of answer a client must know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holodeck.testing.mcp.actions import Message
from holodeck.testing.mcp.faults import Era

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
SERVER_INFO = {"name": "faulty", "version": "1.0"}
INSTRUCTIONS = "A server for tests. It may misbehave."

_NUMBER = {"type": "number"}
_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_BOOLEAN = {"type": "boolean"}


def tool_entry(
    name: str, description: str, properties: Message | None = None, required: tuple[str, ...] = ()
) -> Message:
    """Return a tool as it stands in a list."""
    schema: Message = {"type": "object", "properties": properties or {}}
    if required:
        schema["required"] = list(required)
    return {"name": name, "description": description, "inputSchema": schema}


def _structured_tool() -> Message:
    made = tool_entry("structured", "A total as structured content, with or without text.", {"text": _BOOLEAN})
    made["outputSchema"] = {"type": "object", "properties": {"total": _INTEGER}, "required": ["total"]}
    return made


def _regional_tool() -> Message:
    region = {"type": "string", "x-mcp-header": "Region"}
    return tool_entry("regional", "Says the region, which is also a header.", {"region": region, "text": _STRING})


_ANYWAY = {"anyway": _BOOLEAN}
_TOOLS = (
    tool_entry("add", "Adds two numbers.", {"a": _NUMBER, "b": _NUMBER}, ("a", "b")),
    tool_entry("echo", "Says the text again.", {"text": _STRING}, ("text",)),
    tool_entry("slow", "Answers after some seconds, or when released.", {"seconds": _NUMBER, "steps": _INTEGER}),
    tool_entry("release", "Ends every slow call at once."),
    tool_entry("image", "A picture of one pixel."),
    tool_entry("audio", "A sound of no length."),
    tool_entry("resource_text", "An embedded text resource."),
    tool_entry("resource_blob", "An embedded binary resource."),
    tool_entry("resource_link", "A link to a resource."),
    tool_entry("many_blocks", "One block of every kind."),
    _structured_tool(),
    tool_entry("big", "A text of some number of bytes.", {"bytes": _INTEGER}, ("bytes",)),
    tool_entry("fail", "Fails, and says so in its result.", {"message": _STRING}),
    tool_entry("protocol_error", "Answers with a JSON-RPC error.", {"code": _INTEGER}),
    tool_entry("log", "Sends a log message at a level.", {"level": _STRING, "text": _STRING}),
    tool_entry("ask_sampling", "Asks the client's model.", _ANYWAY),
    tool_entry("ask_elicitation", "Asks the person at the client.", _ANYWAY),
    tool_entry("ask_roots", "Asks for the client's roots.", _ANYWAY),
    tool_entry("grow", "Adds a tool and tells the client."),
    tool_entry("weird.name/x y", "Has a name with special characters.", {"text": _STRING}),
)

_REVIEW = {
    "name": "review",
    "description": "Asks for a review of some code.",
    "arguments": [{"name": "code", "description": "What to review.", "required": True}],
}
_GREET = {"name": "greet", "description": "Says hello."}


def list_tool_entries(era: Era, added_tools: Sequence[str] = ()) -> list[Message]:
    """Return the tools of an era, and those that the tool `grow` has added so far."""
    own = [*_TOOLS, _regional_tool()] if era == "modern" else [*_TOOLS]
    return own + [tool_entry(name, "Was added while the server ran.") for name in added_tools]


def list_prompt_entries() -> list[Message]:
    """Return the prompts as they stand in a list."""
    return [_REVIEW, _GREET]


def prompt_text(name: str, arguments: dict[str, Any]) -> str | None:
    """Return the text of a prompt, or nothing where the prompt or its argument is missing."""
    if name == "greet":
        return "Say hello to the user."
    if name == "review" and isinstance(arguments.get("code"), str):
        return f"Review this code:\n{arguments['code']}"
    return None


def server_capabilities() -> Message:
    """Return what the server says it can do."""
    return {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "logging": {}}
