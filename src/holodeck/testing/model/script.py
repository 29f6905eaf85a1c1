"""Steps of a scripted model: `say("hi")`, `call("add", a=1)`, and the ways to fail. A turn is a list of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import orjson

from holodeck.lib.errors import ModelError
from holodeck.lib.record import record
from holodeck.models.items import Usage
from holodeck.models.model_io import FinishReason, Logprob, ModelEvent


@record
class Say:
    """Text of the answer."""

    text: str
    logprobs: tuple[Logprob, ...] = ()
    """Its tokens: each is a delta of its own."""


@record
class Call:
    """A tool call. Without an id, it has the next of `call_1`, `call_2`, ..."""

    name: str
    arguments: str
    call_id: str = ""


@record
class Think:
    """Reasoning text, and the opaque data that a client must send back unchanged."""

    text: str
    opaque: Mapping[str, Any] = field(default_factory=dict)


@record
class Finish:
    """The finish reason of the turn, instead of the one that its steps imply."""

    reason: FinishReason


@record
class Spend:
    """The token usage of the turn."""

    usage: Usage


@record
class Tier:
    """The service tier that the provider reports for the turn."""

    name: str


@record
class Fail:
    """The turn fails here. As the first step over HTTP: a response with the status of the error."""

    error: ModelError


@record
class Wait:
    """A pause until `until` is set. `reached` is set when the model waits."""

    until: asyncio.Event
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@record
class Raw:
    """Exactly these events: model events in process; over HTTP, objects (one event each) or unchanged bytes."""

    events: tuple[ModelEvent | dict[str, Any] | bytes, ...]


@record
class Status:
    """An HTTP response instead of a stream (HTTP only). Must be the first step."""

    code: int
    body: bytes
    headers: Mapping[str, str]


@record
class Cut:
    """The stream ends here: the connection is closed, or, if `clean`, the body ends normally (HTTP only)."""

    clean: bool


@record
class ErrorEvent:
    """An error in the middle of the stream, as the dialect writes it (HTTP only)."""

    message: str
    code: str


Step = Say | Call | Think | Finish | Spend | Tier | Fail | Wait | Raw | Status | Cut | ErrorEvent
Turn = Step | Sequence[Step]


def say(text: str) -> Step:
    """Answer with this text."""
    return Say(text=text)


def say_tokens(*logprobs: Logprob) -> Step:
    """Answer with these tokens and their log probabilities."""
    return Say(text="".join(each.token for each in logprobs), logprobs=logprobs)


def call(name: str, /, **arguments: Any) -> Step:
    """Call a tool."""
    return Call(name=name, arguments=orjson.dumps(arguments).decode())


def call_raw(name: str, arguments: str, *, call_id: str = "") -> Step:
    """Call a tool with arguments that are exactly this text, which may be no JSON."""
    return Call(name=name, arguments=arguments, call_id=call_id)


def think(text: str, **opaque: Any) -> Step:
    """Send reasoning text; `opaque` are fields that must be sent back unchanged."""
    return Think(text=text, opaque=opaque)


def finish(reason: FinishReason) -> Step:
    """End the turn for this reason."""
    return Finish(reason=reason)


def spend(input_tokens: int, output_tokens: int, *, cached: int = 0, reasoning: int = 0, cache_write: int = 0) -> Step:
    """Report this token usage for the turn."""
    usage = Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
        cache_write_tokens=cache_write,
    )
    return Spend(usage=usage)


def tier(name: str) -> Step:
    """Report this service tier for the turn."""
    return Tier(name=name)


def fail(error: ModelError | str) -> Step:
    """Fail with this error."""
    return Fail(error=ModelError(error) if isinstance(error, str) else error)


def wait(until: asyncio.Event) -> Wait:
    """Pause until the event is set."""
    return Wait(until=until)


def raw(*events: ModelEvent | dict[str, Any] | bytes) -> Step:
    """Send exactly these events."""
    return Raw(events=events)


def status(code: int, body: Any = None, *, retry_after: str | None = None, **headers: str) -> Step:
    """Answer with an HTTP status; `body` is bytes, or a value that is encoded as JSON."""
    if body is None:
        body = {"error": {"message": f"scripted status {code}", "type": "scripted"}}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if retry_after is not None:
        sent["retry-after"] = retry_after
    return Status(code=code, body=body if isinstance(body, bytes) else orjson.dumps(body), headers=sent)


def page(code: int = 200) -> Step:
    """Answer with an HTML page, as a proxy or a wrong path does."""
    body = b"<!DOCTYPE html><title>Welcome</title><p>It works!"
    return Status(code=code, body=body, headers={"content-type": "text/html"})


def cut(*, clean: bool = False) -> Step:
    """End the stream before the answer is complete."""
    return Cut(clean=clean)


def error_event(message: str, code: str = "server_error") -> Step:
    """Report an error in the middle of the stream."""
    return ErrorEvent(message=message, code=code)


def steps_of(turn: Turn) -> list[Step]:
    """Return the steps of a turn, which may be a single step. Raises `TypeError` for a plain text."""
    if isinstance(turn, str):
        raise TypeError(f"{turn!r} is no turn of a script: write say({turn!r}).")
    return list(turn) if isinstance(turn, Sequence) else [turn]


def split_say(step: Say, size: int | None) -> list[Say]:
    """Split a text into its deltas: one for each token, or else parts of `size` characters."""
    if step.logprobs:
        return [Say(text=each.token, logprobs=(each,)) for each in step.logprobs]
    return [Say(text=part) for part in split_text(step.text, size)]


def split_text(text: str, size: int | None) -> list[str]:
    """Split a text into parts of `size` characters; None: one part. Never empty."""
    if not size:
        return [text]
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]
