"""What a scripted model does in a turn, step by step: `say("hi")`, `call("add", a=1)`, and every way to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from holodeck.lib.errors import ModelError
from holodeck.models.items import Usage
from holodeck.models.model_io import FinishReason, ModelEvent


@dataclass(frozen=True, kw_only=True)
class Say:
    """Part of the answer."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call. Without an id it gets the next of `call_1`, `call_2`, ..."""

    name: str
    arguments: str
    call_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Think:
    """Thinking aloud, and what must be handed back unchanged with it."""

    text: str
    opaque: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Why the turn ends, when it is not the natural reason."""

    reason: FinishReason


@dataclass(frozen=True, kw_only=True)
class Spend:
    """What the turn costs."""

    usage: Usage


@dataclass(frozen=True, kw_only=True)
class Fail:
    """The turn fails here. Over HTTP: with the status of the error."""

    error: ModelError


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing more until the event is set. `reached` tells that the model waits."""

    until: asyncio.Event
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Exactly these: model events in process; over HTTP, objects (one event each), or bytes as they are."""

    events: tuple[ModelEvent | dict[str, Any] | bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Status:
    """An HTTP answer instead of a stream (HTTP only)."""

    code: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The stream ends here: the connection is dropped, or, when it is `clean`, just nothing follows (HTTP only)."""

    clean: bool


@dataclass(frozen=True, kw_only=True)
class ErrorEvent:
    """An error in the middle of the stream, as the dialect writes it (HTTP only)."""

    message: str
    code: str


Step = Say | Call | Think | Finish | Spend | Fail | Wait | Raw | Status | Cut | ErrorEvent
Turn = Step | Sequence[Step]


def say(text: str) -> Step:
    """Answer with this text."""
    return Say(text=text)


def call(name: str, /, **arguments: Any) -> Step:
    """Call a tool."""
    return Call(name=name, arguments=orjson.dumps(arguments).decode())


def call_raw(name: str, arguments: str, *, call_id: str = "") -> Step:
    """Call a tool with arguments that are exactly this text, which may be no JSON."""
    return Call(name=name, arguments=arguments, call_id=call_id)


def think(text: str, **opaque: Any) -> Step:
    """Think aloud."""
    return Think(text=text, opaque=opaque)


def finish(reason: FinishReason) -> Step:
    """End the turn for this reason."""
    return Finish(reason=reason)


def spend(input_tokens: int, output_tokens: int, *, cached: int = 0, reasoning: int = 0) -> Step:
    """Let the turn cost this much."""
    usage = Usage(
        input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached, reasoning_tokens=reasoning
    )
    return Spend(usage=usage)


def fail(error: ModelError | str) -> Step:
    """Fail with this error."""
    return Fail(error=ModelError(error) if isinstance(error, str) else error)


def wait(until: asyncio.Event) -> Wait:
    """Stall until the event is set."""
    return Wait(until=until)


def raw(*events: ModelEvent | dict[str, Any] | bytes) -> Step:
    """Send exactly this."""
    return Raw(events=events)


def status(code: int, body: Any = None, *, retry_after: str | None = None, **headers: str) -> Step:
    """Answer with an HTTP status; `body` is bytes, or something that becomes JSON."""
    if body is None:
        body = {"error": {"message": f"scripted status {code}", "type": "scripted"}}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if retry_after is not None:
        sent["retry-after"] = retry_after
    return Status(code=code, body=body if isinstance(body, bytes) else orjson.dumps(body), headers=sent)


def page(code: int = 200) -> Step:
    """Answer with a web page, as a proxy or a wrong path does."""
    body = b"<!DOCTYPE html><title>Welcome</title><p>It works!"
    return Status(code=code, body=body, headers={"content-type": "text/html"})


def cut(*, clean: bool = False) -> Step:
    """End the stream in the middle."""
    return Cut(clean=clean)


def error_event(message: str, code: str = "server_error") -> Step:
    """Report an error in the middle of the stream."""
    return ErrorEvent(message=message, code=code)


def steps_of(turn: Turn) -> list[Step]:
    """The steps of a turn that may be a single one."""
    return list(turn) if isinstance(turn, Sequence) else [turn]


def split_text(text: str, size: int | None) -> list[str]:
    """The text in pieces of this many characters."""
    if not size:
        return [text]
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]
