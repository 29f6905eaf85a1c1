"""Where a conversation stands: what was asked last, and what has been called and answered since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenRequest:
    """The part of a conversation that is still to be answered."""

    text: str
    """What the person said last."""
    previous_text: str
    """What the person said before that."""
    question: str
    """What the assistant said in between."""
    calls: tuple[FunctionCall, ...]
    results: tuple[tuple[FunctionCall, FunctionCallOutput], ...]


def read_open_request(items: Sequence[Item]) -> OpenRequest:
    """The last request with its calls and their answers, paired by id."""
    spoken = [at for at, item in enumerate(items) if isinstance(item, Message) and item.role == "user"]
    last = spoken[-1] if spoken else -1
    previous = spoken[-2] if len(spoken) > 1 else -1
    since = items[last + 1 :]
    calls = tuple(item for item in since if isinstance(item, FunctionCall))
    outputs = {item.call_id: item for item in since if isinstance(item, FunctionCallOutput)}
    return OpenRequest(
        text=_text_at(items, last),
        previous_text=_text_at(items, previous),
        question="".join(item.text for item in items[previous + 1 : last] if isinstance(item, Message))
        if spoken
        else "",
        calls=calls,
        results=tuple((call, outputs[call.call_id]) for call in calls if call.call_id in outputs),
    )


def count_words(items: Sequence[Item], instructions: str | None) -> int:
    """How much was read, in words: there are no tokens here."""
    texts = [instructions or ""]
    for item in items:
        match item:
            case Message(content=parts) | FunctionCallOutput(content=parts):
                texts += [part.text for part in parts if isinstance(part, TextContent)]
            case FunctionCall(arguments=arguments):
                texts.append(arguments)
            case _:
                texts.append(item.text)
    return sum(len(text.split()) for text in texts)


def _text_at(items: Sequence[Item], at: int) -> str:
    item = items[at] if at >= 0 else None
    return item.text if isinstance(item, Message) else ""
