"""What a conversation is made of. Every door and every model dialect translates to and from these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from holodeck.lib.types import record
from holodeck.models.content import ContentBlock, TextContent

Role = Literal["system", "developer", "user", "assistant"]


@record
class ImageLink:
    """An image that a person sent: the address of it, or the whole of it as a `data:` URL."""

    url: str
    detail: Literal["auto", "low", "high", "original"] = "auto"
    type: Literal["image_link"] = "image_link"


@record
class FileData:
    """A file that a person sent: its bytes as a `data:` URL, or its address."""

    url: str
    filename: str | None = None
    type: Literal["file"] = "file"


Part = ContentBlock | ImageLink | FileData


@record
class Message:
    """Something that somebody said."""

    role: Role
    content: tuple[Part, ...]
    id: str = ""
    name: str = ""
    """Who of several with this role spoke. Dialects that have no names of speakers leave it out."""
    type: Literal["message"] = "message"

    @property
    def text(self) -> str:
        """The words of it, without pictures and files."""
        return "".join(part.text for part in self.content if isinstance(part, TextContent))


@record
class FunctionCall:
    """A tool call as the model wrote it: `arguments` is its text, which may not be JSON at all."""

    call_id: str
    name: str
    arguments: str
    id: str = ""
    type: Literal["function_call"] = "function_call"


@record
class FunctionCallOutput:
    """What a tool call came to, as the model is told."""

    call_id: str
    content: tuple[Part, ...]
    is_error: bool = False
    id: str = ""
    type: Literal["function_call_output"] = "function_call_output"


@record
class Reasoning:
    """What a model thought before it spoke. `opaque` is handed back to the same provider unchanged."""

    text: str = ""
    summary: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    type: Literal["reasoning"] = "reasoning"


Item = Message | FunctionCall | FunctionCallOutput | Reasoning


@record
class Usage:
    """Tokens, summed over the turns of a run."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


def place_outputs_after_calls(items: Sequence[Item]) -> tuple[Item, ...]:
    """The same items, with each output before what a person says after its call: models insist on that.

    They insist as well that of calls that were made together all have their outputs before anything else comes.
    Outputs that stand together are in the order of their calls.
    """
    outputs = {item.call_id: item for item in items if isinstance(item, FunctionCallOutput)}
    waiting: dict[str, FunctionCallOutput] = {}
    early: set[str] = set()
    order: dict[str, int] = {}
    placed: list[Item] = []
    together: list[FunctionCallOutput] = []
    for index, item in enumerate(items):
        if isinstance(item, FunctionCallOutput):
            waiting.pop(item.call_id, None)
            if item.call_id not in early:
                together.append(item)
            continue
        if waiting and (together or (isinstance(item, Message) and item.role != "assistant")):
            together += waiting.values()
            early |= waiting.keys()
            waiting.clear()
        if isinstance(item, FunctionCall):
            order[item.call_id] = index
            if item.call_id in outputs:
                waiting[item.call_id] = outputs[item.call_id]
        if together:
            placed += _sort_by_call(together, order)
            together = []
        placed.append(item)
    return (*placed, *_sort_by_call(together, order))


def _sort_by_call(outputs: list[FunctionCallOutput], order: Mapping[str, int]) -> list[FunctionCallOutput]:
    return sorted(outputs, key=lambda output: order.get(output.call_id, -1))


def output_id(call: FunctionCall) -> str:
    """The id of a call's output: the same for the same call, also when its result is only remembered.

    Empty for a call without an id.
    """
    stem = call.id.partition("_")[2]
    return f"out_{stem}" if stem else ""


def text_message(role: Role, text: str) -> Message:
    """A message of plain text."""
    return Message(role=role, content=(TextContent(text=text),))
