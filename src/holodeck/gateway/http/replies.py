"""Replies of route handlers: a whole body, or a stream of chunks. `app.py` writes them to the connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import orjson

from holodeck.lib.errors import BUDGET_EXCEEDED
from holodeck.lib.record import record
from holodeck.models.events import RunResult

if TYPE_CHECKING:
    from holodeck.gateway.http.errors import APIError

JSON = "application/json"
EVENTS = "text/event-stream"
HTML = "text/html; charset=utf-8"
# An empty comment of server-sent events. No empty line follows: older parsers, as openai-go's, take that for an event.
KEEPALIVE_COMMENT = b":\n"


@record
class Reply:
    """A reply with a whole body."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    """The caller whose content it shows, for the audit log. None: that of several callers, or of none."""


HEALTHY = Reply(body=b'{"status":"ok"}')
"""Of `/healthz`: the event loop turns."""


async def _hold_nothing() -> None:
    """Do nothing, the default of `StreamedReply.on_close`."""


@record
class StreamedReply:
    """A reply of status 200 in chunks, each sent as soon as it is yielded.

    The application owns it once a handler has returned it, and calls `aclose` in any case.
    """

    chunks: AsyncGenerator[bytes, None]
    content_type: str = EVENTS
    headers: Mapping[str, str] = field(default_factory=dict)
    on_close: Callable[[], Awaitable[None]] = _hold_nothing
    """Releases what the reply holds. A `finally` of `chunks` cannot: it does not run if no chunk was ever asked for."""

    keepalive: bytes = KEEPALIVE_COMMENT
    """Sent while there is no chunk to send."""
    encode_error: Callable[[APIError], bytes] | None = None
    """Encodes the last bytes of a stream that the application has to end. None: the connection is cut instead."""

    async def aclose(self) -> None:
        """End the run behind the chunks, whether it has started or not."""
        try:
            await self.chunks.aclose()
        finally:
            await self.on_close()


class StreamCutError(Exception):
    """Raised by `StreamedReply.chunks` to end the reply before the stream is complete.

    The connection is cut, which every client can tell from a proper end.
    """


def json_reply(data: Any, status: int = 200, *, owner: str | None = None, **headers: str) -> Reply:
    """Build a reply of JSON. `headers`: with `_` for `-` in their names."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=orjson.dumps(data), headers=named, owner=owner)


def retry_header(result: RunResult) -> dict[str, str]:
    """Return the header that stops clients from repeating a request whose run spent the caller's budget; or none."""
    return {"x-should-retry": "false"} if result.cause == BUDGET_EXCEEDED else {}


def cost_header(cost: float) -> dict[str, str]:
    """Return the header with the cost of a run, in the currency of the prices."""
    return {"x-holodeck-cost": f"{cost:.6f}"}


def compaction_header(*, is_truncated: bool) -> dict[str, str]:
    """Return the header of a reply whose context was made smaller without a summary; empty for all others."""
    return {"x-holodeck-compaction": "truncated"} if is_truncated else {}


def missing_servers_header(names: Iterable[str]) -> dict[str, str]:
    """Return the header that names the MCP servers that were not available to a run; empty where all of them were."""
    joined = ",".join(names)
    return {"x-holodeck-missing-servers": joined} if joined else {}
