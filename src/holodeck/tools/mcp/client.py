"""The server entry that all others talk to: names to tools, calls to results, and never a silent second effect."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.errors import MCPConnectionError, MCPError, MCPProtocolError, MCPTimeoutError, MCPToolNotFoundError
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.connection.call_limit import CallLimit
from holodeck.tools.mcp.connection.connection import BuildSession, Connection
from holodeck.tools.mcp.connection.supervisor import StartLimits, Supervisor
from holodeck.tools.mcp.content import MCPToolResult
from holodeck.tools.mcp.discovery import MCPPromptInfo, MCPToolInfo, list_prompts, list_tools
from holodeck.tools.mcp.errors import OUTCOME_UNKNOWN, ErrorFactory
from holodeck.tools.mcp.names import normalize_tool_name
from holodeck.tools.mcp.output_validation import OutputChecker
from holodeck.tools.mcp.protocol.jsonrpc import HEADER_MISMATCH, Message
from holodeck.tools.mcp.protocol.request_tracing import request_traced
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.protocol.session import OnProgress
from holodeck.tools.mcp.results import CallRecord, ResultBuilder
from holodeck.tools.mcp.tool_cache import CachedList, ListChangeWatcher
from holodeck.tools.mcp.tool_patterns import is_allowed, is_idempotent
from holodeck.tools.mcp.transports.base import Delivery
from holodeck.tools.mcp.transports.http_headers import build_argument_headers

# A name that is not on the list is looked for again, but not more often than this.
LIST_RECHECK = 5.0


META_KEY = "holodeck/idempotency-key"
"""Where a server finds the key of a call in its `_meta`."""


class MCPClient:
    """One configured server. Calls may come from any task; a failure of a call is a result."""

    def __init__(
        self,
        tool: MCPTool,
        build_session: BuildSession,
        *,
        errors: ErrorFactory,
        callbacks: Callbacks,
        limits: StartLimits,
        call_limit: CallLimit | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        """`call_limit`: that of the others who call the same server. `budget`: for answers, until they are results."""
        self.budget = budget or ByteBudget()
        self._tool = tool
        self._errors = errors
        self._callbacks = callbacks
        self.call_limit = call_limit or CallLimit(tool.max_concurrent_calls)
        self._result_builder = ResultBuilder(tool, errors, OutputChecker())
        self._tools: CachedList[MCPToolInfo] = CachedList(
            tool.name, lambda session: list_tools(session, tool), lambda info: (info.name, info.model_name)
        )
        self._prompts: CachedList[MCPPromptInfo] = CachedList(
            tool.name,
            lambda session: list_prompts(session, tool),
            lambda info: (info.name, normalize_tool_name(info.name)),
        )
        self._list_watcher = ListChangeWatcher(
            {"tools": self._tools, "prompts": self._prompts},
            {"tools": callbacks.on_tools_changed, "prompts": callbacks.on_prompts_changed},
            server=tool.name,
        )
        self.supervisor = Supervisor(
            tool,
            build_session,
            errors=errors,
            limits=limits,
            on_connected=self._list_watcher.watch,
            on_notification=self._on_notification,
            on_failure=self._notify_listener,
        )

    def explain(self, error: MCPError) -> str:
        return self._errors.explain(error)

    async def connect(self) -> None:
        """Connect now and find out what the server offers. Raises MCPError."""
        self.supervisor.allow_connections()
        connection = await self.supervisor.get_connection()
        if self._tool.load_tools:
            await self._tools.get_current(connection.session)
        if self._tool.load_prompts:
            await self._prompts.get_current(connection.session)

    async def close(self) -> None:
        await self.supervisor.close()
        await self._result_builder.close()

    async def list_tools(self) -> list[MCPToolInfo]:
        """The tools as they are now; none if the file says `load_tools: false`."""
        if not self._tool.load_tools:
            return []
        connection = await self.supervisor.get_connection()
        return list((await self._tools.get_current(connection.session)).items)

    async def list_prompts(self) -> list[MCPPromptInfo]:
        """The prompts as they are now; none if the file says `load_prompts: false`."""
        if not self._tool.load_prompts:
            return []
        connection = await self.supervisor.get_connection()
        return list((await self._prompts.get_current(connection.session)).items)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any]) -> Message:
        """A prompt, filled in. Raises MCPError."""
        connection = await self.supervisor.get_connection()
        session = connection.session
        if self._tool.load_prompts:
            await self._prompts.get_current(session)
        known = self._prompts.find(session, name)
        params = {"name": known.name if known is not None else name, "arguments": dict(arguments)}
        return await request_traced(self._tool, session, "prompts/get", params, seconds=self._tool.request_timeout)

    async def request(self, method: str, params: Mapping[str, Any]) -> Message:
        """Any request, answered with its result. Raises MCPError."""
        connection = await self.supervisor.get_connection()
        return await request_traced(
            self._tool, connection.session, method, dict(params), seconds=self._tool.request_timeout
        )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        seconds: float | None = None,
        key: str = "",
        caller_id: str = "",
    ) -> MCPToolResult:
        """Call a tool by the server's or the model's name for it. Only cancellation is raised.

        `key` is the same for every attempt at one call; the server is told it for tools that may be repeated.
        `caller_id`: for whom; where calls must wait, callers take turns.
        """
        trace = CallRecord(name, key, Reservation(self.budget))
        try:
            async with self.call_limit.acquire(seconds or self._tool.request_timeout, self._errors, caller_id) as left:
                info, answer = await self._request_answer(trace, arguments, on_progress, left)
            return await self._result_builder.build(info, answer, trace)
        except MCPError as error:
            return self._result_builder.build_failure(error, trace)
        finally:
            trace.reserved.release()

    async def _request_answer(
        self, record: CallRecord, arguments: Mapping[str, Any], on_progress: OnProgress | None, seconds: float
    ) -> tuple[MCPToolInfo, Message]:
        is_last = False
        while True:
            connection = self.supervisor.live_connection or await self.supervisor.get_connection()
            session = connection.session
            info = self._tools.find(session, record.tool) or await self._require_tool(connection, record.tool)
            delivery = record.delivery = Delivery(
                build_argument_headers(info.argument_headers, arguments) if info.argument_headers else None,
                reserved=record.reserved,
            )
            began = asyncio.get_running_loop().time()
            params = {"name": info.name, "arguments": arguments}
            try:
                answer = await request_traced(
                    self._tool,
                    session,
                    "tools/call",
                    params,
                    seconds=seconds,
                    delivery=delivery,
                    on_progress=on_progress,
                    meta={META_KEY: record.key} if record.key and self.may_repeat(info) else None,
                )
            except MCPProtocolError as error:
                if is_last or error.details.get("code") != HEADER_MISMATCH:
                    raise
                await self._tools.refresh(session)  # the server's idea of the headers is newer than ours
            except MCPConnectionError as error:
                if isinstance(error, MCPTimeoutError):
                    self.supervisor.record_timeout(connection, began)
                if is_last or not self._can_retry(connection, info, error, delivery):
                    raise self._with_unknown_outcome(error, delivery) from error
                log.info("mcp.repeated", server=self._tool.name, tool=info.name, cause=error)
            else:
                self.supervisor.record_success()
                return info, answer
            is_last = True

    def _can_retry(
        self, connection: Connection, info: MCPToolInfo, error: MCPConnectionError, delivery: Delivery
    ) -> bool:
        """Only what cannot have happened, or what the operator says may happen twice."""
        if error.details.get("stale_session"):
            return True
        if isinstance(error, MCPTimeoutError) or "status" in error.details:
            return False
        if not delivery.may_have_been_sent:
            return connection.session.transport.failure.done()
        return self.may_repeat(info)

    def may_repeat(self, info: MCPToolInfo) -> bool:
        """True for a tool that the operator calls idempotent."""
        return is_idempotent(self._tool, info)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """A sentence for each pattern of the file that matched no tool when they were listed last."""
        return self._tools.listing.unmatched

    def _with_unknown_outcome(self, error: MCPConnectionError, delivery: Delivery) -> MCPConnectionError:
        if not delivery.may_have_been_sent or "outcome" in error.details or "status" in error.details:
            return error
        details = {**error.details, "outcome": "unknown"}
        said = str(error).rstrip(".")
        text = said + ("\n" if "\n" in said else ". ") + OUTCOME_UNKNOWN
        return type(error)(text, server=error.server, phase=error.phase, details=details)

    async def _require_tool(self, connection: Connection, name: str) -> MCPToolInfo:
        session = connection.session
        unlisted = MCPToolInfo(name=name, model_name=normalize_tool_name(name))
        if is_allowed(self._tool, unlisted):
            if not self._tool.load_tools:
                return unlisted
            if self._tools.age(session) > LIST_RECHECK:
                await self._tools.refresh(session)
            info = self._tools.find(session, name)
            if info is not None:
                return info
            reason = self._tools.listing.rejected.get(name)
            text = f"it has no tool '{name}'" + (f" that can be used: {reason}." if reason else ".")
        else:
            text = f"the tool '{name}' is not allowed ('allowed_tools', 'denied_tools')."
        raise self._errors.build(MCPToolNotFoundError, "call", text, tool=name)

    def _on_notification(self, connection: Connection, message: Message) -> None:
        self._list_watcher.apply_notification(connection, message)
        self._notify_listener(message)

    def _notify_listener(self, event: Message | MCPError) -> None:
        if self._callbacks.on_message is None:
            return
        try:
            self._callbacks.on_message(event)
        except Exception as error:  # the listener's trouble must not stop the reading of answers
            log.error("mcp.listener_failed", server=self._tool.name, error=repr(error))
