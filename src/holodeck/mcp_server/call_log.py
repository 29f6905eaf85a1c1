"""The record of each call that a client makes: a line of the log, a count, and the entries of an audit log.

`CallLog.open` gives the record of one call. What happens to the call is told to that record: it is refused, or it is
started and then finishes or fails. Reading a resource is recorded as a call, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.lib.ids import new_id
from holodeck.mcp_server.errors import build_failure
from holodeck.mcp_server.view import View
from holodeck.models.content import TextContent
from holodeck.tools.executor import (
    CANCELLED,
    INTERNAL_ERROR,
    CallRecorder,
    CallTarget,
    ToolCall,
    ToolResult,
)
from holodeck.tools.mcp.content import blocks_of
from holodeck.tools.mcp.executor import describe_failure

OnCall = Callable[[View, str, str, str, float], None]
"""Called at the end of a call with the view of its client, its server, its tool, its outcome and its seconds."""
BuildRecorder = Callable[[View], CallRecorder | None]
"""Builds what records the calls of a request for its operator; None where calls are not recorded."""


class CallEntry:
    """The record of one call."""

    def __init__(self, target: CallTarget, arguments: Mapping[str, Any], recorder: CallRecorder | None) -> None:
        self.outcome = "cancelled"
        self.error: MCPError | None = None
        self._target = target
        self._recorder = recorder
        self._call = ToolCall(call_id=new_id("call"), name=target.tool, arguments=arguments)
        self._started_at: float | None = None

    async def refuse(self, reason: str, code: str) -> dict[str, Any]:
        """Record that the call is not run, and return its result."""
        self.outcome = "refused"
        if self._recorder is not None:
            await self._recorder.record_refusal(self._call, self._target, code)
        return build_failure(reason)

    async def start(self, *, is_approved: bool) -> str | None:
        """Record that the call is run now. Returns the reason if it must not be, because that cannot be recorded."""
        self._started_at = time.monotonic()
        if self._recorder is None:
            return None
        call = self._call
        self._call = ToolCall(call_id=call.call_id, name=call.name, arguments=call.arguments, is_approved=is_approved)
        reason = await self._recorder.record_call(self._call, self._target)
        if reason is not None:
            self.outcome = "refused"
        return reason

    async def finish(self, result: Mapping[str, Any]) -> None:
        """Record the answer of the tool."""
        is_error = result.get("isError") is True
        self.outcome = "tool_error" if is_error else "ok"
        if self._recorder is not None:
            blocks, _ = blocks_of(result.get("content"))
            failure = {"error_kind": "tool"} if is_error else {}
            await self._record_result(tuple(blocks), failure, is_error=is_error)

    async def fail(self, error: MCPError) -> None:
        """Record that the call has failed at the server, or on the way."""
        self.outcome, self.error = "failed", error
        if self._recorder is not None:
            await self._record_result((TextContent(text=str(error)),), describe_failure(error), is_error=True)

    def interrupt(self, code: str) -> None:
        """Record that a call that was started has no result. Does not wait."""
        if self._recorder is not None and self._started_at is not None:
            self._recorder.record_interruption(self._call, self._target, code, self._seconds)

    @property
    def _seconds(self) -> float:
        return 0.0 if self._started_at is None else time.monotonic() - self._started_at

    async def _record_result(self, content: tuple[Any, ...], metadata: Mapping[str, Any], *, is_error: bool) -> None:
        assert self._recorder is not None  # noqa: S101 - the callers have checked it
        result = ToolResult(call_id=self._call.call_id, content=content, is_error=is_error, metadata=metadata)
        await self._recorder.record_result(self._call, self._target, result, self._seconds)


class CallLog:
    """Records the calls of all clients."""

    def __init__(self, on_call: OnCall | None = None, build_recorder: BuildRecorder | None = None) -> None:
        self._on_call = on_call
        self._build_recorder = build_recorder

    @asynccontextmanager
    async def open(self, view: View, server: str, tool: str, arguments: Mapping[str, Any]) -> AsyncIterator[CallEntry]:
        """Record the call that is made in the `async with` block."""
        recorder = None if self._build_recorder is None else self._build_recorder(view)
        entry, began = CallEntry(CallTarget(server=server, tool=tool), arguments, recorder), time.perf_counter()
        try:
            yield entry
        except asyncio.CancelledError:
            entry.interrupt(CANCELLED)
            raise
        except MCPError:
            raise
        except Exception:
            entry.interrupt(INTERNAL_ERROR)
            raise
        finally:
            self._log_end(view, server, tool, entry, time.perf_counter() - began)

    def _log_end(self, view: View, server: str, tool: str, entry: CallEntry, seconds: float) -> None:
        about = {} if entry.error is None else {"error": entry.error}
        write = log.info if entry.outcome in ("ok", "tool_error") else log.warning
        write(
            "mcp_server.call",
            caller=view.caller_id,
            server=server,
            tool=tool,
            outcome=entry.outcome,
            seconds=round(seconds, 4),
            **about,
        )
        if self._on_call is not None:
            self._on_call(view, server, tool, entry.outcome, seconds)
