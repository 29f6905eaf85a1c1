"""The client of one configured MCP server.

`MCPClient` owns the supervisor of the connection, the cached lists of tools, prompts and resources, the subscriptions
to resources, and the call limit. Calls may come from any task. A call is repeated at most once, and only if the first
attempt cannot have taken effect or if the definition calls the tool idempotent. `connect` may follow `close`; nothing
is connected before the first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.call_errors import TOOL_CHANGED
from holodeck.lib.errors import MCPConnectionError, MCPError, MCPProtocolError, MCPTimeoutError
from holodeck.tools.executor import CHANGED, ResumePoint
from holodeck.tools.mcp.call_limit import CallLimit
from holodeck.tools.mcp.connection.connection import Connection, ConnectionState
from holodeck.tools.mcp.connection.supervisor import StartLimits, Supervisor
from holodeck.tools.mcp.content import (
    CallRecord,
    CallRequest,
    MCPToolResult,
    PromptResult,
    ResultBuilder,
    count_resource_bytes,
    limit_answer,
    prompt_of,
)
from holodeck.tools.mcp.discovery import READ_RESOURCE_TOOL, MCPPromptInfo, MCPToolInfo
from holodeck.tools.mcp.errors import add_unknown_outcome
from holodeck.tools.mcp.lock.drift import ServerLock, ToolDrift
from holodeck.tools.mcp.names import normalize_tool_name
from holodeck.tools.mcp.protocol.jsonrpc import HEADER_MISMATCH, Message
from holodeck.tools.mcp.protocol.legacy_notices import announce_roots, lower_log_level
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.mcp.protocol.pending_requests import OnProgress
from holodeck.tools.mcp.protocol.server_requests import Callbacks, ServerRequestResponder
from holodeck.tools.mcp.protocol.session import Session, Spawn
from holodeck.tools.mcp.protocol.tasks import RemoteTask, TaskSupport
from holodeck.tools.mcp.protocol.versions import ProtocolEra
from holodeck.tools.mcp.resource_discovery import MCPResourceInfo, MCPResourceTemplateInfo
from holodeck.tools.mcp.resource_subscriptions import OnUpdate, ResourceSubscription, ResourceSubscriptions
from holodeck.tools.mcp.server_lists import ServerLists
from holodeck.tools.mcp.task_calls import TaskCalls
from holodeck.tools.mcp.tool_patterns import is_idempotent
from holodeck.tools.mcp.transports.base import Delivery, TransportSetup
from holodeck.tools.mcp.transports.http_headers import build_argument_headers
from holodeck.tools.mcp.transports.registry import get_kind

# The key in `_meta` under which a server finds the idempotency key of a call.
META_KEY = "holodeck/idempotency-key"


class MCPClient:
    """One configured server. A failed call is a result; all other failures raise MCPError."""

    def __init__(
        self,
        setup: TransportSetup,
        *,
        callbacks: Callbacks | None = None,
        limits: StartLimits | None = None,
        call_limit: CallLimit | None = None,
        lock: ServerLock | None = None,
    ) -> None:
        """Take the definition and what transports are built from in `setup`. `call_limit`: shared with other clients.

        `lock`: what was accepted of the server; the rest is withheld. None: all of it is accepted.
        """
        self.config = tool = setup.tool
        self._setup = setup
        self._errors = setup.errors
        self.callbacks = callbacks = callbacks or Callbacks()
        self.lock = lock
        self.call_limit = call_limit or CallLimit(tool.max_concurrent_calls)
        self._result_builder = ResultBuilder(tool, self._errors, in_process=setup.is_offline)
        self._lists = ServerLists(tool, callbacks, self._errors, lock)
        self._supervisor = Supervisor(
            tool,
            self._build_session,
            errors=self._errors,
            limits=limits or StartLimits(),
            on_connected=self._on_connected,
            on_notification=self._on_notification,
            on_failure=self._notify_listener,
        )
        self._subscriptions = ResourceSubscriptions(
            self._errors, self._supervisor.get_connection, request_timeout=tool.request_timeout
        )
        self._task_calls = TaskCalls(tool.name, self._supervisor, self._errors)

    @property
    def state(self) -> ConnectionState:
        return self._supervisor.state

    @property
    def era(self) -> ProtocolEra | None:
        """The era of the protocol that the server speaks; None before the first connection."""
        terms = self._supervisor.terms
        return terms.era if terms is not None else None

    @property
    def protocol_version(self) -> str | None:
        terms = self._supervisor.terms
        return terms.version if terms is not None else None

    @property
    def server_info(self) -> Mapping[str, Any]:
        """Name and version, as the server declares them; it may declare none."""
        terms = self._supervisor.terms
        return terms.server_info if terms is not None else {}

    @property
    def restarts(self) -> int:
        """How many times the connection was established again."""
        return max(0, self._supervisor.connections - 1)

    @property
    def start_seconds(self) -> float | None:
        """Seconds that the latest connection took to be established; None before the first one."""
        return self._supervisor.start_seconds

    @property
    def last_error(self) -> MCPError | None:
        """Why the latest start failed or the connection was lost; None unless `state` is ERROR."""
        return self._supervisor.last_error

    @property
    def stderr_tail(self) -> str:
        """The end of what the latest process of the server wrote to its standard error, with secrets masked."""
        return self._supervisor.stderr_tail

    @property
    def instructions(self) -> str | None:
        """The instructions of the server, with invisible characters escaped; None if they differ from the lock."""
        return None if self._supervisor.terms is None else self._lists.instructions

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the server declares that it can do; empty before the first connection."""
        terms = self._supervisor.terms
        return terms.capabilities if terms is not None else {}

    @property
    def has_resources(self) -> bool:
        """True when the server declares resources; False before the first connection."""
        return (terms := self._supervisor.terms) is not None and terms.has_capability("resources")

    @property
    def unmatched_patterns(self) -> Sequence[str]:
        """A sentence for each pattern of the definition that matches no tool of the latest list."""
        return self._lists.tools.listing.unmatched

    @property
    def withheld_tools(self) -> Sequence[ToolDrift]:
        """The tools of the latest list that are not offered, because they differ from the lock."""
        return self._lists.tools.listing.withheld

    @property
    def withheld_texts(self) -> Sequence[ToolDrift]:
        """The prompts, resources, templates and instructions that are not passed on, as they differ from the lock."""
        return self._lists.withheld_texts

    @property
    def budget(self) -> ByteBudget:
        """Holds the bytes of answers until they are results."""
        return self._setup.budget

    @property
    def base_dir(self) -> Path:
        """The folder that relative paths of the definition start from."""
        return self._setup.base_dir

    def use_budget(self, budget: ByteBudget) -> None:
        """Count answers of this server in a shared budget, on connections made from now on."""
        self._setup = replace(self._setup, budget=budget)

    def explain(self, error: MCPError) -> str:
        """Return the text of an error for a caller, without the cause if the caller does not operate the server."""
        return self._errors.explain(error)

    def may_repeat(self, tool: MCPToolInfo) -> bool:
        """Return True for a tool that the definition calls idempotent."""
        return is_idempotent(self.config, tool)

    def announce_change(self) -> None:
        """Tell the program that what this server has is there again, or is not there any more."""
        for area, listener in self.callbacks.list_listeners(self.config.name).items():
            if listener is not None and (area == "tools" or area in self.capabilities):
                listener()

    async def connect(self) -> None:
        """Connect now instead of on first use, and list tools and prompts. Raises MCPError."""
        self._supervisor.allow_connections()
        connection = await self._supervisor.get_connection()
        if self.config.load_tools:
            await self._lists.tools.get_current(connection.session)
        if self.config.load_prompts:
            await self._lists.prompts.get_current(connection.session)

    async def close(self) -> None:
        """End the connection, and the process of the server if there is one. Bounded; may be called twice."""
        await self._subscriptions.close()
        await self._supervisor.close()
        await self._result_builder.close()

    async def sleep(self) -> None:
        """End the connection; the next use establishes it again."""
        await self.close()
        self._supervisor.forget_connection()

    async def list_tools(self) -> list[MCPToolInfo]:
        """Return the current tools; none with `load_tools: false`. Raises MCPError."""
        if not self.config.load_tools:
            # A server that is used for its resources only is started here as well.
            if self.config.load_resources:
                await self._supervisor.get_connection()
            return []
        connection = await self._supervisor.get_connection()
        return list((await self._lists.tools.get_current(connection.session)).items)

    def find_current_tools(self) -> Sequence[MCPToolInfo] | None:
        """Return the list, always the same object until it is fetched again; None if that needs a request."""
        connection = self._supervisor.live_connection
        if connection is None or not self.config.load_tools or not self._lists.tools.is_fresh(connection.session):
            return None
        return self._lists.tools.listing.items

    async def list_prompts(self) -> list[MCPPromptInfo]:
        """Return the current prompts; none with `load_prompts: false`. Raises MCPError."""
        if not self.config.load_prompts:
            return []
        connection = await self._supervisor.get_connection()
        return list((await self._lists.prompts.get_current(connection.session)).items)

    async def get_prompt(self, name: str, /, **arguments: str) -> PromptResult:
        """Return a prompt with its arguments filled in. Raises MCPError."""
        return prompt_of(await self.request_prompt(name, arguments))

    async def request_prompt(
        self,
        name: str,
        arguments: Mapping[str, str],
        *,
        on_progress: OnProgress | None = None,
        peer: Peer | None = None,
    ) -> Message:
        """Return a prompt with its arguments filled in, as the server sent it. Raises MCPError."""
        session = (await self._supervisor.get_connection()).session
        params = {"name": await self._lists.require_prompt(session, name), "arguments": arguments}
        return await session.call(
            "prompts/get", params, seconds=self.config.request_timeout, on_progress=on_progress, peer=peer
        )

    async def list_resources(self) -> list[MCPResourceInfo]:
        """Return the current resources; none if the server does not declare any. Raises MCPError."""
        connection = await self._supervisor.get_connection()
        return list((await self._lists.resources.get_current(connection.session)).items)

    async def list_resource_templates(self) -> list[MCPResourceTemplateInfo]:
        """Return the current resource templates; none if the server does not declare resources. Raises MCPError."""
        connection = await self._supervisor.get_connection()
        return list((await self._lists.templates.get_current(connection.session)).items)

    async def subscribe(self, uri: str, listener: OnUpdate) -> ResourceSubscription:
        """Call `listener` with each update of a resource, and once after a reconnection. Raises MCPError.

        Ends with `close` of the returned subscription or with its `async with`. Holds the connection open meanwhile.
        """
        return await self._subscriptions.subscribe(uri, listener)

    async def complete(
        self,
        ref: Mapping[str, Any],
        argument: Mapping[str, Any],
        context: Mapping[str, Any] | None = None,
        *,
        peer: Peer | None = None,
    ) -> Mapping[str, Any]:
        """Return the result of `completion/complete`, without values if the server does not declare completions.

        Raises MCPError.
        """
        connection = await self._supervisor.get_connection()
        terms = connection.session.terms
        if terms is not None and not terms.has_capability("completions"):
            return {"completion": {"values": []}}
        params = {"ref": ref, "argument": argument, **({"context": context} if context else {})}
        seconds = self.config.request_timeout
        return await connection.session.call("completion/complete", params, seconds=seconds, peer=peer)

    async def lower_log_level(self, level: str) -> None:
        """Let a connected server send log messages of this level, if it does not yet. Raises nothing."""
        if (connection := self._supervisor.live_connection) is not None:
            await lower_log_level(connection.session, level)

    async def announce_roots(self) -> None:
        """Tell a connected server that the roots of the client in front have changed. Raises nothing."""
        if (connection := self._supervisor.live_connection) is not None:
            await announce_roots(connection.session)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request of the protocol that has no method of its own here. Returns its result; raises MCPError."""
        connection = await self._supervisor.get_connection()
        return await connection.session.call(method, dict(params), seconds=self.config.request_timeout)

    async def call_tool(self, name: str, /, **arguments: Any) -> MCPToolResult:
        """Call a tool. A failure is a result with `success=False`; only cancellation is raised."""
        return await self.call(name, arguments)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the deadline of the call, which progress extends
        key: str = "",
        caller_id: str = "",
        expected: MCPToolInfo | None = None,
        peer: Peer | None = None,
        resume: ResumePoint | None = None,
    ) -> MCPToolResult:
        """Call a tool by the server's or the model's name of it. A failure is a result; only cancellation is raised.

        `timeout`: seconds, including the wait for the call limit; by default `request_timeout`. `key` is equal for
        every attempt at one call, and is sent to the server for tools that may be repeated. `caller_id`: where calls
        must wait, callers take turns. `expected`: the tool as the caller knows it; if its definition has changed since,
        the call fails and is not sent. `peer`: the client that the call is made for. `resume`: that of a durable run,
        in which a tool that may run as a task does.
        """
        record = CallRecord(name, key, Reservation(self.budget))
        request = CallRequest(arguments=arguments, on_progress=on_progress, expected=expected, peer=peer, resume=resume)
        try:
            info, answer = await self._request_in_turn(
                record, request, timeout or self.config.request_timeout, caller_id
            )
            problem = None
            if info.output_schema is not None:
                problem = await self._result_builder.find_output_problem(info.name, info.output_schema, answer)
            return self._result_builder.build(info.name, answer, record, problem)
        except MCPError as error:
            return self._result_builder.build_failure(error, record)
        finally:
            record.reserved.release()

    async def request_call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        caller_id: str = "",
        expected: MCPToolInfo | None = None,
        peer: Peer | None = None,
    ) -> Message:
        """Call a tool, and return the result as the server sent it, cut to `max_result_bytes`. Raises MCPError.

        The parameters are those of `call`.
        """
        record = CallRecord(name, "", Reservation(self.budget))
        request = CallRequest(arguments=arguments, on_progress=on_progress, expected=expected, peer=peer)
        try:
            _, answer = await self._request_in_turn(record, request, self.config.request_timeout, caller_id)
            return limit_answer(answer, self.config.max_result_bytes)
        finally:
            record.reserved.release()

    async def _request_in_turn(
        self, record: CallRecord, request: CallRequest, seconds: float, caller_id: str
    ) -> tuple[MCPToolInfo, Message]:
        """Send a call when the call limit permits it, unless an earlier process has, and return its tool and answer.

        The answer to a call that became a task is the result of the task. Raises MCPError.
        """
        stored = request.resume.stored if request.resume is not None else None
        if not self.call_limit.try_acquire():
            seconds = await self.call_limit.wait(seconds, self._errors, caller_id)
        try:
            if stored is None:
                info, answer, task = await self._send_call(record, request, seconds)
            else:
                info = request.expected or MCPToolInfo(name=record.tool, model_name=normalize_tool_name(record.tool))
                answer, task = {}, self._task_calls.restore_task(stored, record, request)
            if task is None:
                return info, answer
            try:
                return info, await self._task_calls.wait_result(task, record, request, seconds)
            except MCPProtocolError as error:
                if not error.details.get("task_lost") or not self.may_repeat(info):
                    raise
                log.info("mcp.repeated", server=self.config.name, tool=record.tool, cause=error)
            info, answer, task = await self._send_call(record, request, seconds)
            if task is not None:
                answer = await self._task_calls.wait_result(task, record, request, seconds)
            return info, answer
        finally:
            self.call_limit.release()

    async def request_resource(self, uri: str, *, caller_id: str = "", peer: Peer | None = None) -> Mapping[str, Any]:
        """Return the result of `resources/read`, within the limits of a call. Raises MCPError.

        Contents over `max_result_bytes` are an error: what is left of a cut image or document is of no use.
        """
        record = CallRecord(READ_RESOURCE_TOOL.name, "", Reservation(self.budget))
        try:
            answer = await self._request_resource(record, uri, caller_id, peer)
            size, limit = count_resource_bytes(answer.get("contents")), self.config.max_result_bytes
            if size > limit:
                text = f"the resource has {size} bytes, and 'max_result_bytes' allows {limit}."
                raise self._errors.protocol("resources/read", text, is_public=True, size=size)
            return answer
        finally:
            record.reserved.release()

    async def read_resource(self, uri: str, *, caller_id: str = "") -> MCPToolResult:
        """Read a resource as a result, cut to `max_result_bytes`. A failure is a result; see `call`."""
        record = CallRecord(READ_RESOURCE_TOOL.name, "", Reservation(self.budget))
        try:
            contents = (await self._request_resource(record, uri, caller_id)).get("contents")
            blocks = [{"type": "resource", "resource": one} for one in contents] if isinstance(contents, list) else None
            return self._result_builder.build(READ_RESOURCE_TOOL.name, {"content": blocks}, record)
        except MCPError as error:
            return self._result_builder.build_failure(error, record)
        finally:
            record.reserved.release()

    def _build_session(self, spawn: Spawn, on_notification: Callable[[Message], None]) -> Session:
        kind = get_kind(self.config)
        return Session(
            partial(self._setup.build or kind.load(), self._setup),
            errors=self._errors,
            responder=ServerRequestResponder(self.config, self.callbacks, self._setup.base_dir),
            on_notification=on_notification,
            spawn=spawn,
            span_attributes=kind.build_span_attributes(self.config),
        )

    async def _send_call(
        self, record: CallRecord, request: CallRequest, seconds: float
    ) -> tuple[MCPToolInfo, Message, RemoteTask | None]:
        """Send the call, and return its tool, its answer, and the task that the answer names. Raises MCPError."""
        is_last, arguments, expected = False, request.arguments, request.expected
        while True:
            connection = self._supervisor.live_connection or await self._supervisor.get_connection()
            session = connection.session
            info = self._lists.tools.find(session, record.tool) or await self._lists.require_tool(session, record.tool)
            if expected is not None and info is not expected and info != expected:
                raise self._errors.build(
                    MCPError, "call", TOOL_CHANGED.format(tool=info.name), tool=info.name, **{CHANGED: True}
                )
            delivery = record.delivery = Delivery(
                build_argument_headers(info.argument_headers, arguments) if info.argument_headers else None,
                reserved=record.reserved,
            )
            began = asyncio.get_running_loop().time()
            params: dict[str, Any] = {"name": info.name, "arguments": arguments}
            if info.task_support is not TaskSupport.FORBIDDEN:
                params |= self._task_calls.build_params(session, info, request)
            try:
                answer = await session.call(
                    "tools/call",
                    params,
                    seconds=seconds,
                    delivery=delivery,
                    on_progress=request.on_progress,
                    peer=request.peer,
                    meta={META_KEY: record.key} if record.key and self.may_repeat(info) else None,
                )
            except MCPProtocolError as error:
                if is_last or error.details.get("code") != HEADER_MISMATCH:
                    raise
                # The schema of the tool, which names the headers, has changed since it was listed.
                await self._lists.tools.refresh(session)
            except MCPConnectionError as error:
                self._supervisor.record_failure(connection, error, began)
                if is_last or not self._can_retry(connection, info, error, delivery):
                    raise (add_unknown_outcome(error) if delivery.may_have_been_sent else error) from error
                log.info("mcp.repeated", server=self.config.name, tool=info.name, cause=error)
            else:
                self._supervisor.record_success()
                is_result = "task" not in params and answer.get("resultType") != "task"
                return info, answer, None if is_result else self._task_calls.find_task(answer, params, record, request)
            is_last = True

    async def _request_resource(
        self, record: CallRecord, uri: str, caller_id: str, peer: Peer | None = None
    ) -> Message:
        """Wait for the call limit and request a resource. `record` holds the bytes of the answer."""
        seconds: float = self.config.request_timeout
        if not self.call_limit.try_acquire():
            seconds = await self.call_limit.wait(seconds, self._errors, caller_id)
        try:
            is_last = False
            while True:
                connection = self._supervisor.live_connection or await self._supervisor.get_connection()
                await self._lists.check_resource(connection.session, uri)
                delivery = record.delivery = Delivery(reserved=record.reserved)
                began = asyncio.get_running_loop().time()
                try:
                    answer = await connection.session.call(
                        "resources/read", {"uri": uri}, seconds=seconds, delivery=delivery, peer=peer
                    )
                except MCPConnectionError as error:
                    self._supervisor.record_failure(connection, error, began)
                    if is_last or not self._can_retry(connection, READ_RESOURCE_TOOL, error, delivery):
                        raise
                    is_last = True
                else:
                    self._supervisor.record_success()
                    return answer
        finally:
            self.call_limit.release()

    def _can_retry(
        self, connection: Connection, info: MCPToolInfo, error: MCPConnectionError, delivery: Delivery
    ) -> bool:
        """Return True for a call that cannot have taken effect, and for an idempotent tool after a lost connection."""
        if error.details.get("stale_session"):
            return True
        if isinstance(error, MCPTimeoutError) or "status" in error.details:
            return False
        if not delivery.may_have_been_sent:
            return connection.session.transport.failure.done()
        return self.may_repeat(info)

    def _on_connected(self, connection: Connection) -> None:
        self._lists.watch(connection)
        self._subscriptions.resume()

    def _on_notification(self, connection: Connection, message: Message) -> None:
        if not self._subscriptions.apply_notification(message):
            self._lists.watcher.apply_notification(connection, message)
        self._notify_listener(message)

    def _notify_listener(self, event: Message | MCPError) -> None:
        if self.callbacks.on_message is None:
            return
        try:
            self.callbacks.on_message(event)
        # An error of the listener must not end the task that reads the answers.
        except Exception as error:
            log.error("mcp.listener_failed", server=self.config.name, error=repr(error))
