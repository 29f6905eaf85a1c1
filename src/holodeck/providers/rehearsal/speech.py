"""What the rehearsal model says. Every sentence is labelled, so that nobody takes it for a language model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_NAMED_TOOLS, MAX_REPORTED_CHARS, MAX_SHOWN_CHARS
from holodeck.models.content import AudioContent, BinaryContent, ImageContent, TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Part
from holodeck.models.model_io import ToolSpec

LABEL = "[rehearsal]"
_ASKS = re.compile(r"I would call `(?P<tool>[^`]+)`")


def ask_for_missing(tool: ToolSpec, missing: Sequence[str]) -> str:
    """Names the tool and what it still needs."""
    names = ", ".join(f"`{name}`" for name in missing)
    return f"I would call `{tool.name}`, but your request does not say {names}. What should it be?"


def find_asked_tool(text: str) -> str | None:
    """The tool that an earlier answer of ours asked about."""
    match = _ASKS.search(text) if text.startswith(LABEL) else None
    return match["tool"] if match else None


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """No tool fits: what there is."""
    if not tools:
        return (
            "I only rehearse tool calls by fixed rules, and no tools are on offer here. Configure a model for answers."
        )
    shown = [f"- `{tool.name}`: {one_line(tool.description, MAX_SHOWN_CHARS)}" for tool in tools[:MAX_NAMED_TOOLS]]
    more = len(tools) - len(shown)
    rest = [f"... and {more} more."] if more > 0 else []
    return "\n".join(["I follow fixed rules, and none of the tools fits your request. I can call:", *shown, *rest])


def describe_withheld_call(tool: ToolSpec) -> str:
    """Tools are switched off for this turn."""
    return f"I would call `{tool.name}`, but this request does not allow tool calls."


def report_results(results: Sequence[tuple[FunctionCall, FunctionCallOutput]]) -> str:
    """What the tools answered, in their words."""
    share = MAX_REPORTED_CHARS // max(len(results), 1)
    return "\n".join(_report_result(call, output, share) for call, output in results)


def _report_result(call: FunctionCall, output: FunctionCallOutput, limit: int) -> str:
    said = clip("\n".join(map(_describe_part, output.content)).strip(), limit)
    if output.is_error:
        return f"`{call.name}` failed: {said or 'it gave no reason.'} I did not try again."
    if not said:
        return f"`{call.name}` answered with nothing."
    return f"`{call.name}` answered:{chr(10) if chr(10) in said else ' '}{said}"


def clip(text: str, limit: int) -> str:
    """The text, cut at a word with a note of what is left out."""
    if len(text) <= limit:
        return text
    cut = text[:limit].rsplit(None, 1)[0]
    return f"{cut} ... ({len(text) - len(cut)} more characters)"


def _describe_part(part: Part) -> str:
    match part:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind) | AudioContent(mime_type=kind):
            return f"({'an image' if part.type == 'image' else 'a sound'}, {kind})"
        case BinaryContent(is_link=True, uri=uri, name=name):
            return f"(a link: {name or uri})"
        case BinaryContent(data=data, mime_type=kind):
            return f"({len(data)} bytes of {kind or 'data'})"
        case _:
            return f"({part.type.replace('_', ' ')})"
