"""What a route answers: a whole body, or a stream of pieces. The HTTP layer only writes it down."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import field
from typing import Any

import orjson

from holodeck.lib.types import record

JSON = "application/json"
EVENTS = "text/event-stream"


@record
class Reply:
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@record
class StreamedReply:
    """An answer in pieces, each written at once. Closing the iterator tells the source that nobody reads any more."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str = EVENTS
    headers: Mapping[str, str] = field(default_factory=dict)


def missing_servers_header(names: Iterable[str]) -> dict[str, str]:
    """The header that names the MCP servers without which an answer was made; none where all were there."""
    shown = ",".join(names)
    return {"x-holodeck-missing-servers": shown} if shown else {}


class StreamCutError(Exception):
    """A stream ends here although it is not over. Its connection is cut: every client tells that from an end."""


def json_reply(data: Any, status: int = 200, **headers: str) -> Reply:
    """An answer of plain data."""
    return Reply(status=status, body=orjson.dumps(data), headers={k.replace("_", "-"): v for k, v in headers.items()})
