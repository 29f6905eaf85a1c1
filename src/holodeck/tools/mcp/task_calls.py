"""Tool calls that may run as tasks, across the connections of one server.

`TaskCalls` decides whether a call asks for a task, finds the task in its answer, and waits for the result. After a lost
connection the same task is polled on the next one. A task whose result is not needed any more (the caller was
cancelled, the time is over, the server breaks the protocol) is cancelled at the server, unless the call belongs to a
durable run that another process continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.call_errors import OUTCOME_UNKNOWN
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.tools.executor import ResumePoint
from holodeck.tools.mcp.connection.supervisor import Supervisor
from holodeck.tools.mcp.content import CallRecord, CallRequest
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.pending_requests import MAX_EXTENDED_CALL
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.protocol.tasks import RemoteTask, TaskSupport, find_created_task
from holodeck.tools.mcp.transports.base import Delivery

# Seconds for which a server is asked to store a task: as long as a call may take, and as long again for its result.
TASK_TTL = 2 * MAX_EXTENDED_CALL
# The same for a durable run: a gateway that was down for a night finds the task again.
DURABLE_TASK_TTL = 86_400.0
# Seconds that a cancelled caller waits for the server to confirm that its task is cancelled.
CANCEL_TIMEOUT = 2.0
# Seconds before a task is polled again after the connection was lost; doubled with each failure in a row.
FIRST_RETRY = 0.1
MAX_RETRY = 5.0


class TaskCalls:
    """The calls and tasks of one server."""

    def __init__(self, server: str, supervisor: Supervisor, errors: ErrorFactory) -> None:
        self._server = server
        self._supervisor = supervisor
        self._errors = errors

    def build_params(self, session: Session, info: MCPToolInfo, request: CallRequest) -> dict[str, Any]:
        """Return the parameters with which a call asks for a task; empty for a call that does not.

        A tool that may run as a task does so in a durable run. A modern server decides by itself.
        """
        if session.terms is None or not session.terms.can_create_tasks():
            return {}
        is_durable = request.resume is not None
        if info.task_support is TaskSupport.FORBIDDEN or (info.task_support is TaskSupport.OPTIONAL and not is_durable):
            return {}
        return {"task": {"ttl": round((DURABLE_TASK_TTL if is_durable else TASK_TTL) * 1000)}}

    def find_task(
        self, answer: Message, params: Mapping[str, Any], record: CallRecord, request: CallRequest
    ) -> RemoteTask | None:
        """Return the task that the answer to a call with these parameters names; None for a result. Raises MCPError."""
        state = find_created_task(answer, is_requested="task" in params, errors=self._errors)
        if state is None:
            return None
        token = record.delivery.request_id if record.delivery is not None else None
        task = RemoteTask(state.task_id, self._errors, token=token, on_progress=request.on_progress, peer=request.peer)
        task.report(state)
        return task

    def restore_task(self, stored: Mapping[str, Any], record: CallRecord, request: CallRequest) -> RemoteTask:
        """Return the task that an earlier process has created and stored. Raises MCPError."""
        # The call was sent then, whatever becomes of the task.
        record.delivery = Delivery(may_have_been_sent=True)
        if stored.get("server") != self._server:
            text = f"the call runs as a task of the server '{stored.get('server')}', which has another name now."
            raise self._errors.protocol("call", f"{text} {OUTCOME_UNKNOWN}", outcome="unknown")
        task = RemoteTask(str(stored.get("task")), self._errors, on_progress=request.on_progress, peer=request.peer)
        log.info("mcp.task_resumed", server=self._server, tool=record.tool, task=task.id)
        return task

    async def wait_result(self, task: RemoteTask, record: CallRecord, request: CallRequest, seconds: float) -> Message:
        """Return the result of a task. That of a durable run is stored first, unless it is. Raises MCPError."""
        longest, resume = max(seconds, MAX_EXTENDED_CALL), request.resume
        try:
            async with asyncio.timeout(longest) as clock:
                # A task that was lost is followed by another one.
                if resume is not None and (resume.stored or {}).get("task") != task.id:
                    await resume.store({"server": self._server, "task": task.id})
                return await self._poll_until_end(task, record, seconds)
        except TimeoutError:
            if not clock.expired():
                raise
            await self._cancel(task, resume)
            text = f"the task did not end within {longest:g} s, and was cancelled. {OUTCOME_UNKNOWN}"
            fix = "Raise 'request_timeout' if the tool needs longer."
            raise self._errors.timeout("call", f"{text} {fix}", outcome="unknown", is_public=True) from None
        except (asyncio.CancelledError, MCPError):
            await self._cancel(task, resume)
            raise

    async def _poll_until_end(self, task: RemoteTask, record: CallRecord, seconds: float) -> Message:
        """Wait for the result on one connection after the other. `seconds` without an answer are the end."""
        loop = asyncio.get_running_loop()
        failures, silent_since = 0, None
        while True:
            began, connection = loop.time(), self._supervisor.live_connection
            try:
                connection = connection or await self._supervisor.get_connection()
                result = await task.wait_result(connection.session, seconds=seconds, reserved=record.reserved)
            except MCPConnectionError as error:
                if connection is not None:
                    self._supervisor.record_failure(connection, error, began)
                now = loop.time()
                # If no request was sent, the silence begins now.
                task.silent_since = now if task.silent_since is None else task.silent_since
                if self._supervisor.is_closed or now - task.silent_since >= seconds:
                    raise _build_silence_error(task, error) from error
                failures = failures + 1 if task.silent_since == silent_since else 1
                silent_since = task.silent_since
                log.info("mcp.task_polled_again", server=self._server, tool=record.tool, cause=error)
            else:
                self._supervisor.record_success()
                return result
            await asyncio.sleep(backoff_pause(failures, first=FIRST_RETRY, longest=MAX_RETRY))

    async def _cancel(self, task: RemoteTask, resume: ResumePoint | None) -> None:
        """Cancel the task at the server, unless another process waits for it. Waits shortly; a failure is ignored."""
        connection = self._supervisor.live_connection
        if connection is None or task.is_ended or (resume is not None and resume.is_handed_over):
            return
        # Its own task: a second cancellation of the caller ends the wait, not the request.
        await asyncio.wait({connection.spawn_task(task.cancel(connection.session))}, timeout=CANCEL_TIMEOUT)


def _build_silence_error(task: RemoteTask, error: MCPConnectionError) -> MCPConnectionError:
    text = f"Server '{error.server}' (call): the state of the task '{task.id[:50]}' is not known: {error}"
    details = {**error.details, "outcome": "unknown"}
    return MCPConnectionError(f"{text} {OUTCOME_UNKNOWN}", server=error.server, phase="call", details=details)
