"""What the server does about one message, as plain values: the protocol decides, a transport performs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
"""A JSON-RPC message. Its values are whatever JSON holds, also where that is wrong."""


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
    """Bytes in place of a message. `ended` says whether the line, frame or event is finished."""

    data: bytes
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Push:
    """A notification to whoever listens, some number of times."""

    method: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the client (legacy); `then` says what follows its answer."""

    message: Message
    then: Callable[[Message], Sequence[Action]]


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause that ends early when the server is told to release its slow calls."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Release:
    """Ends every pause that is under way."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing more, and the request stays open."""


@dataclass(frozen=True, slots=True)
class Stderr:
    """This many bytes on stderr."""

    size: int


@dataclass(frozen=True, slots=True)
class Die:
    """The end of the process with this exit code, or of the connection where there is no process."""

    code: int = 1
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Listen:
    """From now on what is pushed also goes to this request's stream, with its id (modern)."""

    subscription: int | str
    wanted: frozenset[str]


Action: TypeAlias = Reply | Notify | Raw | Push | Ask | Wait | Release | Stay | Stderr | Die | Listen


def encode(message: Message) -> bytes:
    """Return the message in one line, in ASCII, without its line end."""
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def build_notification(method: str, **params: Any) -> Message:
    """Return a notification; without parameters the key is left out, as servers do."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return message
