"""The record of each call of a tool: a line of the log, and what an observer does with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.mcp_server.errors import build_failure

OnCall = Callable[[str, str, str, float], None]
"""Called at the end of a call with its server, its tool, its outcome and its seconds."""


class CallEntry:
    """One call. Its outcome is `cancelled` until another one is set."""

    def __init__(self) -> None:
        self.outcome = "cancelled"
        self.error: MCPError | None = None

    def refuse(self, reason: str) -> dict[str, Any]:
        """Record that the call was not run, and return its result."""
        self.outcome = "refused"
        return build_failure(reason)

    def fail(self, error: MCPError) -> None:
        """Record that the call has failed at the server, or on the way."""
        self.outcome, self.error = "failed", error

    def finish(self, *, is_error: bool) -> None:
        """Record that the tool has answered."""
        self.outcome = "tool_error" if is_error else "ok"


class CallLog:
    """Records the calls of all clients."""

    def __init__(self, on_call: OnCall | None = None) -> None:
        self._on_call = on_call

    @contextmanager
    def open(self, caller_id: str, server: str, tool: str, arguments: Mapping[str, Any]) -> Iterator[CallEntry]:
        """Record the call that is made in the `with` block."""
        entry, began = CallEntry(), time.perf_counter()
        try:
            yield entry
        finally:
            seconds = time.perf_counter() - began
            about = {} if entry.error is None else {"error": entry.error}
            write = log.info if entry.outcome in ("ok", "tool_error") else log.warning
            write(
                "mcp_server.call",
                caller=caller_id,
                server=server,
                tool=tool,
                outcome=entry.outcome,
                seconds=round(seconds, 4),
                **about,
            )
            if self._on_call is not None:
                self._on_call(server, tool, entry.outcome, seconds)
