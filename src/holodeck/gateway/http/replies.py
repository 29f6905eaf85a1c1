"""Replies of route handlers: a whole body, or a stream of chunks. `app.py` writes them to the connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import field
from typing import Any

import orjson

from holodeck.lib.record import record

JSON = "application/json"
EVENTS = "text/event-stream"


@record
class Reply:
    """A reply with a whole body."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@record
class StreamedReply:
    """A reply of status 200 in chunks, each sent as soon as it is yielded.

    `chunks` is closed when the client disconnects, so that the run behind it can end.
    """

    chunks: AsyncGenerator[bytes, None]
    content_type: str = EVENTS
    headers: Mapping[str, str] = field(default_factory=dict)


class StreamCutError(Exception):
    """Raised by `StreamedReply.chunks` to end the reply before the stream is complete.

    The connection is cut, which every client can tell from a proper end.
    """


def json_reply(data: Any, status: int = 200, **headers: str) -> Reply:
    """Build a reply of JSON. `headers`: with `_` for `-` in their names."""
    return Reply(status=status, body=orjson.dumps(data), headers={k.replace("_", "-"): v for k, v in headers.items()})


def missing_servers_header(names: Iterable[str]) -> dict[str, str]:
    """The header that names the MCP servers that were not available to a run; empty where all of them were."""
    joined = ",".join(names)
    return {"x-holodeck-missing-servers": joined} if joined else {}
