"""Actions of the server in reply to a message, as values: `protocol` decides on them, `action_runner` performs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
"""A JSON-RPC message, which may be invalid on purpose."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the request."""

    message: Message


@dataclass(frozen=True, slots=True)
class Notify:
    """A notification that belongs to the request: progress, a log line, an acknowledgement."""

    message: Message


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes in place of a message. `ended`: whether the line, frame or event is complete."""

    data: bytes
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Push:
    """A notification to all listening streams, `times` times."""

    method: str
    times: int = 1
    uri: str | None = None
    """The resource that it is about: only streams that are subscribed to the resource get it."""
    params: Message | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the client (legacy era); `then` returns the actions that follow its answer."""

    message: Message
    then: Callable[[Message], Sequence[Action]]


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause, which `Release` ends early."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Release:
    """Ends every pause that is under way."""


@dataclass(frozen=True, slots=True)
class Stay:
    """No further action; the request stays open."""


@dataclass(frozen=True, slots=True)
class Stderr:
    """Writes this many bytes to stderr."""

    size: int


@dataclass(frozen=True, slots=True)
class Die:
    """Ends the process with this exit code; over a network, the connection."""

    code: int = 1
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Listen:
    """Subscribes the stream of this request to pushed notifications, marked with its id (modern era)."""

    subscription: int | str
    wanted: frozenset[str]
    resources: frozenset[str] = frozenset()
    """URIs of the resources whose updates are pushed as well."""


Action: TypeAlias = Reply | Notify | Raw | Push | Ask | Wait | Release | Stay | Stderr | Die | Listen


def encode(message: Message) -> bytes:
    """Return the message as one line of ASCII, without a line end."""
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def build_notification(method: str, **params: Any) -> Message:
    """Return a notification; without parameters the key `params` is omitted, as servers do."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return message
